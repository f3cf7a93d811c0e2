-- The twin of slidinglog.go.
--
-- The level is how many events there are. The first s.kept of them are stored, and
-- event(s, i) is the time of the one at i, from 0; those after them happened at s.last.
-- s.dropped counts the stored ones that are too old to count.
local function timeOf(s, i)
  if i < s.kept then
    return event(s, s.dropped + i)
  end
  return s.last
end

return {
  isLog = true,

  compile = function(capacity, window)
    return {algorithm = false, bytes = false, capacity = capacity, window = window}
  end,

  advance = function(q, s, t)
    local gone = t - q.window -- an event at e counts in [e, e+window)
    local low, high = 0, s.kept
    if high > 0 and timeOf(s, 0) > gone then
      high = 0
    elseif high > 0 and timeOf(s, high - 1) <= gone then
      low = high
    end
    while low < high do
      local middle = div(low + high, 2)
      if timeOf(s, middle) <= gone then
        low = middle + 1
      else
        high = middle
      end
    end
    s.dropped = s.dropped + low
    s.kept = s.kept - low
    s.level = s.kept
    s.last = t
  end,

  take = function(q, s, cost)
    if s.level + cost <= q.capacity then
      return s.level + cost
    end
  end,

  refund = function(q, s, n)
    s.level = math.max(0, s.level - n)
    s.kept = math.min(s.kept, s.level)
  end,

  look = function(q, s)
    if s.level == 0 then
      return q.capacity, 0
    end
    return q.capacity - s.level, timeOf(s, s.level - 1) + q.window - s.last
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
