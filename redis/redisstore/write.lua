-- When a key expires that is free at a time: later, so that the expiry is late enough for the next event
-- too. To set an expiry costs more than all else.
local function expiryOf(free, now)
  return free + math.max(div(math.max(0, free - now), 2), 5000000)
end

-- How many milliseconds a value lives, as Redis counts from when the script began.
local function lifeUntil(expiry, now)
  return divUp(expiry - now, 1000) + 1
end

-- Stores a value for so many milliseconds, or false: until it expires already, where a value of that
-- size is.
local function put(name, value, life, size)
  if life then
    redis.call('SET', name, value, 'PX', life)
  elseif #value == size then
    redis.call('SETRANGE', name, '0', value)
  else
    redis.call('SET', name, value, 'KEEPTTL')
  end
end
