-- The twin of tokenbucket.go. q[1], q[2], q[3] are capacity, unit and refill.
return {
  compile = function(q)
    q.capacity, q.unit, q.refill = q[1], q[2], q[3]
    q.drain = divUp(q.capacity * q.unit, q.refill)
  end,

  advance = function(q, s, t)
    if t - s.last >= q.drain then
      s.level = 0
    else
      s.level = math.max(0, s.level - (t - s.last) * q.refill)
    end
    s.last = t
  end,

  take = function(q, s, cost)
    local level = s.level + cost * q.unit
    if level <= q.capacity * q.unit then
      return level
    end
  end,

  giveBack = function(q, s, n)
    s.level = math.max(0, s.level - n * q.unit)
  end,

  look = function(q, s)
    return q.capacity - divUp(s.level, q.unit), divUp(s.level, q.refill)
  end,
}
