-- The counterpart of fixedwindow.go. Of a calendar's windows it knows two, the first of which is the
-- one that the caller took for the present, and by the server's clock it may be yet to come: what is
-- before it, and behind the second, counts as one window each. When it is over nothing is written by
-- it, or a debt in the second would be owed in all that come after it.

-- Which of these a time is in.
local function position(q, t)
  if t < q.first then
    return 0
  end
  if t < q.second then
    return 1
  end
  if t < q.third then
    return 2
  end
  return 3
end

-- When the window of a time ends, and the next one. Of those behind the second it is a guess.
local function ends(q, t)
  if not q.calendar then
    local finish = t - t % q.window + q.window
    return finish, finish + q.window
  end
  local at = position(q, t)
  if at == 0 then
    return q.first, q.second
  end
  if at == 1 then
    return q.second, q.third
  end
  if at == 2 then
    return q.third, q.third + q.window
  end
  return t + q.window, t + 2 * q.window
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
    if t >= q.second or t < q.first - q.window / 2 then
      error(string.format('WEIROUTOFDATE %.0f', t))
    end
  end,

  advance = function(q, s, t)
    local passed -- windows
    if q.calendar then
      passed = position(q, t) - position(q, s.last)
    else
      local start = t - t % q.window
      passed = 2
      if start <= s.last then
        passed = 0
      elseif start - s.last <= q.window then
        passed = 1
      end
    end
    if passed == 1 then
      s.level = math.max(0, s.level - q.capacity)
    elseif passed > 1 then
      s.level = 0
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
    local same = at == 0
    if q.calendar then
      -- What is before the first may be of several windows, the last of which is longer than this.
      local isKnown = at >= q.first - q.window / 2 and at < q.third
      same = same or isKnown and position(q, at) == position(q, s.last)
    else
      same = same or at - at % q.window == s.last - s.last % q.window
    end
    if same then
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
