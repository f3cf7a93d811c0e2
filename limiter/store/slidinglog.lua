-- The counterpart of slidinglog.go. s.log has the entries, 16 bytes each: a time and the units. The s.kept oldest
-- entries of a long log are not in it, but in a ring, from the entry at s.first on: stored(s, i, n) returns n of them,
-- from the one at i on, from 0.
local stored -- the store's
local function newLog()
  local function entry(s, i)
    if i < s.kept then
      return read('<dd', stored(s, i, 1))
    end
    return read('<dd', s.log, 16 * (i - s.kept) + 1)
  end

  -- How many of the first n entries are no later than t.
  local function entriesUpTo(s, t, n)
    local low, high = 0, n
    while low < high do
      local middle = div(low + high, 2)
      if entry(s, middle) <= t then
        low = middle + 1
      else
        high = middle
      end
    end
    return low
  end

  -- Returns the log with up to n owed units as an entry of time t.
  local function payBack(s, log, t, n)
    local paid = math.min(n, s.prev)
    if paid <= 0 then
      return log
    end
    s.prev = s.prev - paid
    return log .. pack('<dd', t, paid)
  end

  -- The time of the entry in which that unit of the level is, and for how many windows it counts from then on. This
  -- reads as many entries as there are units before it, at most, or the last entry.
  local function find(s, unit)
    local inEntries, rounds = s.level - s.prev, 1
    if unit > inEntries then
      unit = unit - inEntries -- owed units take the room of the entries, and last another period
      rounds = 2
    end
    local log = s.log
    if unit >= inEntries then
      log = log ~= '' and log or stored(s, s.kept - 1, 1)
      return read('<d', log, #log - 15), rounds
    elseif s.kept > 0 then
      log = stored(s, 0, math.min(unit, s.kept)) .. (unit > s.kept and log or '')
    end
    local at, time, units = 1, nil, nil
    repeat
      time, units, at = read('<dd', log, at)
      unit = unit - units
    until unit <= 0 or at > #log
    return time, rounds
  end

  return {
    compile = function(capacity, window)
      local q = {
        algorithm = false, bytes = false, capacity = capacity, unit = 1, full = capacity, window = window, logs = true,
        hasEntries = true,
      }
      if capacity > 10 then
        q.isLong = true
      end
      return q
    end,

    advance = function(q, s, t)
      s.last = t
      local gone = t - q.window -- an event at e counts in [e, e+window)
      local log, at = s.log, 1
      if s.kept > 0 then
        if entry(s, 0) > gone then
          return
        end
        local old = entriesUpTo(s, gone, s.kept)
        if old < s.kept or log ~= '' or s.prev > 0 then -- otherwise all are gone, unread
          log = stored(s, 0, old) .. log
        end
        s.first = (s.first + old) % q.capacity
        s.kept = s.kept - old
      end
      while at < #log do -- which payBack makes longer
        local time, units = read('<dd', log, at)
        if time > gone then
          break
        end
        s.level = s.level - units
        log = payBack(s, log, time + q.window, units)
        at = at + 16
      end
      s.log = sub(log, at)
      if s.kept == 0 and s.log == '' then
        s.level, s.prev = 0, 0 -- as it is, unless something was cut off
      end
    end,

    used = function(_, s)
      return s.level
    end,

    record = function(s, cost)
      return s.log .. pack('<dd', s.last, cost)
    end,

    owe = function(q, s, n)
      local owed = math.max(0, math.min(n, 2 * q.capacity - s.level))
      s.level = s.level + owed
      s.prev = s.prev + owed
      s.log = payBack(s, s.log, s.last, q.capacity - (s.level - s.prev))
    end,

    refund = function(q, s, n, at)
      local left, past = n, s.kept + #s.log / 16 -- the entries that it may be of are those before this one
      local from = math.max(0, past - n) -- and from this one on
      if at == 0 then
        local owed = math.min(left, s.prev)
        s.prev = s.prev - owed
        left = left - owed
      else
        past = entriesUpTo(s, at, past)
        from = entriesUpTo(s, at - 1, past)
      end
      if from < past and from < s.kept then
        s.log = stored(s, from, s.kept - from) .. s.log
        s.kept = from
      end
      for i = past - 1, from, -1 do
        if left == 0 then
          break
        end
        local first = 16 * (i - s.kept) + 1
        local time, units = read('<dd', s.log, first)
        local back = math.min(left, units)
        left = left - back
        local rest = units > back and pack('<dd', time, units - back) or ''
        s.log = sub(s.log, 1, first - 1) .. rest .. sub(s.log, first + 16)
      end
      s.level = s.level - (n - left)
      s.log = payBack(s, s.log, s.last, q.capacity - (s.level - s.prev))
    end,

    wait = function(q, s, room)
      if s.level <= room then
        return 0
      end
      local time, rounds = find(s, s.level - room)
      return time + rounds * q.window - s.last
    end,

    -- The times of the entries that an answer about an event of that cost needs: of the one that has to go for the next
    -- unit, for the event, and for all.
    times = function(q, s, cost)
      if s.level == 0 then
        return 0, 0, 0
      end
      local one, all = find(s, math.max(1, s.level + 1 - q.capacity)), find(s, s.level)
      local inTheWay = s.level + cost - q.capacity
      if inTheWay <= 1 or cost > q.capacity then
        return one, one, all
      end
      local event = find(s, inTheWay)
      return one, event, all
    end,
  }
end
