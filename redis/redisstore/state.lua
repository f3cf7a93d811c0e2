-- States of counters. A counter's value is the quota under which it was written, 25 bytes, its state, 24,
-- and when it expires, 8. A long log has its ring in place of the expiry: log.lua. Other logs, and buckets
-- that settle, have their entries at the end, 16 bytes each. shape.lua has the form of several states. The name of a
-- key has the version of this format.

-- Adds owed units to s, or refunds units if owed is below 0.
local function correct(s, owed, at)
  local q = s.quota
  s.changed = true
  if owed > 0 then
    q.algorithm.owe(q, s, math.min(owed, 2 * q.capacity))
  else
    q.algorithm.refund(q, s, math.min(-owed, q.capacity), at)
  end
end

-- Makes the functions for groups that are not plain, which most batches do not need.
local function newStates(now)
  local pack, read, sub, byte, max, call = struct.pack, struct.unpack, string.sub, string.byte, math.max, redis.call

  local function clear(s)
    s.last, s.level, s.prev, s.log, s.kept, s.expiry = now, 0, 0, '', 0, 0
    s.others, s.cut, s.over, s.rewritten = nil, nil, nil, true -- a ring in Redis no longer counts
  end

  --[[shape.lua]]
  local shapes -- once they are needed

  local function new(q)
    return {quota = q, last = now, level = 0, prev = 0, log = '', kept = 0, expiry = 0, changed = false}
  end

  local function isFree(s)
    return s.level == 0 and s.prev == 0 or s.quota.algorithm.resetAfter(s.quota, s) <= 0
  end

  -- The functions for counters that several limits use.
  local function many()
    shapes = shapes or newShapes(now, {new = new, isFree = isFree})
    return shapes
  end

  -- Returns the state of a counter at the present, which is never before its own past. It has the fields of
  -- all algorithms, its quota, when the value expires, or 0, and whether to write it. Without a value, all
  -- units are free. A value in another format is foreign: it is left as it is.
  local function load(name, value, q)
    if not value then
      return new(q)
    end
    if byte(value) == 255 then
      if #value == 217 then
        value = call('GET', name) -- only the beginning was read
      end
      local s = many().decode(value, q)
      if s then
        return s
      end
      return {quota = q, last = now, level = 0, prev = 0, log = '', kept = 0, expiry = 0, foreign = true}
    end
    local own, size, bytes = q, #value, sub(value, 1, 25)
    if bytes ~= q.bytes and size >= 57 then
      local kind, a, b, c = read('<Bddd', bytes)
      local algorithm, settles = algorithmOf(kind, q.settles), q.settles
      q = algorithm and algorithm.compile(a, b, c)
      if q then
        q.algorithm, q.bytes, q.settles = algorithm, bytes, settles
      end
    end
    if not q or size < 57 or q.isLong and size < 65 or q.hasEntries and not q.isLong and size % 16 ~= 9 then
      return {quota = own, last = now, level = 0, prev = 0, log = '', kept = 0, expiry = 0, foreign = true}
    end
    local s
    if q.isLong then
      if not longLogs then
        makeLongLogs()
      end
      s = longLogs.load(q, name, value)
    else
      local last, level, prev, expiry = read('<dddd', value, 26)
      local log = q.hasEntries and sub(value, 58) or ''
      s = {quota = q, last = last, level = level, prev = prev, log = log, kept = 0, expiry = expiry, changed = false}
    end
    if s.last > now and q.algorithm.isAhead(q, s, now) then
      clear(s)
    end
    if q.calendar and now >= q.second then
      s.over = {last = s.last, level = s.level} -- what is stored stays of that window
    end
    q.algorithm.advance(q, s, max(now, s.last))
    return s
  end

  -- Writes the state of a key that had that value. Value and expiry go together: a key lives at least
  -- until all its units are free again.
  local function write(name, s, value)
    if s.foreign then
      if call('PTTL', name) == -1 then
        call('PEXPIRE', name, 3600000)
      end
      return
    end
    if not s.changed then
      if not value or call('PTTL', name) ~= -1 then
        return
      end
      s.expiry = 0 -- it was taken away
    end
    local q, expiry, life, free = s.quota, s.expiry, false, 0
    for _, o in ipairs({s, unpack(s.others or {})}) do
      if not isFree(o) then
        free = max(free, o.last + o.quota.algorithm.resetAfter(o.quota, o))
      end
    end
    if free == 0 then
      call('DEL', name)
      return
    end
    if free > expiry then
      expiry = expiryOf(free, now)
      life = lifeUntil(expiry, now)
    end
    if s.others then
      put(name, many().encode(s, expiry), life)
    elseif q.isLong then
      if not longLogs then
        makeLongLogs()
      end
      longLogs.save(s, name)
      call('PEXPIRE', name, life or lifeUntil(expiry, now))
    else
      local over = s.over or s
      put(name, q.bytes .. pack('<dddd', over.last, over.level, s.prev, expiry) .. s.log, life, value and not s.rewritten and #value)
    end
  end

  return load, many, isFree, clear, write
end
