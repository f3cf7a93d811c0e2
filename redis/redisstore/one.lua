-- Decides on a single charge, as decide.lua does, for callers that come alone: what that
-- sets up for a batch would take longer than the decision. KEYS[1] is the key, ARGV[1]
-- the quota, ARGV[2] the cost. What is not plain here is left to decide.lua: a value of
-- another quota, of a clock that was far ahead, or without an expiry, or something else, which
-- is an error already.
local bytes, cost = ARGV[1], tonumber(ARGV[2])
local kind, a, b, c = struct.unpack('<Bddd', bytes)
local algorithm = algorithms[kind]
local q = algorithm.compile(a, b, c)
local hasEntries = q.hasEntries
if settles then
  q.settles, hasEntries = true, true
end
local clock = redis.call('TIME')
local now = clock[1] * 1000000 + clock[2]
if q.calendar then
  algorithm.check(q, now)
end
local s, expiry = {last = now, level = 0, prev = 0, log = '', kept = 0}, 0
local value = redis.call('GET', KEYS[1])
if value then
  if string.sub(value, 1, 25) ~= bytes or #value ~= 57 and (not hasEntries or #value < 57 or #value % 16 ~= 9) then
    error('WEIRINCOMPLETE')
  end
  s.last, s.level, s.prev, expiry = struct.unpack('<dddd', value, 26)
  if hasEntries then
    s.log = string.sub(value, 58)
  end
  if s.last > now and algorithm.isAhead(q, s, now) then
    error('WEIRINCOMPLETE')
  end
  algorithm.advance(q, s, math.max(now, s.last))
end
local level, log = s.level, s.log
if cost > 0 then
  level = nil
  if cost <= q.capacity then
    level, log = algorithm.take(q, s, cost)
  end
end
if level and cost > 0 then
  s.level = level
  if hasEntries then
    s.log = log
  end
  local free = s.last + algorithm.resetAfter(q, s)
  local isLate = free <= expiry
  if not isLate then
    expiry = free + math.max(div(free - now, 2), 5000000)
  end
  local stored = bytes .. struct.pack('<dddd', s.last, s.level, s.prev, expiry)
  if hasEntries then
    stored = stored .. s.log
  end
  if isLate and hasEntries then
    redis.call('SET', KEYS[1], stored, 'KEEPTTL')
  elseif isLate then
    redis.call('SETRANGE', KEYS[1], '0', stored)
  else
    redis.call('SET', KEYS[1], stored, 'PX', divUp(expiry - now, 1000) + 1)
  end
elseif value and redis.call('PTTL', KEYS[1]) == -1 then
  error('WEIRINCOMPLETE')
end
if algorithm.isLog then
  return struct.pack('<dBdddddd', now, level and 1 or 0, s.last, s.level, s.prev,
    algorithm.times(q, s, level and 0 or cost))
end
return struct.pack('<dBddd', now, level and 1 or 0, s.last, s.level, s.prev)
