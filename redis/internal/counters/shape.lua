-- The counterpart of limiter/shape.go: the states of a counter that several limits use. The value of such a
-- counter begins with byte 255, which no quota does, then s.cut and when the value expires, 8 bytes each.
-- Each state is the quota that wrote it, 25 bytes, last, level, prev, when it was last in use (taken), and
-- the length of its log, 8 bytes each, and its log.
newShapes = function()
  local min, mostOthers, fractions, largeRatio, convertedEntries = math.min, 3, 1024, 32, 16

  -- When all units of s and of its other states are free: 0 if that is now.
  local function freeAt(s)
    local free = 0
    for _, o in ipairs({s, unpack(s.others or {})}) do
      local reset = o.quota.algorithm.wait(o.quota, o, 0)
      free = reset > 0 and max(free, o.last + reset) or free
    end
    return free
  end

  -- Returns the quota that AppendQuota wrote, or nil.
  local function quotaOf(bytes, settles)
    local kind, a, b, c = read('<Bddd', bytes)
    local q = compile(kind, settles, a, b, c)
    if q then
      q.bytes = bytes
    end
    return q
  end

  -- For how many microseconds the events of q count. Of a calendar, that is the usual length of its windows.
  local function spanOf(q)
    if q.refill then
      return divUp(q.full - (q.queue and q.unit or 0), q.refill)
    elseif q.second then
      local days = q.window / 86400000000
      return (days < 2 and 1 or days < 8 and 7 or days < 33 and 31 or 366) * 86400000000
    end
    return q.window
  end

  -- Calendars have one shape if they have the same unit, and their windows follow each other.
  local function hasShapeOf(q, p)
    if q.second and p.second then
      return spanOf(q) == spanOf(p)
        and (q.first == p.first or q.first == p.second or q.first == p.third
          or p.first == q.second or p.first == q.third)
    end
    return string.byte(q.bytes) == string.byte(p.bytes) and q.window == p.window and q.unit == p.unit
      and q.refill == p.refill and not q.second == not p.second
  end

  local function stateOf(s, q)
    local of = s
    for _, o in ipairs({s, unpack(s.others or {})}) do
      if hasShapeOf(q, o.quota) then
        return o, true
      elseif spanOf(o.quota) > spanOf(of.quota) then
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

  local function convert(q, p, n)
    local by, of = ratioOf(q, p)
    return min(by > 1 and div(n, by) or div(n * of, fractions), q.capacity)
  end

  local function used(q, s, isShared)
    local p = s.quota
    local n = p.algorithm.used(p, s)
    if isShared then
      return n
    end
    local owed = max(0, n - p.capacity)
    return convert(q, p, n - owed) + min(owed, q.capacity)
  end

  -- In how many microseconds at most room units of q are used.
  local function wait(q, s, isShared, room)
    local p = s.quota
    if not isShared then
      local by, of = ratioOf(q, p)
      local whole = convert(q, p, p.capacity)
      if whole <= room then
        room = room + p.capacity - whole
      elseif by > 1 then
        room = (room + 1) * by - 1
      else
        room = div((room + 1) * fractions - 1, of)
      end
    end
    return p.algorithm.wait(p, s, room)
  end

  local function level(q, s, isShared)
    return isShared and s.level or used(q, s) * q.unit
  end

  local function late(q, s, isShared, within)
    local queue = within and level(q, s, isShared) or 0
    if queue == 0 or queue <= within * q.refill then
      return 0
    elseif isShared then
      return divUp(queue, q.refill) - within
    end
    return wait(q, s, false, div(within * q.refill, q.unit))
  end

  -- Returns s as a state of q, with all its entries in the log.
  local function copy(s, q)
    local log = s.kept > 0 and stored(s, 0, s.kept) .. s.log or s.log
    return {
      quota = q, last = s.last, level = s.level, prev = s.prev, log = q.hasEntries and log or '', kept = 0,
      expiry = s.expiry, changed = true, taken = s.taken, over = q == s.quota and s.over or nil,
    }
  end

  local function usedSince(n, age, span)
    return age >= span and n or divUp(n * part(age, span), fractions)
  end

  -- The latest of up to n units of a log, in a window that ends now.
  local function latest(log, window, n)
    local units, kept = 0, ''
    for from = #log - 15, 1, -16 do
      local time, have = read('<dd', log, from)
      if units == n or time <= now - window then
        break
      end
      have = min(have, n - units)
      units = units + have
      kept = pack('<dd', min(now, time), have) .. kept
    end
    return units, kept
  end

  -- How many of n units that s counted within a span were used in the window of now.
  local function inWindow(q, s, n, span)
    local p, start = s.quota, q.algorithm.windowOf(q, now)
    if not p.window then
      return n
    elseif p.logs then
      return (latest(s.log, now - start + 1, s.level))
    end
    local began = p.algorithm.windowOf(p, s.last)
    if began == start then
      return s.level
    end
    return usedSince(n, now - start, p.steps and span or min(span, max(0, now - began)))
  end

  local function converted(q, s)
    local p, c = s.quota, newState(q)
    local used, span = p.algorithm.used(p, s), min(spanOf(p), spanOf(q))
    local owed = max(0, used - p.capacity)
    local n = convert(q, p, used - owed)
    s = copy(s, p)
    c.changed, c.expiry = true, s.expiry
    if n == 0 then
      -- Nothing is used.
    elseif q.logs and p.logs then
      c.level, c.log = latest(s.log, q.window, n)
    elseif q.logs then
      local count = min(n, convertedEntries)
      for i = 0, count - 1 do
        local at = now - min((count - i) * div(span, count), q.window - 1)
        c.log = c.log .. pack('<dd', max(0, at), div(n * (i + 1), count) - div(n * i, count))
      end
      c.level = n
    elseif q.steps and span == q.window then
      c.prev = n
      c.level = n - q.algorithm.used(q, c)
    elseif q.steps then
      c.level = usedSince(n, now % q.window, span)
      c.prev = n - c.level
    elseif q.window then
      c.level = min(n, inWindow(q, s, n, span))
    else
      c.level, c.log = take(q, c, n)
    end
    if owed > 0 then
      q.algorithm.owe(q, c, min(owed, q.capacity))
    end
    return c
  end

  local function adopt(q, s, isShared)
    if not isShared then
      return converted(q, s)
    elseif s.quota.bytes == q.bytes or q.steps and s.prev > q.capacity
        or q.refill and s.last > now and isAhead(q, s, now) or q.second and s.last >= q.second then
      return copy(s, s.quota)
    end
    local c = copy(s, q)
    if q.logs then
      q.algorithm.owe(q, c, 0) -- which pays back
    end
    return c
  end

  -- Returns c, the state after a change under q, with the other states of s, after the same change.
  local function joined(s, c, q, change)
    if not s.others and hasShapeOf(q, s.quota) or freeAt(s) == 0 then
      return c
    end
    local former, others, cut, longest = {s, unpack(s.others or {})}, {}, s.cut or 0, 0
    for _, o in ipairs({{quota = q}, unpack(former)}) do
      local p = o.quota
      longest = max(longest, p.refill and divUp(p.full, p.refill) or spanOf(p))
    end
    for _, o in ipairs(former) do
      local taken = o == s and now or o.taken
      if #others < mostOthers and now - taken <= longest and not hasShapeOf(q, o.quota) then
        o = copy(o, o.quota)
        o.taken = taken
        if not o.over and not change(o) then
          cut = c.last
        end
        others[#others + 1] = o
      end
    end
    if others[1] then
      c.others, c.cut, c.expiry, c.taken = others, cut, s.expiry, nil
    end
    return c
  end

  -- Counts n units in s, as Quota.count, and returns whether all had room.
  local function count(s, n)
    local q = s.quota
    local room = max(0, q.capacity - q.algorithm.used(q, s))
    local fit = n <= room
    n = min(n, q.capacity)
    if q.logs and not fit then
      local left, at, rest = n - room, 1, ''
      while left > 0 do
        local time, units = read('<dd', s.log, at)
        local gone = min(left, units)
        left = left - gone
        s.level = s.level - gone
        rest = gone < units and pack('<dd', time, units - gone) or ''
        at = at + 16
      end
      s.log = rest .. sub(s.log, at)
    else
      n = min(n, room)
    end
    if n > 0 then
      s.level, s.log = take(q, s, n)
    end
    return fit
  end

  -- Returns the states after an event of that cost under q, or nil if it does not fit.
  local function taken(q, s, cost, within)
    local own, isShared = stateOf(s, q)
    if cost == 0 then
      return s
    elseif used(q, own, isShared) + cost > q.capacity or late(q, own, isShared, within) > 0 then
      return nil
    end
    local c = adopt(q, own, isShared)
    c.level, c.log = take(c.quota, c, cost)
    return joined(s, c, q, function(o) return count(o, cost) end)
  end

  -- Returns the states after n units were owed, or refunded if n is below 0.
  local function settled(q, s, n, at)
    if n < 0 then
      local isSafe = (s.cut or 0) == 0 or not q.queue and at > s.cut
      for _, o in ipairs({s, unpack(s.others or {})}) do
        if (isSafe or hasShapeOf(q, o.quota)) and not o.over then
          o.quota.algorithm.refund(o.quota, o, min(-n, o.quota.capacity), at)
        end
      end
      if freeAt(s) == 0 then
        s = newState(q)
      end
      s.changed = true
      return s
    end
    local own, isShared = stateOf(s, q)
    local c
    if own.over or q.capacity >= own.quota.capacity or not isShared or used(q, own, true) <= q.capacity then
      c = adopt(q, own, isShared)
    else
      c = copy(own, own.quota)
    end
    local function owe(o)
      o.quota.algorithm.owe(o.quota, o, min(n, 2 * o.quota.capacity))
      return true
    end
    owe(c)
    return joined(s, c, q, owe)
  end

  -- What a reply has in place of a state that q did not write, as reply.go reads it.
  local function describe(q, s, cost, fits, within)
    local own, isShared = stateOf(s, q)
    local free = max(0, q.capacity - used(q, own, isShared))
    local nextAfter, retryAfter, resetAfter, delay = 0, 0, 0, 0
    if free < q.capacity then
      nextAfter = wait(q, own, isShared, q.capacity - free - 1)
      resetAfter = wait(q, own, isShared, 0)
    end
    if not fits and cost <= q.capacity then
      retryAfter = max(1, wait(q, own, isShared, q.capacity - cost), late(q, own, isShared, within))
    elseif fits and q.queue then
      delay = divUp(max(0, level(q, own, isShared) - cost * q.unit), q.refill)
    end
    return pack('<ddddd', free, nextAfter, retryAfter, resetAfter, delay)
  end

  local function encode(s, expiry)
    local value = '\255' .. pack('<dd', s.cut, expiry)
    for _, o in ipairs({s, unpack(s.others)}) do
      o = copy(o, o.quota)
      local numbers = o.over or o
      value = value .. o.quota.bytes .. pack('<ddddd', numbers.last, numbers.level, o.prev, o.taken or 0, #o.log)
        .. o.log
    end
    return value
  end

  -- Returns the states in a value, for a charge under q, or nil if it has another format.
  local function decode(value, q)
    local at, found, o = 18, {}
    while at == 18 or at <= #value do
      local p = at + 64 <= #value and quotaOf(sub(value, at, at + 24), q.settles)
      if not p then
        return nil
      end
      local length
      o = newState(p)
      o.last, o.level, o.prev, o.taken, length = read('<ddddd', value, at + 25)
      o.expiry, o.log = read('<d', value, 10), sub(value, at + 65, at + 64 + length)
      if #o.log ~= length or length % 16 ~= 0 then
        return nil
      end
      at = at + 65 + length
      local early = o.last > now and isAhead(p, o, now)
      if not p.second or not early and (now < p.second or now < p.third and o.level > p.capacity) then
        if early then
          o.last, o.level, o.prev, o.log = now, 0, 0, ''
        elseif p.second and now >= p.second then
          o.over = {last = o.last, level = o.level} -- stored until another limit adopts the state
        end
        p.algorithm.advance(p, o, max(now, o.last))
        found[#found + 1] = o
      end
    end
    local s = found[1] or newState(q)
    s.taken = nil
    if found[2] then
      s.cut, s.others = read('<d', value, 2), {unpack(found, 2)}
    end
    return s
  end

  -- Returns the state in a value that q did not write. A value in another format is foreign, and has no quota: it is
  -- left as it is.
  local function loadOther(name, value, q)
    local bytes, s = sub(value, 1, 25), nil
    if string.byte(value) == 255 then
      s = decode(#value == 217 and call('GET', name) or value, q) -- of 217 bytes, it may be the beginning alone
    elseif #value >= 57 and bytes ~= q.bytes then
      local p = quotaOf(bytes, q.settles)
      s = p and load(newState(p), name, value, p)
      if s and p.second and now >= p.second then
        local last, level = read('<dd', value, 26)
        s.over = {last = last, level = level}
      end
    end
    if not s then
      s = newState(false)
      s.foreign = true
    end
    return s
  end

  return {
    describe = describe, encode = encode, freeAt = freeAt, load = loadOther, settled = settled, stateOf = stateOf,
    taken = taken,
  }
end
