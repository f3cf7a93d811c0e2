-- The counterpart of tokenbucket.go, but for the lows, which settles.lua has, and of leakybucket.go,
-- which isQueue tells.
local bucket = {
  compile = function(capacity, unit, refill)
    return {
      algorithm = false, bytes = false, capacity = capacity,
      unit = unit, refill = refill, full = capacity * unit,
    }
  end,

  isAhead = function(q, s, t)
    return s.last - t > divUp(q.full, q.refill)
  end,

  advance = function(q, s, t)
    local level = s.level - (t - s.last) * q.refill
    if level < 0 then
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

  owe = function(q, s, n)
    s.level = math.min(s.level + n * q.unit, 2 * q.full)
  end,

  refund = function(q, s, n, at)
    local back = math.min(n * q.unit, s.level)
    if at ~= 0 then
      -- The lowest level since then is not known: all that could drain may have been of these.
      local age = math.min(math.max(0, s.last - at), divUp(q.full, q.refill))
      back = math.max(0, math.min(back, n * q.unit - age * q.refill))
    end
    s.level = s.level - back
  end,

  remaining = function(q, s)
    return q.capacity - divUp(s.level, q.unit)
  end,

  resetAfter = function(q, s)
    return divUp(s.level, q.refill)
  end,
}

if isQueue then
  bucket.isQueue = true

  -- within is the longest Delay in microseconds, if there is one.
  local take = bucket.take
  bucket.take = function(q, s, cost, within)
    if not within or s.level <= within * q.refill then
      return take(q, s, cost)
    end
  end

  -- Only of the event that is last: later events have their turns.
  bucket.refund = function(q, s, n, at)
    if s.level > 0 and q.unit >= q.refill and s.last + divUp(s.level, q.refill) == at then
      s.level = s.level - math.min(n * q.unit, s.level)
    end
  end
end
return bucket
