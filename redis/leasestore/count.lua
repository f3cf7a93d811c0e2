-- Adds up what processes have counted by themselves, each of which decides on what it is
-- told here and what it has counted since. What is above this line is limiter.Lua and
-- LuaConvert. ARGV[1] is what ledger.go encodes, KEYS are the counters.
--
-- A counter may be above its limit, by what several processes admitted at the same time, and
-- what is owed. A bucket is not cut down: what was too much is made up for before anything more
-- is admitted. A window passes on at most as much as a limit to the next.
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

local quotas = {}
for i = 1, quotaCount do
  quotas[i] = quota(sub(request, at, at + 24))
  if quotas[i].calendar then
    quotas[i].algorithm.check(quotas[i], now)
  end
  at = at + 25
end

local function isFree(q, s)
  local reset = q.algorithm.resetAfter(q, s)
  return s.level == 0 and s.prev == 0 or reset <= 0, reset
end

local values = {}
if count > 0 then
  values = redis.call('MGET', unpack(KEYS))
end
local answers = {pack('<d', now)}
for i = 1, count do
  local number, used, owed, past, pastAt
  number, used, owed, past, pastAt, at = read('<Hdddd', request, at)
  local q, value = quotas[number], values[i]
  local asked = q -- the quota to answer under
  local s = {last = now, level = 0, prev = 0}
  local isForeign = false
  if not value and redis.call('EXISTS', KEYS[i]) == 1 then
    value = '' -- of another type
  end
  if value then
    local before = q
    if #value ~= 49 then
      before = nil
    elseif sub(value, 1, 25) ~= q.bytes then
      before = quota(sub(value, 1, 25))
    end
    if not before then -- what is not known is not nothing: all is used, and comes back
      isForeign = true
      s.level = q.capacity * (q.unit or 1)
    else
      s.last, s.level, s.prev = read('<ddd', value, 26)
      before.algorithm.advance(before, s, math.max(now, s.last))
      -- What is used is counted under the process's limit from then on. A correction is no
      -- reason for that: a lower limit would forget what was used above it.
      if before ~= q and (used > 0 or isFree(before, s)) then
        convert(q, before, s)
      else
        q = before
      end
    end
  end
  local unit = q.unit or 1
  if past > 0 then
    q.algorithm.refund(q, s, math.min(past, q.capacity), pastAt)
  end
  if used > 0 then
    s.level = math.min(q.unit and most or 2 * q.capacity, s.level + used * unit)
  elseif used < 0 and value then
    q.algorithm.refund(q, s, math.min(-used, q.capacity), 0)
  end
  if owed > 0 and s.level < 2 * q.capacity * unit then
    q.algorithm.owe(q, s, math.min(owed, 2 * q.capacity))
  end
  if used ~= 0 or owed > 0 or past > 0 or isForeign then
    local free, reset = isFree(q, s)
    if free then
      redis.call('DEL', KEYS[i])
    else
      redis.call('SET', KEYS[i], q.bytes .. pack('<ddd', s.last, s.level, s.prev),
        'PX', divUp(reset + s.last - now, 1000) + 1)
    end
  end
  if q ~= asked then
    convert(asked, q, s)
  end
  answers[i + 1] = pack('<ddd', s.last, s.level, s.prev)
end
return table.concat(answers)
