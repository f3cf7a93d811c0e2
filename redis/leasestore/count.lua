-- Adds up what processes have counted by themselves, each of which decides on what it is
-- told here and what it has counted since. What is above this line is limiter.Lua. ARGV[1]
-- is what ledger.go encodes, KEYS are the counters.
--
-- A counter may be above its limit, by what several processes admitted at the same time. It
-- is not cut down: what was too much is made up for before anything more is admitted.
local pack, read, sub = struct.pack, struct.unpack, string.sub
local clock = redis.call('TIME')
local now = clock[1] * 1000000 + clock[2]
local most = 2 ^ 53

local request = ARGV[1]
local quotaCount, count, at = read('<HH', request)
local function quota(bytes)
  local kind, a, b, c = read('<Bddd', bytes)
  if algorithms[kind] then
    local q = algorithms[kind].compile(a, b, c)
    q.algorithm = algorithms[kind]
    q.bytes = bytes
    return q
  end
end

-- As the algorithm's own advance, which has a bucket empty when a full one would be: one that
-- is above its limit takes longer.
local function advance(q, s, t)
  if q.unit then
    s.level = math.max(0, s.level - (t - s.last) * q.refill)
    s.last = t
  else
    q.algorithm.advance(q, s, t)
  end
end

local quotas = {}
for i = 1, quotaCount do
  quotas[i] = quota(sub(request, at, at + 24))
  at = at + 25
end

local values = {}
if count > 0 then
  values = redis.call('MGET', unpack(KEYS))
end
local answers = {pack('<d', now)}
for i = 1, count do
  local number, used
  number, used, at = read('<Hd', request, at)
  local q, value = quotas[number], values[i]
  local s = {last = now, level = 0, prev = 0}
  local isForeign = false
  if not value and redis.call('EXISTS', KEYS[i]) == 1 then
    value = '' -- of another type
  end
  if value then
    local before = q
    if #value ~= 49 and #value ~= 57 then
      before = nil
    elseif sub(value, 1, 25) ~= q.bytes then
      before = quota(sub(value, 1, 25))
    end
    if not before then -- what is not known is not nothing: all is used, and comes back
      isForeign = true
      s.level = q.capacity * (q.unit or 1)
    else
      s.last, s.level, s.prev = read('<ddd', value, 26)
      advance(before, s, math.max(now, s.last))
      if before ~= q then -- what was used stays used
        local inUse = before.capacity - before.algorithm.remaining(before, s)
        s.prev = 0
        s.level = math.min(math.max(0, inUse), q.capacity) * (q.unit or 1)
      end
    end
  end
  if used > 0 then
    s.level = math.min(most, s.level + used * (q.unit or 1))
  elseif used < 0 and value then
    q.algorithm.refund(q, s, -used, 0)
  end
  if used ~= 0 or isForeign then
    local reset = q.algorithm.resetAfter(q, s)
    if s.level == 0 and s.prev == 0 or reset <= 0 then
      redis.call('DEL', KEYS[i])
    else
      redis.call('SET', KEYS[i], q.bytes .. pack('<ddd', s.last, s.level, s.prev),
        'PX', divUp(reset + s.last - now, 1000) + 1)
    end
  end
  answers[i + 1] = pack('<ddd', s.last, s.level, s.prev)
end
return table.concat(answers)
