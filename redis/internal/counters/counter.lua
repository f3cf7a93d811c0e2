-- Reads and writes counters, as of now, the server's time. Most values have one state: the limit that wrote
-- it in 25 bytes, last, level and prev, and when the value expires, 8 bytes each. Then logs and buckets
-- that settle have their entries, 16 bytes each. A long log has a ring of entries, and in place of the
-- expiry the index of the oldest entry (s.first) and their number. shape.lua has the form of several
-- states. Keys have the version of this format in their names.
local rep, max, call = string.rep, math.max, redis.call
local clock = redis.call('TIME')
local now = clock[1] * 1000000 + clock[2]

-- Returns the quotas that AppendQuotas wrote from at on, where what follows them begins, and whether some
-- have logs, and long ones.
local function readQuotas(request, count, at)
  local quotas, hasLogs, hasLongLogs = {false}, false, false
  for i = 1, count do
    local kind, a, b, c, settles = read('<BdddB', request, at)
    local q = compile(kind, settles == 1, a, b, c)
    q.bytes = sub(request, at, at + 24)
    if q.second and (now < q.first or now >= q.second) then
      error(string.format('WEIROUTOFDATE %.0f', now))
    end
    hasLogs, hasLongLogs = hasLogs or q.logs, hasLongLogs or q.isLong
    quotas[i] = q
    at = at + 26
  end
  return quotas, at, hasLogs, hasLongLogs
end

-- Returns the values of keys: false if there is none, and for another type a text that is no counter. If
-- there are long logs, it reads no more of a value than what is before a ring.
local function readValues(names, hasLongLogs)
  local values
  if hasLongLogs then
    values = {}
    for i = 1, #names do
      local value = redis.pcall('GETRANGE', names[i], '0', '216')
      if type(value) == 'table' then
        if not string.find(value.err, 'WRONGTYPE', 1, true) then
          error(value.err) -- not to be taken for a key without a value
        end
        value = ''
      end
      values[i] = value ~= '' and value
    end
  else
    values = call('MGET', unpack(names))
  end
  local unused = {}
  for i = 1, #names do
    if not values[i] then
      unused[#unused + 1] = names[i]
    end
  end
  if unused[1] and call('EXISTS', unpack(unused)) > 0 then
    for i = 1, #names do
      values[i] = values[i] or call('EXISTS', names[i]) == 1 and 'something else'
    end
  end
  return values
end

stored = function(s, i, n)
  local size = s.quota.capacity
  local first = (s.first + i) % size
  local past = first + n
  local entries = call('GETRANGE', s.name, 65 + 16 * first, 64 + 16 * math.min(past, size))
  if past > size then
    entries = entries .. call('GETRANGE', s.name, '65', 64 + 16 * (past - size))
  end
  if #entries < 16 * n then -- it was cut off
    entries = entries .. rep('\0', 16 * n - #entries)
  end
  return entries
end

-- Without a value, all units are free.
local function newState(q)
  return {quota = q, last = now, level = 0, prev = 0, log = '', kept = 0, expiry = 0, changed = false}
end

local shapes -- made for the first value that no quota of the batch has written
local newShapes

-- Returns the state of a counter for a charge under q, at the present, which is never before its own past. That is s,
-- if s suffices: a state whose fields are those of newState, and which nobody needs any more. It has the fields of all
-- algorithms, its quota, when the value expires, and whether it was changed.
local function load(s, name, value, q)
  s.quota = q
  s.changed = false
  if not value then
    s.last, s.level, s.prev, s.log, s.expiry = now, 0, 0, '', 0
    return s
  end
  local size, isLong = #value, q.isLong
  if sub(value, 1, 25) ~= q.bytes or size < 57 or isLong and size < 65
      or q.hasEntries and not isLong and size % 16 ~= 9 then
    shapes = shapes or newShapes()
    return shapes.load(name, value, q)
  end
  s.last, s.level, s.prev, s.expiry = read('<dddd', value, 26)
  s.log = ''
  if isLong then
    s = newState(q)
    local first, kept
    s.last, s.level, s.prev, first, kept = read('<ddddd', value, 26)
    s.name, s.first, s.kept = name, max(0, math.min(first, q.capacity - 1)), max(0, math.min(kept, q.capacity))
  elseif q.hasEntries then
    s.log = sub(value, 58)
  end
  local t = now
  if s.last > t then
    if isAhead(q, s, t) then
      return newState(q)
    end
    t = s.last
  end
  q.algorithm.advance(q, s, t)
  return s
end

-- Stores s in place of an old value. A key lives at least until all units are free. To set an expiry costs more than
-- all else, so it is late enough for the next events too.
local function save(s, name, old)
  if not s.changed then
    if not old or call('PTTL', name) ~= -1 then
      return
    elseif s.foreign then
      call('PEXPIRE', name, 3600000)
      return
    end
    s.expiry = 0 -- it was taken away
  end
  local q, expiry, life = s.quota, s.expiry, nil
  local free = q.algorithm.wait(q, s, 0)
  if s.others then
    free = shapes.freeAt(s)
  elseif free > 0 then
    free = s.last + free
  end
  if free <= 0 then
    call('DEL', name)
    return
  elseif free > expiry or q.isLong then
    expiry = free + max(div(free - now, 2), 5000000)
    life = divUp(expiry - now, 1000) + 1 -- as Redis counts from when the script began
  end
  local value
  if s.others then
    value = shapes.encode(s, expiry)
  elseif q.isLong then
    if old and sub(old, 1, 25) ~= q.bytes then
      call('DEL', name)
    end
    local size, log, first = q.capacity, s.log, s.first or 0
    local at = (first + s.kept) % size
    call('SETRANGE', name, '0', q.bytes .. pack('<ddddd', s.last, s.level, s.prev, first, s.kept + #log / 16))
    while log ~= '' do -- once, or twice where the ring ends
      local part = sub(log, 1, 16 * (size - at))
      call('SETRANGE', name, 65 + 16 * at, part)
      log = sub(log, #part + 1)
      at = 0
    end
    call('PEXPIRE', name, life)
    return
  else
    local numbers = s.over or s
    value = q.bytes .. pack('<dddd', numbers.last, numbers.level, s.prev, expiry) .. s.log
  end
  if life then
    call('SET', name, value, 'PX', life)
  elseif #value == #old and #old < 217 then -- all of the old value is known
    call('SETRANGE', name, '0', value)
  else
    call('SET', name, value, 'KEEPTTL')
  end
end
