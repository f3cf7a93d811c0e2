-- Decides on a single charge, as decide.lua does, for callers that come alone: what that
-- sets up for a batch would take longer than the decision. KEYS[1] is the key, ARGV[1]
-- the quota, ARGV[2] the cost. What is not plain here is left to decide.lua: a value of
-- another quota, or without an expiry, or something else, which is an error already.
local bytes, cost = ARGV[1], tonumber(ARGV[2])
local kind, a, b, c = struct.unpack('<Bddd', bytes)
local algorithm = algorithms[kind]
local q = algorithm.compile(a, b, c)
local clock = redis.call('TIME')
local now = clock[1] * 1000000 + clock[2]
local s, expiry = {last = now, level = 0, prev = 0}, 0
local value = redis.call('GET', KEYS[1])
if value then
  if #value ~= 57 or string.sub(value, 1, 25) ~= bytes then
    error('WEIRINCOMPLETE')
  end
  s.last, s.level, s.prev, expiry = struct.unpack('<dddd', value, 26)
  algorithm.advance(q, s, math.max(now, s.last))
end
local level = s.level
if cost > 0 then
  level = cost <= q.capacity and algorithm.take(q, s, cost)
end
if level and cost > 0 then
  s.level = level
  local free = s.last + algorithm.resetAfter(q, s)
  local isLate = free <= expiry
  if not isLate then
    expiry = free + math.max(div(free - now, 2), 5000000)
  end
  local stored = bytes .. struct.pack('<dddd', s.last, s.level, s.prev, expiry)
  if isLate then
    redis.call('SETRANGE', KEYS[1], '0', stored)
  else
    redis.call('SET', KEYS[1], stored, 'PX', divUp(expiry - now, 1000) + 1)
  end
elseif value and redis.call('PTTL', KEYS[1]) == -1 then
  error('WEIRINCOMPLETE')
end
return struct.pack('<dBddd', now, level and 1 or 0, s.last, s.level, s.prev)
