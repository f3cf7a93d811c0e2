-- The counterpart of slidingcounter.go.

-- How much of the previous window still counts, in whole units.
local function share(q, s)
  if s.prev == 0 then
    return 0
  end
  return div(s.prev * (q.steps - div(s.last % q.window, q.step)), q.steps)
end

-- How far into a window nothing is left of a previous count.
local function faded(q, prev)
  if prev <= 0 then
    return 0
  end
  return math.min((q.steps - div(q.steps - 1, prev)) * q.step, q.window)
end

return {
  compile = function(capacity, window, step)
    return {
      algorithm = false, bytes = false, capacity = capacity,
      window = window, step = step, steps = divUp(window, step),
    }
  end,

  isAhead = function(q, s, t)
    return s.last - t > q.window
  end,

  advance = function(q, s, t)
    local age = t - s.last + s.last % q.window -- of the window of s.last
    if age >= q.window then
      local owed = math.max(0, s.level - q.capacity)
      local within = s.level - owed
      s.level = 0
      s.prev = 0
      if age < 2 * q.window then
        s.level = owed
        s.prev = within
      elseif age < 3 * q.window then
        s.prev = owed
      end
    end
    s.last = t
  end,

  take = function(q, s, cost)
    if s.level + share(q, s) + cost <= q.capacity then
      return s.level + cost
    end
  end,

  owe = function(q, s, n)
    s.level = math.min(s.level + n, 2 * q.capacity)
  end,

  refund = function(q, s, n, at)
    local age = div(s.last, q.window) - div(at, q.window)
    if at == 0 then
      local current = math.min(n, s.level)
      s.level = s.level - current
      s.prev = math.max(0, s.prev - (n - current))
    elseif age == 0 then
      s.level = math.max(0, s.level - n)
    elseif age == 1 then
      s.prev = math.max(0, s.prev - n)
    end
  end,

  remaining = function(q, s)
    return q.capacity - s.level - share(q, s)
  end,

  resetAfter = function(q, s)
    local elapsed = s.last % q.window
    if s.level > q.capacity then
      return 2 * q.window - elapsed + faded(q, s.level - q.capacity)
    end
    if s.level > 0 then
      return q.window - elapsed + faded(q, s.level)
    end
    return faded(q, s.prev) - elapsed
  end,
}
