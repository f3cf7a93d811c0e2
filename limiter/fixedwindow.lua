-- The twin of fixedwindow.go. q[1] and q[2] are capacity and window.
return {
  compile = function(q)
    q.capacity, q.window = q[1], q[2]
  end,

  advance = function(q, s, t)
    if div(t, q.window) ~= div(s.last, q.window) then
      s.level = 0
    end
    s.last = t
  end,

  take = function(q, s, cost)
    if s.level + cost <= q.capacity then
      return s.level + cost
    end
  end,

  giveBack = function(q, s, n)
    s.level = math.max(0, s.level - n)
  end,

  look = function(q, s)
    return q.capacity - s.level, q.window - fmod(s.last, q.window)
  end,
}
