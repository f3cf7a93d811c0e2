-- Settles leases: each is units of one counter that a process takes ahead, spends on its
-- own, and returns if it does not. What is above this line is store.Lua and quotas.lua. ARGV[1]
-- is what ledger.go encodes, and KEYS are, for each lease, the counter and the list of its holders.
--
-- A unit is charged when it is granted, so no other process gets it, whatever becomes of its
-- holder. The list of holders decides on nothing but how much may be ahead: 24 bytes for
-- each: which process, how many units at most, and until when.
local pack, read, sub = struct.pack, struct.unpack, string.sub
local clock = redis.call('TIME')
local now = clock[1] * 1000000 + clock[2]
local mostHolders = 64

local request = ARGV[1]
local quotaCount, count, percent, life, holder, at = read('<HHHdc8', request)
local quotas
quotas, at = readQuotas(request, quotaCount, at, now)

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
    isOurs = sub(value, 1, 25) == q.bytes and (#value == 57 or q.unit and #value > 57 and #value % 16 == 9)
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
    -- Of another limit, which a decision changes, or something else.
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

    local remaining = q.algorithm.remaining(q, s)
    local most = need
    if 2 * remaining >= q.capacity then
      most = math.max(want, need)
    end
    local room = div(q.capacity * percent, 100) - others - keep
    local granted = math.max(0, math.min(most, remaining, room))
    if keptCount >= mostHolders then
      granted = 0
    end
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
