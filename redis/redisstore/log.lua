-- Long logs: their entries are a ring behind the head of the value. The head has 16 bytes more than a
-- state: the index of the oldest entry, s.first, and how many entries there are. The functions are made
-- for a batch that needs them.
local longLogs, stored, forget -- the last two for slidinglog.lua
local function makeLongLogs()
  longLogs = {read = false, load = false, save = false}

  stored = function(s, i, n)
    local size = s.quota.capacity
    local first = (s.first + i) % size
    local past = first + n
    local entries = redis.call('GETRANGE', s.name, 65 + 16 * first, 64 + 16 * math.min(past, size))
    if past > size then
      entries = entries .. redis.call('GETRANGE', s.name, '65', 64 + 16 * (past - size))
    end
    if #entries < 16 * n then -- it was cut off
      return entries .. string.rep('\0', 16 * n - #entries)
    end
    return entries
  end

  forget = function(s, n)
    s.first = (s.first + n) % s.quota.capacity
    s.kept = s.kept - n
  end

  -- The value of a key up to the byte last, or false if there is none.
  function longLogs.read(name, last)
    local value = redis.pcall('GETRANGE', name, '0', last)
    if type(value) == 'table' then
      if not string.find(value.err, 'WRONGTYPE', 1, true) then
        error(value.err) -- not to be taken for a key without a value
      end
      return 'something else'
    end
    return (value ~= '' or redis.call('EXISTS', name) == 1) and value
  end

  -- The state in a value that was written under q. The value has no expiry.
  function longLogs.load(q, name, value)
    local last, level, prev, first, kept = struct.unpack('<ddddd', value, 26)
    return {
      quota = q, last = last, level = level, prev = prev, log = '', expiry = 0, changed = false, name = name,
      first = math.max(0, math.min(first, q.capacity - 1)), kept = math.max(0, math.min(kept, q.capacity)),
    }
  end

  function longLogs.save(s, name)
    if s.rewritten then
      redis.call('DEL', name)
    end
    local size, log = s.quota.capacity, s.log
    local first = not s.rewritten and s.first or 0
    redis.call('SETRANGE', name, '0',
      s.quota.bytes .. struct.pack('<ddddd', s.last, s.level, s.prev, first, s.kept + #log / 16))
    local at = (first + s.kept) % size
    while log ~= '' do -- once, or twice where the ring ends
      local part = string.sub(log, 1, 16 * (size - at))
      redis.call('SETRANGE', name, 65 + 16 * at, part)
      log = string.sub(log, #part + 1)
      at = 0
    end
  end
end
