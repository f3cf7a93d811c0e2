-- A change of the list of bans. KEYS[1] is a hash of digests and states in JSON, KEYS[2] its version, which
-- each change raises, KEYS[3] a sorted set of the digests by end. There, a ban by hand has minus its end,
-- and no permanent ban is. Times are in milliseconds: since 1970 in Redis, from now in arguments.
--
-- ARGV: the channel, the cap, the operation (put, escalate, unban, check), its digest, its values in JSON. The
-- answer is 'full', 'lifted' or '', and news. The channel gets the news of each change.
local _ = struct.pack -- a server without struct, such as miniredis, is only tested for counters
local list, version, ends = KEYS[1], KEYS[2], KEYS[3]
local op, tag, c = ARGV[3], ARGV[4], cjson.decode(ARGV[5])
local clock = redis.call('TIME')
local now = clock[1] * 1000 + math.floor(clock[2] / 1000)
local DAY, FEW = 24 * 60 * 60 * 1000, 16 -- a call drops a few other digests at most
local function text(n) return string.format('%.0f', n) end

-- Returns a state, and whether it bans. A state that cannot be read is nil, and bans.
local function find(tag)
  local stored = redis.call('HGET', list, tag)
  local ok, r = pcall(function()
    local r = cjson.decode(stored)
    return r.ends >= 0 and r.remembered >= r.ends and r.times >= 0 and r
  end)
  if not (ok and r) then return nil, stored ~= false end
  return r, r.ends == 0 or now < r.ends
end

local function live(life)
  for _, key in ipairs(KEYS) do
    if redis.call('PTTL', key) < life + 1000 then redis.call('PEXPIRE', key, text(life + DAY)) end
  end
end

-- News are the version before the last change, the version, the time, a digest, and its state or 'none'.
local after = tonumber(redis.call('GET', version) or 0)
local before = after
local function news(tag)
  return table.concat({text(before), text(after), text(now), tag, redis.call('HGET', list, tag) or 'none'}, ' ')
end

-- Stores a state, or drops the digest. A version is at least the time in microseconds, so that no two changes
-- have the same one, even if Redis has lost the first.
local function change(tag, r)
  before, after = after, math.max(after + 1, clock[1] * 1000000 + clock[2])
  redis.call('SET', version, text(after), 'KEEPTTL') -- first: without memory it fails
  redis.call('ZREM', ends, tag)
  if r then
    redis.call('HSET', list, tag, cjson.encode(r))
    if r.ends ~= 0 then redis.call('ZADD', ends, text(r.rule == '' and -r.ends or r.ends), tag) end
    live(r.ends == 0 and 366 * DAY or r.remembered - now)
  else
    redis.call('HDEL', list, tag)
  end
  redis.call('PUBLISH', ARGV[1], news(tag))
end

-- Makes room for a state, or returns false. What has ended gives way first, then the ban by a rule that ends
-- first; the ban by hand that ends first gives way only to one by hand.
local function makeRoom(r)
  for _ = 1, FEW do
    if redis.call('HLEN', list) < tonumber(ARGV[2]) then return true end
    local victim = redis.call('ZRANGEBYSCORE', ends, text(-now), text(now), 'LIMIT', 0, 1)[1]
      or (r.ends == 0 or now < r.ends) and (redis.call('ZRANGEBYSCORE', ends, text(now), '+inf', 'LIMIT', 0, 1)[1]
      or r.rule == '' and redis.call('ZREVRANGEBYSCORE', ends, text(-now), '-inf', 'LIMIT', 0, 1)[1])
    if not victim then return false end
    change(victim)
  end
  return true
end

local old, banned = find(tag)
local outcome, new = ''
if op == 'put' then -- a ban by hand replaces any; else the new one must end over a second later
  local since, till, times, remember = now - c.age, c.ends ~= 0 and now + c.ends or 0, c.times, c.remember
  local wins = till == 0 or now < till + remember
  if old and not banned and old.times == 0 then
    wins = wins and since >= (old.since or 0) -- when it was lifted
  elseif old and (banned or now < old.remembered) then
    local lasts = old.ends ~= 0 and (till == 0 or till > old.ends + 1000)
    wins = wins and (c.rule == '' or lasts and not (banned and old.rule == ''))
    times, remember = math.max(times, old.times), math.max(remember, old.remembered - old.ends)
  end
  new = wins and {ends = till, remembered = till + remember, times = times, since = since, rule = c.rule, by = c.by, reason = c.reason}
elseif op == 'escalate' and not banned then
  local times = old and now < old.remembered and math.min(old.times, 2147483646) + 1 or 1
  local power, square, n = 1, c.factor, times - 1 -- as Escalation.Duration does it
  while n > 0 do
    power = n % 2 == 1 and power * square or power
    square, n = square * square, math.floor(n / 2)
  end
  local till = now + math.floor(math.min(c.first * power, c.max))
  new = {ends = till, remembered = till + c.max, times = times, since = now, rule = c.rule, by = '', reason = ''}
elseif op == 'unban' then -- is remembered for a day, for processes that miss the message
  outcome = banned and 'lifted' or ''
  redis.call('HDEL', list, tag) -- first: then nothing fails without memory
  new = {ends = now, remembered = now + DAY, times = 0, since = now, rule = '', by = '', reason = ''}
end
if new then
  local fits = redis.call('HEXISTS', list, tag) == 1 or makeRoom(new)
  if fits or op == 'unban' then change(tag, fits and new or nil) else outcome = 'full' end
end

for _, t in ipairs(op == 'check' and {} or redis.call('ZRANGEBYSCORE', ends, text(-now), text(now), 'LIMIT', 0, FEW)) do
  local r, banned = find(t)
  redis.call('ZREM', ends, t)
  local counts = banned or r and now < r.remembered
  if not counts then redis.call('HDEL', list, t) end
  if counts and not banned then redis.call('ZADD', ends, text(now), t) end -- behind the others
end
if redis.call('HLEN', list) > redis.call('ZCARD', ends) then live(365 * DAY) end -- permanent bans live while they are read
return {outcome, news(tag)}
