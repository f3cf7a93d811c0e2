-- The counterpart of slidinglog.go.
--
-- The level is how many events there are. The first s.kept of them are stored, and
-- event(s, i) is the time of the one at i, from 0; those after them happened at s.last.
-- s.dropped counts the stored ones that are too old to count. cut(s, i, n) takes n of the
-- stored times out, from the one at i.
local function timeOf(s, i)
  if i < s.kept then
    return event(s, s.dropped + i)
  end
  return s.last
end

-- How many of the first count events are no later than t.
local function upTo(s, t, count)
  local low, high = 0, count
  while low < high do
    local middle = div(low + high, 2)
    if timeOf(s, middle) <= t then
      low = middle + 1
    else
      high = middle
    end
  end
  return low
end

return {
  isLog = true,

  compile = function(capacity, window)
    return {algorithm = false, bytes = false, capacity = capacity, window = window}
  end,

  advance = function(q, s, t)
    local gone = t - q.window -- an event at e counts in [e, e+window)
    local old = 0
    if s.kept > 0 and timeOf(s, s.kept - 1) <= gone then
      old = s.kept
    elseif s.kept > 0 and timeOf(s, 0) <= gone then
      old = upTo(s, gone, s.kept)
    end
    s.dropped = s.dropped + old
    s.kept = s.kept - old
    s.level = s.kept
    s.last = t
  end,

  take = function(q, s, cost)
    if s.level + cost <= q.capacity then
      return s.level + cost
    end
  end,

  refund = function(q, s, n, at)
    local from, past = math.max(0, s.level - n), s.level
    if at ~= 0 then
      from, past = upTo(s, at - 1, s.level), upTo(s, at, s.level)
    end
    local gone = math.min(n, past - from)
    if past < s.level and gone > 0 then
      cut(s, from, gone) -- there are later ones, so these are stored
    end
    s.level = s.level - gone
    s.kept = math.min(s.kept, s.level)
  end,

  remaining = function(q, s)
    return q.capacity - s.level
  end,

  resetAfter = function(q, s)
    if s.level == 0 then
      return 0
    end
    return timeOf(s, s.level - 1) + q.window - s.last
  end,

  -- The times that an answer about an event of that cost needs: of the oldest event, of
  -- the one that has to go first, and of the newest.
  times = function(q, s, cost)
    if s.level == 0 then
      return 0, 0, 0
    end
    local inTheWay = s.level + cost - q.capacity
    local oldest = timeOf(s, 0)
    local blocking = oldest
    if inTheWay > 1 and inTheWay <= s.level then
      blocking = timeOf(s, inTheWay - 1)
    end
    return oldest, blocking, timeOf(s, s.level - 1)
  end,
}
