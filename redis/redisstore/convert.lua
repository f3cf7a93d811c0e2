-- What a state is under another quota than its own. A state has the fields of all algorithms here.

-- Quota.used, of a state that was brought to the present.
local function usedOf(q, s)
  return math.min(q.capacity - q.algorithm.remaining(q, s), 2 * q.capacity)
end

-- The counterpart of Quota.convert, of limits that differ: makes of s, a state under the quota
-- from that was brought to the present, one under q, in which as much was used now.
local function convert(q, from, s, now)
  local used = usedOf(from, s)
  local owed = math.max(0, used - from.capacity)
  s.quota, s.last, s.level, s.prev, s.log, s.kept, s.first = q, now, 0, 0, '', 0, 0
  if used > 0 then
    local level, log = q.algorithm.take(q, s, math.min(used - owed, q.capacity))
    s.level, s.log = level, log or ''
    q.algorithm.owe(q, s, math.min(owed, q.capacity))
  end
end
