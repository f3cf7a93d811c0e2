-- The counterpart of tokenbucket.go and leakybucket.go. If a bucket settles, s.log has its lows, 16 bytes each: a
-- time, and the lowest level since.
local function newBucket(queue, settles)
  local mostLows = 8
  local sink, lower

  local bucket = {
    compile = function(capacity, unit, refill)
      return {
        algorithm = false, bytes = false, capacity = capacity, unit = unit, refill = refill, full = capacity * unit,
        queue = queue, hasEntries = settles,
      }
    end,

    advance = function(q, s, t)
      local level = s.level - (t - s.last) * q.refill
      if level < 0 then
        level = 0
      end
      s.level = level
      s.last = t
      if settles then
        s.log = sink(s.log, level)
      end
    end,

    used = function(q, s)
      return divUp(s.level, q.unit)
    end,

    owe = function(q, s, n)
      s.level = math.min(s.level + n * q.unit, 2 * q.full)
    end,

    refund = function(q, s, n, at)
      local back = math.min(n * q.unit, s.level)
      if queue then -- only of the event that is last: later events have their turns
        if q.unit < q.refill or s.last + divUp(s.level, q.refill) ~= at then
          return
        end
      elseif settles and at ~= 0 then
        local low
        for i = 1, #s.log, 16 do
          if read('<d', s.log, i) <= at then
            low = i
          end
        end
        if not low then
          return
        end
        back = math.min(back, (read('<d', s.log, low + 8)))
        s.log = lower(s.log, low, back)
      elseif at ~= 0 then -- the lowest level is not known, and all that could drain may have been of these
        local age = math.min(math.max(0, s.last - at), divUp(q.full, q.refill))
        back = math.max(0, math.min(back, n * q.unit - age * q.refill))
      end
      s.level = s.level - back
      if settles then
        s.log = sink(s.log, s.level)
      end
    end,

    wait = function(q, s, room)
      local above, refill = s.level - room * q.unit, q.refill
      if above <= 0 then
        return 0
      end
      local rest = above % refill -- as divUp, in less time
      return rest == 0 and above / refill or (above - rest) / refill + 1
    end,
  }
  if not settles then
    return bucket
  end

  function sink(lows, level)
    if lows == '' or read('<d', lows, #lows - 7) <= level then
      return lows
    end
    if level == 0 then
      return ''
    end
    local at = 1
    while read('<d', lows, at + 8) <= level do
      at = at + 16
    end
    return sub(lows, 1, at + 7) .. pack('<d', level)
  end

  bucket.record = function(s, _, level)
    local lows = s.log
    if lows ~= '' and read('<d', lows, #lows - 15) == s.last then
      lows = sub(lows, 1, #lows - 16)
    end
    lows = lows .. pack('<dd', s.last, level)
    if #lows <= 16 * mostLows then
      return lows
    end
    local smallest, least
    for at = 17, #lows, 16 do
      local before = read('<d', lows, at - 8)
      local after = read('<d', lows, math.min(at + 24, #lows - 7))
      if not smallest or after - before < smallest then
        smallest, least = after - before, at
      end
    end
    return sub(lows, 1, least - 1) .. sub(lows, least + 16)
  end

  function lower(lows, i, back)
    local kept, last, left = '', 0, read('<d', lows, i + 8) - back
    for at = 1, #lows, 16 do
      local time, low = read('<dd', lows, at)
      low = at > i and low - back or math.min(low, left)
      if low > last then
        kept = kept .. pack('<dd', time, low)
        last = low
      end
    end
    return kept
  end
  return bucket
end
