-- Tells how much of its quota the counter KEYS[1] has used, and changes nothing. What is
-- above this line is limiter.Lua, all algorithms, and log.lua. Replies with what is used,
-- the capacity, and the microseconds until all is free; or with nothing for what is no counter.
local clock = redis.call('TIME')
local now = clock[1] * 1000000 + clock[2]
local value = redis.pcall('GETRANGE', KEYS[1], '0', '216')
if type(value) == 'table' or #value < 49 then
  return {}
end
local kind, a, b, c = struct.unpack('<Bddd', value)
local algorithm = algorithms[kind]
if not algorithm then
  return {}
end
local q = algorithm.compile(a, b, c)
local s = {key = KEYS[1], quota = q, log = '', kept = 0, first = 0}
s.last, s.level, s.prev = struct.unpack('<ddd', value, 26)
if q.isLong and #value >= 65 then
  s.first, s.kept = struct.unpack('<dd', value, 50)
elseif algorithm.isLog and #value % 16 == 9 then
  s.log = string.sub(value, 58)
end
algorithm.advance(q, s, math.max(now, s.last))
local remaining, reset = algorithm.remaining(q, s), algorithm.resetAfter(q, s)
return {q.capacity - remaining, q.capacity, math.max(0, reset + s.last - now)}
