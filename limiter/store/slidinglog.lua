-- The counterpart of slidinglog.go.
--
-- s.log is the entries as a string, 16 bytes each: a time and the units. Of a long log the
-- s.kept oldest are not in it, but where the store has them: stored(s, i, n) is such a string of
-- n of these, from the one at i on, from 0. forget(s, n) takes the oldest n out of them.
local read, pack, sub = struct.unpack, struct.pack, string.sub

local function entry(s, i)
  if i < s.kept then
    return read('<dd', stored(s, i, 1))
  end
  return read('<dd', s.log, 16 * (i - s.kept) + 1)
end

local function count(s)
  return s.kept + #s.log / 16
end

-- How many entries of the first n are no later than t.
local function upTo(s, t, n)
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

-- The log with up to n units, of those that are owed, as an entry of time t.
local function payBack(s, log, t, n)
  local paid = math.min(n, s.prev)
  if paid <= 0 then
    return log
  end
  s.prev = s.prev - paid
  return log .. pack('<dd', t, paid)
end

-- The time of the entry in which that unit of the level is, and for how many windows it counts
-- from then on. This looks at no more entries than there are units before it, or at the last.
local function find(s, unit)
  local inEntries, rounds = s.level - s.prev, 1
  if unit > inEntries then
    unit = unit - inEntries -- what is owed takes the room of the entries, and lasts as long
    rounds = 2
  end
  if unit >= inEntries then
    local newest = entry(s, count(s) - 1)
    return newest, rounds
  end
  local log = s.log
  if s.kept > 0 then
    log = stored(s, 0, math.min(unit, s.kept))
    if unit > s.kept then
      log = log .. s.log
    end
  end
  local time, units
  for at = 1, #log, 16 do
    time, units = read('<dd', log, at)
    unit = unit - units
    if unit <= 0 then
      break
    end
  end
  return time, rounds
end

return {
  isLog = true,
  find = find,

  compile = function(capacity, window)
    return {
      algorithm = false, bytes = false, capacity = capacity, window = window,
      hasEntries = true, isLong = capacity > 10,
    }
  end,

  isAhead = function(q, s, t)
    return s.last - t > q.window
  end,

  advance = function(q, s, t)
    s.last = t
    local gone = t - q.window -- an event at e counts in [e, e+window)
    local log, isNext = s.log, true
    if s.kept > 0 then
      local old = 0
      if entry(s, s.kept - 1) <= gone then
        old = s.kept
      elseif entry(s, 0) <= gone then
        old = upTo(s, gone, s.kept)
      end
      isNext = old > 0
      local areAll = old == s.kept and log == '' and s.prev == 0 -- then they need not be read
      if isNext and not areAll then
        log = stored(s, 0, old) .. log
      end
      forget(s, old)
    end
    if isNext then
      local at = 1
      while at < #log do -- which is longer by what is paid back
        local time, units = read('<dd', log, at)
        if time > gone then
          break
        end
        s.level = s.level - units
        log = payBack(s, log, time + q.window, units)
        at = at + 16
      end
      if at > 1 then
        log = sub(log, at)
      end
      s.log = log
    end
    if s.kept == 0 and s.log == '' then
      s.level = 0 -- as it is, unless something was cut off
      s.prev = 0
    end
  end,

  take = function(q, s, cost)
    if s.level + cost <= q.capacity then
      return s.level + cost, s.log .. pack('<dd', s.last, cost)
    end
  end,

  owe = function(q, s, n)
    local owed = math.max(0, math.min(n, 2 * q.capacity - s.level))
    s.level = s.level + owed
    s.prev = s.prev + owed
    s.log = payBack(s, s.log, s.last, q.capacity - (s.level - s.prev))
  end,

  refund = function(q, s, n, at)
    local left = n
    local past = count(s) -- the entries that it may be of are those before this one
    local from = math.max(0, past - n) -- and from this one on
    if at == 0 then
      local owed = math.min(left, s.prev)
      s.prev = s.prev - owed
      left = left - owed
    else
      past = upTo(s, at, past)
      from = upTo(s, at - 1, past)
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
      local rest = ''
      if units > back then
        rest = pack('<dd', time, units - back)
      end
      s.log = sub(s.log, 1, first - 1) .. rest .. sub(s.log, first + 16)
    end
    s.level = s.level - (n - left)
    s.log = payBack(s, s.log, s.last, q.capacity - (s.level - s.prev))
  end,

  remaining = function(q, s)
    return q.capacity - s.level
  end,

  resetAfter = function(q, s)
    if s.level == 0 then
      return 0
    end
    if s.kept + s.prev == 0 then -- as find says, in less time
      return read('<d', s.log, #s.log - 15) + q.window - s.last
    end
    local time, rounds = find(s, s.level)
    return time + rounds * q.window - s.last
  end,

  -- The times of the entries that an answer about an event of that cost needs: of the one that
  -- has to go for the next unit, for the event, and for all.
  times = function(q, s, cost)
    if s.level == 0 then
      return 0, 0, 0
    end
    local one, all
    if s.kept + s.prev == 0 then -- as find says, in less time
      one = read('<d', s.log)
      all = read('<d', s.log, #s.log - 15)
    else
      one = find(s, math.max(1, s.level + 1 - q.capacity))
      all = find(s, s.level)
    end
    local inTheWay = s.level + cost - q.capacity
    if inTheWay <= 1 or cost > q.capacity then
      return one, one, all
    end
    local event = find(s, inTheWay)
    return one, event, all
  end,
}
