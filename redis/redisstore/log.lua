-- What a long log needs besides: its entries are a ring behind the head of its value. The head has
-- 16 bytes more: the index of the oldest entry, s.first, and how many there are.
function stored(s, i, n)
  local size = s.quota.capacity
  local first = (s.first + i) % size
  local past = first + n
  local entries = redis.call('GETRANGE', s.key, 65 + 16 * first, 64 + 16 * math.min(past, size))
  if past > size then
    entries = entries .. redis.call('GETRANGE', s.key, '65', 64 + 16 * (past - size))
  end
  if #entries < 16 * n then -- it was cut off
    return entries .. string.rep('\0', 16 * n - #entries)
  end
  return entries
end

-- The value of a key up to the byte last, or false if there is none.
function readValue(name, last)
  local value = redis.pcall('GETRANGE', name, '0', last)
  if type(value) == 'table' then
    if not string.find(value.err, 'WRONGTYPE', 1, true) then
      error(value.err) -- not to be taken for a key without a value
    end
    return 'something else'
  end
  return (value ~= '' or redis.call('EXISTS', name) == 1) and value
end

function forget(s, n)
  s.first = (s.first + n) % s.quota.capacity
  s.kept = s.kept - n
end

function saveLog(s)
  if s.rewritten then
    redis.call('DEL', s.key)
    s.first = 0
  end
  local size = s.quota.capacity
  local log = s.log
  redis.call('SETRANGE', s.key, '0',
    s.quota.bytes .. struct.pack('<ddddd', s.last, s.level, s.prev, s.first, s.kept + #log / 16))
  local at = (s.first + s.kept) % size
  while log ~= '' do -- once, or twice where the ring ends
    local part = string.sub(log, 1, 16 * (size - at))
    redis.call('SETRANGE', s.key, 65 + 16 * at, part)
    log = string.sub(log, #part + 1)
    at = 0
  end
end
