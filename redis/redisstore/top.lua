-- Shows how much of their quotas the counters KEYS have used, and changes nothing. What is above
-- this line is store.Lua and log.lua. ARGV[1] ends the names of counters of
-- slots. The reply has three numbers for each key: units used, the capacity, and the microseconds
-- until all units are free. They are zeros for a value that is no counter, and for a counter that
-- no longer counts because the clock was set back.
makeLongLogs()
local clock = redis.call('TIME')
local now = clock[1] * 1000000 + clock[2]

-- A value that slots.lua wrote.
local function lookAtSlots(key)
  local value = longLogs.read(key, '-1')
  if not value or #value % 32 ~= 24 then
    return 0, 0, 0
  end
  local used = 0
  local capacity, mean = struct.unpack('<dd', value)
  for at = 25, #value, 32 do
    local count, expiry = struct.unpack('<dd', value, at + 16)
    if expiry > now then
      used = used + count
    end
  end
  if mean == 0 then
    mean = 1000000 -- as limiter/inflight.go has it
  end
  return used, capacity, mean
end

local function look(key)
  local value = longLogs.read(key, '216')
  if not value or #value < 57 then
    return 0, 0, 0
  end
  local kind, a, b, c = struct.unpack('<Bddd', value)
  local algorithm = algorithmOf(kind)
  if not algorithm then
    return 0, 0, 0
  end
  local q = algorithm.compile(a, b, c)
  local s = {name = key, quota = q, log = '', kept = 0, first = 0}
  s.last, s.level, s.prev = struct.unpack('<ddd', value, 26)
  if q.isLong and #value >= 65 then
    s.first, s.kept = struct.unpack('<dd', value, 50)
  elseif algorithm.isLog and #value % 16 == 9 then
    s.log = string.sub(value, 58)
  end
  if s.last > now and algorithm.isAhead(q, s, now) then
    return 0, 0, 0 -- it counts no more: see state.lua
  end
  algorithm.advance(q, s, math.max(now, s.last))
  local remaining, reset = algorithm.remaining(q, s), algorithm.resetAfter(q, s)
  return q.capacity - remaining, q.capacity, math.max(0, reset + s.last - now)
end

local answer = {}
for i, key in ipairs(KEYS) do
  local of = look
  if string.sub(key, -#ARGV[1]) == ARGV[1] then
    of = lookAtSlots
  end
  answer[3 * i - 2], answer[3 * i - 1], answer[3 * i] = of(key)
end
return answer
