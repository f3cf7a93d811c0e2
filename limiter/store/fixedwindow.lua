-- The counterpart of fixedwindow.go. Of a calendar a quota knows two windows: that of the time
-- it was made for, which every state that is written under it is in, and the next one.

-- When the window of a time ends, and the next one.
local function ends(q, t)
  if not q.calendar then
    local finish = t - t % q.window + q.window
    return finish, finish + q.window
  end
  if t < q.second then
    return q.second, q.third
  end
  return q.third, q.third + q.window -- where nothing is owed, so that only the first counts
end

return {
  compile = function(capacity, window, seconds)
    if seconds == 0 then
      return {algorithm = false, bytes = false, capacity = capacity, window = window, calendar = false}
    end
    local own = div(seconds, 33554432)
    local second = window + own * 1000000
    return {
      algorithm = false, bytes = false, capacity = capacity, window = own * 1000000, calendar = true,
      first = window, second = second, third = second + seconds % 33554432 * 1000000,
    }
  end,

  check = function(q, t)
    if t < q.first or t >= q.second then
      error(string.format('WEIROUTOFDATE %.0f', t))
    end
  end,

  isAhead = function(q, s, t)
    return (q.calendar and q.first or s.last) - t > q.window
  end,

  advance = function(q, s, t)
    local finish, followedTo = ends(q, s.last)
    if t >= followedTo then
      s.level = 0
    elseif t >= finish then
      s.level = math.max(0, s.level - q.capacity)
    end
    s.last = t
  end,

  take = function(q, s, cost)
    if s.level + cost <= q.capacity then
      return s.level + cost
    end
  end,

  owe = function(q, s, n)
    s.level = math.min(s.level + n, 2 * q.capacity)
  end,

  refund = function(q, s, n, at)
    local finish = ends(q, s.last)
    local start = q.calendar and q.first or finish - q.window
    if at == 0 or start <= at and at < finish then
      s.level = math.max(0, s.level - n)
    end
  end,

  remaining = function(q, s)
    return q.capacity - s.level
  end,

  resetAfter = function(q, s)
    local finish, followedTo = ends(q, s.last)
    if s.level > q.capacity then
      finish = followedTo
    end
    return finish - s.last
  end,
}
