-- Refills what a process holds of each counter: it takes units ahead, spends them on its own, and
-- returns those that it does not spend. What is above this line is store.Lua and quotas.lua. ARGV[1]
-- is what ledger.go encodes, and KEYS are, for each lease, the counter and the list of its holders.
--
-- A unit is charged when it is granted, so no other process gets it, whatever becomes of its
-- holder. The list of holders decides on nothing but how much may be ahead: 24 bytes for
-- each: which process, how many units at most, and until when.
local pack, read, sub = struct.pack, struct.unpack, string.sub
local clock = redis.call('TIME')
local now = clock[1] * 1000000 + clock[2]

local request = ARGV[1]
local quotaCount, count, percent, life, holder, at = read('<HHHdc8', request)
local quotas
quotas, at = readQuotas(request, quotaCount, at, now)

-- Whether a value of one state was written under a limit that differs from q in its number of events alone.
local function hasShapeOf(q, bytes)
  return sub(bytes, 1, 1) == sub(q.bytes, 1, 1) and sub(bytes, 10) == sub(q.bytes, 10)
end

-- Refunds units to the state at at, of a key that other limits use too: redisstore's shape.lua has the form. Returns
-- the state, and where the next begins, or nil.
local function refundAt(value, at, q, back, since, cut)
  local form = cut and '<ddddd' or '<dddd'
  local size = cut and 65 or 57
  if #value < at + size - 1 then
    return nil
  end
  local bytes = sub(value, at, at + 24)
  local kind, a, b, c = read('<Bddd', bytes)
  local algorithm = algorithmOf(kind, q.settles)
  local last, level, prev, fourth, length = read(form, value, at + 25)
  if not cut then
    length = #value - 57
  end
  if not algorithm or length < 0 or length % 16 ~= 0 or #value < at + size + length - 1 then
    return nil
  end
  local p = algorithm.compile(a, b, c)
  if p.isLong and not cut then
    return nil
  end
  local s = {last = last, level = level, prev = prev, log = sub(value, at + size, at + size + length - 1), kept = 0}
  local isAhead = s.last > now and algorithm.isAhead(p, s, now)
  if not isAhead and not (p.calendar and now >= p.second) then
    algorithm.advance(p, s, math.max(now, s.last))
    if hasShapeOf(q, bytes) or (cut or 0) == 0 or since > cut then
      algorithm.refund(p, s, math.min(back, p.capacity), since)
    end
  end
  local head = bytes .. pack('<dddd', s.last, s.level, s.prev, fourth)
  if cut then
    head = head .. pack('<d', #s.log)
  end
  return head .. s.log, at + size + length
end

-- The value after a refund of units of q to all of its states, or nil if it is no counter.
local function refunded(value, q, back, since)
  if string.byte(value) ~= 255 then
    return (refundAt(value, 1, q, back, since))
  end
  local cut, at, parts = read('<d', value, 2), 18, {sub(value, 1, 17)}
  while at <= #value do
    parts[#parts + 1], at = refundAt(value, at, q, back, since, cut)
    if not at then
      return nil
    end
  end
  return table.concat(parts)
end

local values = redis.call('MGET', unpack(KEYS))
local answers = {pack('<d', now)}
for i = 1, count do
  local number, since, back, keep, want, need
  number, since, back, keep, want, need, at = read('<Hddddd', request, at)
  local q = quotas[number]
  local key, holdersKey = KEYS[2 * i - 1], KEYS[2 * i]
  local value, holders = values[2 * i - 1], values[2 * i] or ''

  local s = {last = now, level = 0, prev = 0, log = ''}
  local isOurs = value or redis.call('EXISTS', key) == 0
  if value then
    isOurs = #value == 57 or q.unit and #value > 57 and #value % 16 == 9
    if isOurs and sub(value, 1, 25) ~= q.bytes then -- it becomes a state of q, if its numbers fit
      local level, prev = read('<dd', value, 34)
      isOurs = hasShapeOf(q, value:sub(1, 25)) and level <= (q.full or q.capacity) and prev <= q.capacity
    end
    if isOurs then
      s.last, s.level, s.prev = read('<ddd', value, 26)
      s.log = sub(value, 58)
      if s.last > now and q.algorithm.isAhead(q, s, now) then
        s.last, s.level, s.prev, s.log = now, 0, 0, ''
      end
      q.algorithm.advance(q, s, math.max(now, s.last))
    end
  end

  if not isOurs then
    -- Other limits use it, or it is something else.
    local after = value and back > 0 and refunded(value, q, back, q.window and math.max(1, since) or 0)
    if after then
      redis.call('SET', key, after, 'KEEPTTL')
    end
    answers[i + 1] = pack('<dddd', -1, 0, 0, 0)
  else
    if value and back > 0 then
      -- To the window it was taken from. Of a bucket all is returned, as no request has used
      -- it.
      q.algorithm.refund(q, s, math.min(back, q.capacity), q.window and math.max(1, since) or 0)
    end

    -- An end that is too far away was written before the clock stepped back.
    local others, kept, keptCount = 0, {}, 0
    for e = 1, #holders - 23, 24 do
      local units, ends = read('<dd', holders, e + 8)
      if ends > now and ends <= now + 2 * life and sub(holders, e, e + 7) ~= holder then
        others = others + units
        keptCount = keptCount + 1
        kept[keptCount] = sub(holders, e, e + 23)
      end
    end

    -- Beyond its need, a process gets at most an equal share of what all may hold, so that some is left for others.
    local remaining = q.algorithm.remaining(q, s)
    local ahead = div(q.capacity * percent, 100)
    local most = need
    if 2 * remaining >= q.capacity then
      most = math.max(need, math.min(want, div(ahead, keptCount + 1) - keep))
    end
    local granted = math.max(0, math.min(most, remaining, ahead - others - keep))
    if granted > 0 then
      local level, log = q.algorithm.take(q, s, granted)
      s.level, s.log = level, log or ''
    end

    if granted > 0 or value and back > 0 then
      local reset = q.algorithm.resetAfter(q, s)
      if s.level == 0 and s.prev == 0 or reset <= 0 then
        redis.call('DEL', key)
      else
        local expiry = s.last + reset
        redis.call('SET', key, q.bytes .. pack('<dddd', s.last, s.level, s.prev, expiry) .. s.log,
          'PX', divUp(expiry - now, 1000) + 1)
      end
    end
    if keep + granted > 0 then
      keptCount = keptCount + 1
      kept[keptCount] = holder .. pack('<dd', keep + granted, now + life)
    end
    local list = table.concat(kept)
    if list ~= holders then
      if list == '' then
        redis.call('DEL', holdersKey)
      else
        redis.call('SET', holdersKey, list, 'PX', divUp(life, 1000) + 1)
      end
    end
    answers[i + 1] = pack('<dddd', granted, s.last, s.level, s.prev)
  end
end
return table.concat(answers)
