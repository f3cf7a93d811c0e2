-- The counterpart of fixedwindow.go.
return {
  compile = function(capacity, window)
    return {algorithm = false, bytes = false, capacity = capacity, window = window}
  end,

  advance = function(q, s, t)
    if t - t % q.window > s.last then
      s.level = 0
    end
    s.last = t
  end,

  take = function(q, s, cost)
    if s.level + cost <= q.capacity then
      return s.level + cost
    end
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
    return q.window - s.last % q.window
  end,
}
