-- Refills what a process holds of each counter: it takes units ahead, spends them on its own, and
-- returns those that it does not spend. What is above this line is counters.Lua. ARGV[1]
-- is what ledger.go encodes, and KEYS are, for each lease, the counter and the list of its holders.
--
-- A unit is charged when it is granted, so no other process gets it, whatever becomes of its
-- holder. The list of holders decides on nothing but how much may be ahead: 24 bytes for
-- each: which process, how many units at most, and until when.

local request = ARGV[1]
local quotaCount, count, percent, life, holder, at = read('<HHHdc8', request)
local quotas
quotas, at = readQuotas(request, quotaCount, at)

local values = readValues(KEYS)
local answers = {pack('<d', now)}
for i = 1, count do
  local number, since, back, keep, want, need
  number, since, back, keep, want, need, at = read('<Hddddd', request, at)
  local q = quotas[number]
  local key, holdersKey = KEYS[2 * i - 1], KEYS[2 * i]
  local value, holders = values[2 * i - 1], values[2 * i] or ''

  local s, takenAt = load(newState(q), key, value, q), q.window and max(1, since) or 0
  local p = s.quota
  if not s.foreign and not s.others and p.bytes ~= q.bytes and sub(p.bytes, 1, 1) == sub(q.bytes, 1, 1)
      and sub(p.bytes, 10) == sub(q.bytes, 10) and q.algorithm.used(q, s) <= q.capacity and s.prev <= q.capacity then
    s.quota, s.over = q, nil -- its limit differs in its number of events alone, and its numbers fit
  end

  if s.foreign or s.others or s.quota.bytes ~= q.bytes then
    -- Other limits use it, or it is something else.
    if not s.foreign and back > 0 then
      save(shapes.settled(q, s, -back, takenAt), key, value)
    end
    answers[i + 1] = pack('<dddd', -1, 0, 0, 0)
  else
    if value and back > 0 then
      -- To the window it was taken from. Of a bucket all is returned, as no request has used it.
      q.algorithm.refund(q, s, math.min(back, q.capacity), takenAt)
      s.changed = true
    end

    -- An end that is too far away was written before the clock stepped back.
    local others, kept, keptCount = 0, {}, 0
    for e = 1, #holders - 23, 24 do
      local units, ends = read('<dd', holders, e + 8)
      if ends > now and ends <= now + 2 * life and sub(holders, e, e + 7) ~= holder then
        others = others + units
        keptCount = keptCount + 1
        kept[keptCount] = sub(holders, e, e + 23)
      end
    end

    -- Beyond its need, a process gets at most an equal share of what all may hold, so that some is left for others.
    local remaining = q.capacity - q.algorithm.used(q, s)
    local ahead = div(q.capacity * percent, 100)
    local most = need
    if 2 * remaining >= q.capacity then
      most = math.max(need, math.min(want, div(ahead, keptCount + 1) - keep))
    end
    local granted = math.max(0, math.min(most, remaining, ahead - others - keep))
    if granted > 0 then
      s.level, s.log = take(q, s, granted)
      s.changed = true
    end
    if s.changed then
      save(s, key, value)
    end
    if keep + granted > 0 then
      keptCount = keptCount + 1
      kept[keptCount] = holder .. pack('<dd', keep + granted, now + life)
    end
    local list = table.concat(kept)
    if list ~= holders then
      if list == '' then
        redis.call('DEL', holdersKey)
      else
        redis.call('SET', holdersKey, list, 'PX', divUp(life, 1000) + 1)
      end
    end
    answers[i + 1] = pack('<dddd', granted, s.last, s.level, s.prev)
  end
end
return table.concat(answers)
