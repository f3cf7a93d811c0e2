-- The bans that processes share. KEYS[1] is a hash of what is known of each key by its
-- digest, "ends remember times rule|since|by|reason", and of the list's version; KEYS[2] to KEYS[4] are
-- sorted sets that say what gives way and when: digests of bans by escalation and by hand,
-- by when they end, and of keys with a ban that is over, by when they are forgotten. Bans without
-- an end have 0 for it and are in none of them. All times are in milliseconds. | is MARK; states of
-- older versions have no notes behind the rule.
--
-- ARGV[1] is what to do, ARGV[2] the channel that hears of changes, ARGV[3] the cap.
local _ = struct.pack -- a server without struct, such as miniredis, is only tested for counters
local list, escalated, byHand, remembered = KEYS[1], KEYS[2], KEYS[3], KEYS[4]
local op, channel, most = ARGV[1], ARGV[2], tonumber(ARGV[3])
local clock = redis.call('TIME')
local now = clock[1] * 1000 + math.floor(clock[2] / 1000)
local DAY = 24 * 60 * 60 * 1000
local MARK = '\31'
local FEW = 16 -- what a call drops beside what it is for, at most

local function text(n)
  return string.format('%.0f', n)
end

local function parse(value)
  local ends, remember, times, rest = string.match(value or '', '^(%d+) (%d+) (%d+) (.*)$')
  if ends then
    local rule, since, note = string.match(rest, '^(.*)\31(%d*)\31([^\31]*\31[^\31]*)$')
    return {
      ends = tonumber(ends), remember = tonumber(remember), times = tonumber(times),
      rule = rule or rest, since = since or '', note = note or MARK,
    }
  end
end

local function format(r)
  return text(r.ends) .. ' ' .. text(r.remember) .. ' ' .. text(r.times) .. ' ' .. r.rule ..
    MARK .. r.since .. MARK .. r.note
end

local function inForce(r)
  return r.ends == 0 or now < r.ends
end

-- What counts of a key, or nil.
local function find(tag)
  local r = parse(redis.call('HGET', list, tag))
  if r and (inForce(r) or now < r.ends + r.remember) then
    return r
  end
end

local function version()
  return tonumber(redis.call('HGET', list, 'version') or 0)
end

-- Sees to it that a key does not expire earlier than that.
local function live(key, life)
  if redis.call('PTTL', key) < life then
    redis.call('PEXPIRE', key, text(life))
  end
end

-- A version is never used twice, even by a list that was lost and began anew: so a
-- process that has seen the last one has seen everything.
local function tell(tag, value)
  local before = version()
  local after = math.max(before + 1, clock[1] * 1000000 + clock[2])
  redis.call('HSET', list, 'version', text(after))
  live(list, DAY)
  redis.call('PUBLISH', channel, text(before) .. ' ' .. text(after) .. ' ' .. text(now) .. ' ' .. tag .. ' ' .. value)
end

local function unqueue(tag)
  redis.call('ZREM', escalated, tag)
  redis.call('ZREM', byHand, tag)
  redis.call('ZREM', remembered, tag)
end

-- Puts a key where it is found when its time has come. A minute is added to what Redis
-- expires by itself, so that nothing is gone before it is over.
local function enqueue(tag, r)
  if r.ends == 0 then
    return live(list, 366 * DAY)
  end
  local queue, due = remembered, r.ends + r.remember
  if now < r.ends then
    queue, due = r.rule == '' and byHand or escalated, r.ends
  end
  redis.call('ZADD', queue, text(due), tag)
  local life = r.ends + r.remember - now + 60000
  live(queue, life)
  live(list, life)
end

local function drop(tag)
  unqueue(tag)
  redis.call('HDEL', list, tag)
end

local function put(tag, r)
  unqueue(tag)
  redis.call('HSET', list, tag, format(r))
  enqueue(tag, r)
  tell(tag, format(r))
end

-- Drops some of what is over, which every process knows without being told.
local function expire()
  for _, queue in ipairs({escalated, byHand, remembered}) do
    for _, tag in ipairs(redis.call('ZRANGEBYSCORE', queue, '-inf', text(now), 'LIMIT', '0', FEW)) do
      local r = find(tag)
      if r then
        unqueue(tag)
        enqueue(tag, r)
      else
        drop(tag)
      end
    end
  end
end

-- Makes room for a new key in a queue, or says that nothing may give way to it.
local function makeRoom(of)
  for _ = 1, FEW do
    if redis.call('HLEN', list) <= most then -- with the version
      return true
    end
    local tag
    for _, queue in ipairs({remembered, escalated, byHand}) do
      tag = tag or redis.call('ZRANGE', queue, '0', '0')[1]
      if queue == of then
        break
      end
    end
    if not tag then
      return false
    end
    drop(tag)
    tell(tag, '')
  end
  return true
