-- The counterpart of the lows in tokenbucket.go: makes the bucket of quotas that settle. s.log is
-- the lows as a string, 16 bytes each: a time, and the lowest level since.
local read, pack, sub = struct.unpack, struct.pack, string.sub
local mostLows = 8

local function sink(lows, level)
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

local function addLow(lows, time, level)
  if lows ~= '' and read('<d', lows, #lows - 15) == time then
    lows = sub(lows, 1, #lows - 16) -- events of one time share a low
  end
  lows = lows .. pack('<dd', time, level)
  if #lows <= 16 * mostLows then
    return lows
  end
  local smallest, where
  for at = 17, #lows, 16 do
    local before = read('<d', lows, at - 8)
    local after = read('<d', lows, math.min(at + 24, #lows - 7))
    if not smallest or after - before < smallest then
      smallest = after - before
      where = at
    end
  end
  return sub(lows, 1, where - 1) .. sub(lows, where + 16)
end

-- The lows after as much as back, of the time of the one at which, went back.
local function lower(lows, which, back)
  local kept, last = '', 0
  local most = read('<d', lows, which + 8) - back
  for at = 1, #lows, 16 do
    local time, low = read('<dd', lows, at)
    if at > which then
      low = low - back
    else
      low = math.min(low, most)
    end
    if low > last then
      kept = kept .. pack('<dd', time, low)
      last = low
    end
  end
  return kept
end

local compile, advance, take, refund = bucket.compile, bucket.advance, bucket.take, bucket.refund

bucket.compile = function(capacity, unit, refill)
  local q = compile(capacity, unit, refill)
  q.hasEntries = true
  return q
end

bucket.advance = function(q, s, t)
  advance(q, s, t)
  s.log = sink(s.log, s.level)
end

bucket.take = function(q, s, cost)
  local level = take(q, s, cost)
  if level then
    return level, addLow(s.log, s.last, level)
  end
end

bucket.refund = function(q, s, n, at)
  if at == 0 then
    refund(q, s, n, at)
    s.log = sink(s.log, s.level)
    return
  end
  local which
  for i = 1, #s.log, 16 do
    if read('<d', s.log, i) <= at then
      which = i
    end
  end
  if which then
    local low = read('<d', s.log, which + 8)
    local back = math.min(n * q.unit, s.level, low)
    s.level = s.level - back
    s.log = sink(lower(s.log, which, back), s.level)
  end
end
