-- The counterpart of tokenbucket.go.
return {
  compile = function(capacity, unit, refill)
    return {
      algorithm = false, bytes = false, capacity = capacity,
      unit = unit, refill = refill, full = capacity * unit,
      drain = divUp(capacity * unit, refill),
    }
  end,

  advance = function(q, s, t)
    local passed = t - s.last
    local level = s.level - passed * q.refill
    if passed >= q.drain or level < 0 then
      level = 0
    end
    s.level = level
    s.last = t
  end,

  take = function(q, s, cost)
    local level = s.level + cost * q.unit
    if level <= q.full then
      return level
    end
  end,

  refund = function(q, s, n, at)
    local back = n * q.unit
    if at ~= 0 then
      local age = math.max(0, s.last - at)
      if age >= q.drain then
        return
      end
      back = math.max(0, back - age * q.refill) -- the rest may have drained
    end
    s.level = math.max(0, s.level - back)
  end,

  remaining = function(q, s)
    return q.capacity - divUp(s.level, q.unit)
  end,

  resetAfter = function(q, s)
    return divUp(s.level, q.refill)
  end,
}
