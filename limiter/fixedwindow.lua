-- The counterpart of fixedwindow.go.
return {
  compile = function(capacity, window)
    return {algorithm = false, bytes = false, capacity = capacity, window = window}
  end,

  advance = function(q, s, t)
    local start = t - t % q.window
    if start > s.last then
      local owed = 0
      if start - s.last <= q.window then
        owed = math.max(0, s.level - q.capacity)
      end
      s.level = owed
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
    if at == 0 or at - at % q.window == s.last - s.last % q.window then
      s.level = math.max(0, s.level - n)
    end
  end,

  remaining = function(q, s)
    return q.capacity - s.level
  end,

  resetAfter = function(q, s)
    local reset = q.window - s.last % q.window
    if s.level > q.capacity then
      reset = reset + q.window
    end
    return reset
  end,
}
