-- The counterpart of limiter/shape.go: states of a counter that several limits use. A value with several
-- states begins with byte 255, which no quota does, then cut and when the value expires, 8 bytes each. Each state is
-- the quota under which it was written, 25 bytes, its numbers, when it was last in use, and the length of its log, 8
-- bytes each, and its log.
local function newShapes(now, states)
  local pack, read, sub, byte, max, min = struct.pack, struct.unpack, string.sub, string.byte, math.max, math.min
  local mostOthers, fractions, largeRatio, convertedEntries = 3, 1024, 32, 16
  local isFree = states.isFree

  local function isOver(s)
    return s.over or s.quota.calendar and s.last >= s.quota.second
  end


  local function spanOf(q)
    if q.unit then
      if byte(q.bytes) == 2 then
        return divUp((q.capacity - 1) * q.unit, q.refill)
      end
      return divUp(q.full, q.refill)
    elseif q.calendar then
      local days = (q.second - q.first) / 86400000000
      return (days < 2 and 1 or days < 8 and 7 or days < 33 and 31 or 366) * 86400000000
    end
    return q.window
  end

  local function hasShapeOf(q, p)
    if byte(q.bytes) ~= byte(p.bytes) or not q.calendar ~= not p.calendar then
      return false
    elseif q.unit then
      return q.unit == p.unit and q.refill == p.refill
    elseif q.calendar then -- windows that follow each other
      return spanOf(q) == spanOf(p) and (q.first == p.first and q.second == p.second or q.first == p.second and q.second == p.third
        or p.first == q.second and p.second == q.third or p.first == q.third)
    end
    return q.window == p.window
  end

  -- As Quota.Window.
  local function windowLength(q)
    return q.unit and divUp(q.full, q.refill) or spanOf(q)
  end

  -- Moves a long log's entries to s.log.
  local function gather(s)
    if s.kept > 0 then
      s.log = stored(s, 0, s.kept) .. s.log
      s.kept = 0
    end
  end

  local function copy(s, q)
    gather(s)
    return {
      quota = q or s.quota, last = s.last, level = s.level, prev = s.prev, log = s.log, kept = 0, first = 0,
      expiry = s.expiry, changed = true, rewritten = true, taken = s.taken, over = not q and s.over,
    }
  end

  local function usedOf(s)
    local q = s.quota
    local used = q.capacity - q.algorithm.remaining(q, s)
    return q.step and min(used, 2 * q.capacity) or used
  end

  local function stateOf(s, q)
    if hasShapeOf(q, s.quota) then
      return s, true
    end
    local of = s
    for _, o in ipairs(s.others or {}) do
      if hasShapeOf(q, o.quota) then
        return o, true
      end
      if spanOf(o.quota) > spanOf(of.quota) then
        of = o
      end
    end
    return of, false
  end

  local function part(a, b)
    if b > 1099511627776 then
      return min(div(a, div(b, fractions)), fractions)
    end
    return div(a * fractions, b)
  end

  local function ratioOf(q, p)
    local to, from = spanOf(q), spanOf(p)
    if to >= from - div(from, largeRatio) or to == 0 or p.capacity <= q.capacity then
      return 1, fractions
    elseif div(from, to) >= largeRatio then
      return div(from, to), 0
    end
    return 1, part(to, from)
  end

  local function convertBy(by, of, n)
    if by > 1 then
      return div(n, by)
    end
    return div(n * of, fractions)
  end

  local function convertedUnits(q, p, used)
    local owed = max(0, used - p.capacity)
    local by, of = ratioOf(q, p)
    return min(convertBy(by, of, used - owed), q.capacity) + min(owed, q.capacity)
  end

  -- How many units of p may be used for so many of q.
  local function roomUnder(q, p, room, isShared)
    if isShared then
      return room
    end
    local by, of = ratioOf(q, p)
    local whole = min(convertBy(by, of, p.capacity), q.capacity)
    if whole <= room then
      return room + p.capacity - whole
    elseif by > 1 then
      return (room + 1) * by - 1
    end
    return div((room + 1) * fractions - 1, of)
  end

  local function usedBy(q, s, isShared)
    if isShared then
      return usedOf(s)
    end
    return convertedUnits(q, s.quota, usedOf(s))
  end

  local function windowOf(q, t)
    if not q.calendar then
      return t - t % q.window, t - t % q.window + q.window, t - t % q.window + 2 * q.window
    elseif t < q.second then
      return q.first, q.second, q.third
    end
    return q.second, q.third, q.third + q.window
  end

  local function usedSince(n, age, span)
    if age >= span then
      return n
    end
    return divUp(n * part(age, span), fractions)
  end

  local function inWindow(c, s, n, span)
    local start, p = windowOf(c.quota, c.last), s.quota
    if p.unit then
      return n
    elseif p.algorithm.isLog then
      local used = 0
      for at = 1, #s.log, 16 do
        local time, units = read('<dd', s.log, at)
        if time >= start then
          used = used + units
        end
      end
      return used
    end
    local began = windowOf(p, s.last)
    if began == start then
      return s.level
    elseif byte(p.bytes) == 3 then
      span = min(span, max(0, c.last - began))
    end
    return usedSince(n, c.last - start, span)
  end

  local function latest(log, window, n)
    local units, from, kept = 0, #log + 1, ''
    while from > 1 and units < n do
      local time, have = read('<dd', log, from - 16)
      if time <= now - window then
        break
      end
      have = min(have, n - units)
      units = units + have
      from = from - 16
      kept = pack('<dd', min(now, time), have) .. kept
    end
    return units, kept
  end

  local function take(s, n)
    local level, log = s.quota.algorithm.take(s.quota, s, n)
    s.level, s.log = level, log or s.log
  end

  local function converted(q, s)
    local p, used = s.quota, usedOf(s)
    local owed = max(0, used - p.capacity)
    local by, of = ratioOf(q, p)
    local n, span = min(convertBy(by, of, used - owed), q.capacity), min(spanOf(p), spanOf(q))
    local c = states.new(q)
    c.changed, c.rewritten, c.first, c.expiry = true, true, 0, s.expiry
    gather(s)
    if n == 0 then
      -- Nothing is used.
    elseif q.algorithm.isLog and p.algorithm.isLog then
      c.level, c.log = latest(s.log, q.window, n)
    elseif q.algorithm.isLog then
      local count = min(n, convertedEntries)
      for i = 0, count - 1 do
        local at = now - min((count - i) * div(span, count), q.window - 1)
        c.log = c.log .. pack('<dd', max(0, at), div(n * (i + 1), count) - div(n * i, count))
      end
      c.level = n
    elseif byte(q.bytes) == 5 and span == q.window then
      c.prev = n
      c.level = n - usedOf(c)
    elseif byte(q.bytes) == 5 then
      c.level = usedSince(n, now % q.window, span)
      c.prev = n - c.level
    elseif q.window then
      c.level = min(n, inWindow(c, s, n, span))
    else
      take(c, n)
    end
    if owed > 0 then
      q.algorithm.owe(q, c, min(owed, q.capacity))
    end
    return c
  end

  local function adopt(q, s, isShared)
    local p = s.quota
    if not isShared then
      return converted(q, s)
    elseif p.bytes == q.bytes or byte(q.bytes) == 5 and s.prev > q.capacity
        or q.unit and s.last > now and q.algorithm.isAhead(q, s, now) or q.calendar and s.last >= q.second then
      return copy(s)
    end
    local c = copy(s, q)
    if q.algorithm.isLog then
      local paid = min(q.capacity - (c.level - c.prev), c.prev)
      if paid > 0 then
        c.prev = c.prev - paid
        c.log = c.log .. pack('<dd', c.last, paid)
      end
    end
    return c
  end

  local function areFree(s)
    for _, o in ipairs(s.others or {}) do
      if not isFree(o) then
        return false
      end
    end
    return isFree(s)
  end

  local function joined(s, c, q, change)
    if not s.others and hasShapeOf(q, s.quota) or areFree(s) then
      return c
    end
    local longest = max(windowLength(q), windowLength(s.quota))
    for _, o in ipairs(s.others or {}) do
      longest = max(longest, windowLength(o.quota))
    end
    local others, cut = {}, s.cut or 0
    local function keep(o, taken)
      if #others == mostOthers or now - taken > longest or hasShapeOf(q, o.quota) then
        return
      end
      o = copy(o)
      o.taken = taken
      if not isOver(o) and not change(o) then
        cut = c.last
      end
      others[#others + 1] = o
    end
    keep(s, now)
    for _, o in ipairs(s.others or {}) do
      keep(o, o.taken)
    end
    if #others > 0 then
      c.others, c.cut, c.expiry, c.taken = others, cut, s.expiry, nil
    end
    return c
  end

  -- Counts n units in s, as Quota.count, and returns whether all had room.
  local function count(s, n)
    local q = s.quota
    local room = max(0, q.capacity - usedOf(s))
    local fit = n <= room
    n = min(n, q.capacity)
    if not fit and q.algorithm.isLog then
      local left, at = n - room, 1
      while left > 0 do
        local time, units = read('<dd', s.log, at)
        local gone = min(left, units)
        left = left - gone
        s.level = s.level - gone
        at = at + 16
        if gone < units then
          at = at - 16
          s.log = sub(s.log, 1, at - 1) .. pack('<dd', time, units - gone) .. sub(s.log, at + 16)
        end
      end
      s.log = sub(s.log, at) .. pack('<dd', s.last, n)
      s.level = s.level + n
      return fit
    end
    n = min(n, room)
    if n > 0 then
      take(s, n)
    end
    return fit
  end

  -- How far into a window the share of the previous count is at most room.
  local function faded(q, prev, room)
    if byte(q.bytes) ~= 5 or prev <= room then
      return 0
    end
    return min((q.steps - div((room + 1) * q.steps - 1, prev)) * q.step, q.window)
  end

  -- In how many microseconds at most room units are used.
  local function untilUsed(s, room)
    local q = s.quota
    if q.unit then
      return divUp(max(0, s.level - room * q.unit), q.refill)
    elseif q.algorithm.isLog and s.level <= room then
      return 0
    elseif q.algorithm.isLog then
      local time, rounds = q.algorithm.find(s, s.level - room)
      return time + rounds * q.window - s.last
    end
    local start, finish, followedTo = windowOf(q, s.last)
    local elapsed, owed = s.last - start, max(0, s.level - q.capacity)
    if s.level <= room then
      return faded(q, s.prev, room - s.level) - elapsed
    elseif owed <= room then
      return finish - s.last + faded(q, s.level - owed, room - owed)
    end
    return followedTo - s.last + faded(q, owed, room)
  end

  -- As Quota.late. In how many microseconds the queue of q is no longer than within, if that is not false.
  local function lateness(s, isShared, q, within)
    if not within then
      return 0
    end
    local level = isShared and s.level or usedBy(q, s, isShared) * q.unit
    if level <= within * q.refill then
      return 0
    elseif isShared then
      return divUp(level, q.refill) - within
    end
    return untilUsed(s, roomUnder(q, s.quota, div(within * q.refill, q.unit), isShared))
  end

  -- Whether an event of that cost fits under q, and the states after it.
  local function taken(s, q, cost, within)
    local own, isShared = stateOf(s, q)
    if cost > 0 and lateness(own, isShared, q, within) > 0 then
      return false
    end
    if cost == 0 or cost > q.capacity or usedBy(q, own, isShared) + cost > q.capacity then
      return cost == 0
    end
    local c = adopt(q, own, isShared)
    if c.quota.bytes == q.bytes then
      c.quota = q
    end
    local level, log = c.level, c.log
    if q.unit then
      level, log = q.algorithm.take({capacity = 0, unit = q.unit, full = 2 * q.full + cost * q.unit}, c, cost)
    elseif q.algorithm.isLog then
      level, log = level + cost, log .. pack('<dd', c.last, cost)
    else
      level = level + cost
    end
    c.level, c.log = level, log or c.log
    return true, joined(s, c, q, function(o) return count(o, cost) end)
  end

  -- The states after units were owed, or refunded if owed is below 0.
  local function settled(s, q, owed, at)
    if owed < 0 then
      local cut, parts = s.cut or 0, {s, unpack(s.others or {})}
      local isSafe = cut == 0 or byte(q.bytes) ~= 2 and at > cut
      for _, o in ipairs(parts) do
        if (isSafe or hasShapeOf(q, o.quota)) and not isOver(o) then
          o.quota.algorithm.refund(o.quota, o, min(-owed, o.quota.capacity), at)
        end
      end
      s.changed = true
      return s
    end
    local own, isShared = stateOf(s, q)
    local c
    if isOver(own) or q.capacity >= own.quota.capacity or not isShared or usedOf(own) <= q.capacity then
      c = adopt(q, own, isShared)
    else
      c = copy(own)
    end
    local function owe(o)
      o.quota.algorithm.owe(o.quota, o, min(owed, 2 * o.quota.capacity))
      return true
    end
    owe(c)
    return joined(s, c, q, owe)
  end

  -- What an answer has in place of a state that q did not write, as answer.go reads it.
  local function describe(s, isShared, q, cost, fits, within)
    local p, used = s.quota, usedBy(q, s, isShared)
    local free, nextAfter, retryAfter, resetAfter, delay = max(0, q.capacity - used), 0, 0, 0, 0
    if free < q.capacity then
      nextAfter = untilUsed(s, roomUnder(q, p, q.capacity - free - 1, isShared))
      if isShared then
        resetAfter = p.algorithm.resetAfter(p, s)
      else
        resetAfter = untilUsed(s, roomUnder(q, p, 0, isShared))
      end
    end
    if not fits and cost <= q.capacity then
      retryAfter = max(1, untilUsed(s, roomUnder(q, p, q.capacity - cost, isShared)), lateness(s, isShared, q, within))
    elseif fits and byte(q.bytes) == 2 then
      local level = isShared and s.level or used * q.unit
      delay = divUp(max(0, level - cost * q.unit), q.refill)
    end
    return pack('<ddddd', free, nextAfter, retryAfter, resetAfter, delay)
  end

  -- The value of several states that expires then.
  local function encode(s, expiry)
    local value = '\255' .. pack('<dd', s.cut, expiry)
    for _, o in ipairs({s, unpack(s.others)}) do
      gather(o)
      local over = o.over or o
      value = value .. o.quota.bytes .. pack('<ddddd', over.last, over.level, o.prev, o.taken or 0, #o.log) .. o.log
    end
    return value
  end

  -- The states in a value of several, under the settles of q; nil if the value is foreign.
  local function decode(value, q)
    local size = #value
    if size < 17 + 65 then
      return nil
    end
    local cut, expiry, at = read('<dd', value, 2)
    local found = {}
    while at <= size do
      if at + 64 > size then
        return nil
      end
      local kind, a, b, c = read('<Bddd', value, at)
      local algorithm = algorithmOf(kind, q.settles)
      local o = {kept = 0, first = 0, expiry = expiry, changed = false, rewritten = true}
      local length
      o.last, o.level, o.prev, o.taken, length = read('<ddddd', value, at + 25)
      if not algorithm or length < 0 or length % 16 ~= 0 or at + 64 + length > size then
        return nil
      end
      local p = algorithm.compile(a, b, c)
      p.algorithm, p.bytes, p.settles = algorithm, sub(value, at, at + 24), q.settles
      o.quota, o.log = p, sub(value, at + 65, at + 64 + length)
      at = at + 65 + length
      local isGone = false
      if o.last > now and algorithm.isAhead(p, o, now) then
        isGone = p.calendar
        o.last, o.level, o.prev, o.log = now, 0, 0, ''
      elseif p.calendar and now >= p.second then
        isGone = now >= p.third or o.level <= p.capacity
        o.over = {last = o.last, level = o.level}
      end
      if not isGone then
        algorithm.advance(p, o, max(now, o.last))
        found[#found + 1] = o
      end
    end
    local s = found[1]
    if not s then
      s = states.new(q)
      s.rewritten = true
      return s
    end
    s.taken = nil
    if #found > 1 then
      s.cut, s.others = cut, {unpack(found, 2)}
    end
    return s
  end

  return {
    areFree = areFree, decode = decode, describe = describe, encode = encode, settled = settled, stateOf = stateOf,
    taken = taken,
  }
end
