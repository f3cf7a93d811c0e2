-- Counts slots. A key is a sorted set of tokens, one for each slot in use, by when each expires. A token is its
-- process and a number. Two members are no tokens, and have scores below 0: how long a slot is held on average, and the
-- limit. Everything can be repeated: a token that is there is not added twice.
--
-- A call acquires all its slots, or none. If it is refused, nothing is written, but for a clock that has stepped back.
local call, pack, read = redis.call, struct.pack, struct.unpack
local ACQUIRE, RELEASE, RENEW = 0, 1, 2 -- and 3 for a reset
local heldWeight = 8

local request, at = ARGV[1], 19
local process, lease, count = read('<ddH', request)
local clock = call('TIME')
local now = clock[1] * 1000000 + clock[2]

local function text(n)
  return string.format('%.0f', n)
end
local unexpired, latest = '(' .. text(now), text(now + lease)

local function token(number)
  return pack('<dd', process, number)
end

local function meanOf(key)
  return -(tonumber(call('ZSCORE', key, 'mean')) or 0)
end

-- How many slots of a key are in use, or nil if the key holds something else.
local function usedOf(key)
  local n = redis.pcall('ZCOUNT', key, unexpired, '+inf')
  if type(n) == 'number' then
    return n
  end
  if not string.find(n.err, 'WRONGTYPE', 1, true) then
    error(n.err)
  end
  if call('PTTL', key) == -1 then
    call('PEXPIRE', key, 3600000)
  end
end

local function add(key, ask)
  for i = 0, ask.cost - 1 do
    call('ZADD', key, latest, token(ask.first + i), text(-ask.limit), 'limit')
  end
  call('ZREMRANGEBYSCORE', key, '(0', text(now))
  call('PEXPIRE', key, math.floor(lease * 3 / 2000))
end

-- Removes tokens. The mean time takes note of an event that began at a time.
local function remove(key, ask)
  local held, removed = now - ask.at, 0
  for i = 0, ask.cost - 1 do
    removed = removed + call('ZREM', key, token(ask.first + i))
  end
  if removed > 0 and ask.at > 0 and held >= 0 then
    local mean = meanOf(key)
    if mean == 0 then
      mean = held
    else
      local step = (held - mean) / heldWeight
      mean = mean + (step < 0 and math.ceil(step) or math.floor(step))
    end
    call('ZADD', key, text(-math.max(1, mean)), 'mean')
  end
end

-- A clock that has stepped back lets no token last longer than a lease.
local function shorten(key)
  for _, member in ipairs(call('ZRANGEBYSCORE', key, '(' .. latest, '+inf')) do
    call('ZADD', key, latest, member)
  end
end

local records = {pack('<d', now)}
local asks = {}
for i = 1, count do
  local key, op, left, limit, cost, since, first, held
  key, op, left, limit, cost, since, first, held, at = read('<HBBddddd', request, at)
  local ask = {key = KEYS[key], limit = limit, cost = math.abs(cost), optional = cost < 0, at = since, first = first}
  asks[#asks + 1] = ask
  ask.used = usedOf(ask.key)
  if not ask.used then
    ask.code = 2
    if op == 3 then
      call('DEL', ask.key)
      ask.code, ask.used = 1, 0
    end
  elseif op == RENEW then
    add(ask.key, ask)
  elseif op == RELEASE then
    remove(ask.key, ask)
  elseif op == ACQUIRE then
    ask.used = math.max(ask.used, held) -- Redis may have forgotten some
    ask.fits = ask.cost == 0 or ask.used + ask.cost <= limit
    if ask.used + math.max(ask.cost, 1) > limit then
      shorten(ask.key)
    end
    if not ask.fits then
      if call('ZSCORE', ask.key, token(first)) then -- it comes a second time
        ask.fits, ask.used = true, ask.used - ask.cost
      end
    end
  end
  if left == 0 then -- it was the last one of a call
    local all = op == ACQUIRE
    for _, ask in ipairs(asks) do
      all = all and (ask.fits or ask.optional and ask.code ~= 2)
    end
    for _, ask in ipairs(asks) do
      if all and ask.fits and ask.cost > 0 then
        add(ask.key, ask)
        ask.used = ask.used + ask.cost
      end
      local code = ask.code or (op ~= ACQUIRE or ask.fits) and 1 or 0
      local mean = code == 2 and 0 or meanOf(ask.key)
      records[#records + 1] = pack('<Bddd', code, now, ask.used or 0, mean)
    end
    asks = {}
  end
end
return table.concat(records)