end

local function answer(r)
  return {text(version()), text(now), format(r)}
end

local FULL = {err = 'WEIRFULL'}

expire()

-- tag, rule, first, factor, max
if op == 'escalate' then
  local tag, rule, max = ARGV[4], ARGV[5], tonumber(ARGV[8])
  local r = find(tag)
  if r and inForce(r) then
    return answer(r)
  end
  if not r and not makeRoom(escalated) then
    return FULL
  end
  local times = r and math.min(r.times, 2147483646) + 1 or 1
  -- As Escalation.Duration does it.
  local power, square, n = 1, tonumber(ARGV[7]), times - 1
  while n > 0 do
    if n % 2 == 1 then
      power = power * square
    end
    square = square * square
    n = math.floor(n / 2)
  end
  local ms = tonumber(ARGV[6]) * power
  ms = ms < max and math.floor(ms) or max
  r = {ends = now + ms, remember = max, times = times, rule = rule, since = text(now), note = MARK}
  put(tag, r)
  return answer(r)
end

-- tag, how long, 0 until it is lifted, and its note: by whom and why, with MARK between them
if op == 'ban' then
  local tag, ms = ARGV[4], tonumber(ARGV[5])
  local r = find(tag)
  if not r then
    if not makeRoom(byHand) then
      return FULL
    end
    r = {remember = 0, times = 0}
  end
  r.ends, r.rule = ms == 0 and 0 or now + ms, ''
  r.since, r.note = text(now), ARGV[6]
  put(tag, r)
  return answer(r)
end

-- The first of some tags that is known: it ends the answer, with '1' if it was banned.
if op == 'unban' then
  for i = 4, #ARGV do
    if redis.call('HEXISTS', list, ARGV[i]) == 1 then
      local r = find(ARGV[i])
      drop(ARGV[i])
      tell(ARGV[i], '')
      return {text(version()), text(now), ARGV[i], r and inForce(r) and '1' or '0'}
    end
  end
  return {text(version()), text(now)}
end

-- What a process knew while Redis did not: tag, how long yet ('' until it is lifted, below
-- zero if it is over), remember, times, rule; '1' if it is newer than what is here; how long
-- ago it began ('' if that is not known), and its note.
-- Otherwise the ban that ends later holds, not by a trifle, and one by hand. One that finds
-- no room is left out. The answer has what holds for each, or ''.
if op == 'merge' then
  local states = {}
  for i = 4, #ARGV, 8 do
    local tag, left, rule = ARGV[i], ARGV[i + 1], ARGV[i + 4]
    local r = {
      ends = left == '' and 0 or now + tonumber(left), remember = tonumber(ARGV[i + 2]),
      times = tonumber(ARGV[i + 3]), rule = rule,
      since = ARGV[i + 6] == '' and '' or text(now - tonumber(ARGV[i + 6])), note = ARGV[i + 7],
    }
    local old = find(tag)
    local wins = inForce(r) or now < r.ends + r.remember
    if old then
      local lasts = old.ends ~= 0 and (r.ends == 0 or r.ends > old.ends + 1000)
      wins = wins and (ARGV[i + 5] == '1' or lasts and not (inForce(old) and old.rule == ''))
      r.times = math.max(r.times, old.times)
      r.remember = math.max(r.remember, old.remember)
    end
    local queue = not inForce(r) and remembered or rule == '' and byHand or escalated
    if wins and (old or makeRoom(queue)) then
      put(tag, r)
      old = r
    end
    states[#states + 1] = old and format(old) or ''
  end
  return {text(version()), text(now), unpack(states)}
end

-- The version that was seen, and a cursor. Without a cursor the answer to a process that
-- has seen the last version is that alone.
if op == 'read' then
  local withEnd = 0
  for i = 2, 4 do
    withEnd = withEnd + redis.call('ZCARD', KEYS[i])
  end
  if redis.call('HLEN', list) - 1 > withEnd then
    live(list, 366 * DAY) -- the others live as long as a process reads them
  end
  local v = text(version())
  if ARGV[5] == '0' and v == ARGV[4] then
    return {v, text(now)}
  end
  local page = redis.call('HSCAN', list, ARGV[5], 'COUNT', '500')
  local result = {v, text(now), page[1]}
  for i = 1, #page[2], 2 do
    local tag = page[2][i]
    if tag ~= 'version' then
      if find(tag) then
        result[#result + 1] = tag
        result[#result + 1] = page[2][i + 1]
      else
        drop(tag)
      end
    end
  end
  return result
end

return {err = 'WEIRBANS ' .. op}
