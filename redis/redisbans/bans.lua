-- The bans that processes share. KEYS[1] is a hash: what is known of each key by its digest,
-- "ends remember times rule|since|by|reason" (| is MARK; without an end it is 0), and three fields of
-- the list. `born` says which list it is: one that was lost and began anew is another. KEYS[2] has
-- the digests by the version of their last change, which is how processes read what they have not
-- seen. KEYS[3] has them by class and, within it, by when they are over. All times are in
-- milliseconds.
--
-- ARGV[1] is what to do, ARGV[2] a channel that hears that there was a change, ARGV[3] the cap.
local _ = struct.pack -- a server without struct, such as miniredis, is only tested for counters
local list, changes, ends = KEYS[1], KEYS[2], KEYS[3]
local op, channel, most = ARGV[1], ARGV[2], tonumber(ARGV[3])
local clock = redis.call('TIME')
local now = clock[1] * 1000 + math.floor(clock[2] / 1000)
local DAY = 24 * 60 * 60 * 1000
local MARK = '\31'
local FIELDS = 3 -- of the list
local FEW = 16 -- what a call drops beside what it is for, at most

-- The lower classes give way to the higher ones. A lifted ban is no more in the hash: it is
-- remembered for an hour, so that all processes read that it was lifted.
local REMEMBERED, ESCALATED, BY_HAND, LIFTED, ENDLESS = 0, 1, 2, 3, 4
local CLASS = 2 ^ 43

local function text(n)
  return string.format('%.0f', n)
end

local function parse(value)
  local ending, remember, times, rest = string.match(value or '', '^(%d+) (%d+) (%d+) (.*)$')
  if ending then
    local rule, since, note = string.match(rest, '^(.*)\31(%d*)\31([^\31]*\31[^\31]*)$')
    return {ends = tonumber(ending), remember = tonumber(remember), times = tonumber(times), rule = rule, since = since, note = note}
  end
end

local function format(r)
  return text(r.ends) .. ' ' .. text(r.remember) .. ' ' .. text(r.times) .. ' ' .. r.rule .. MARK .. r.since .. MARK .. r.note
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

local function field(name)
  return tonumber(redis.call('HGET', list, name) or 0)
end

-- Sees to it that nothing expires earlier than that.
local function live(life)
  for _, key in ipairs(KEYS) do
    if redis.call('PTTL', key) < life then
      redis.call('PEXPIRE', key, text(life))
    end
  end
end

-- Notes a change. A version is never used twice, even by a list that began anew.
local function change(tag)
  local version = math.max(field('version') + 1, clock[1] * 1000000 + clock[2])
  redis.call('HSET', list, 'version', text(version))
  redis.call('HSETNX', list, 'born', text(version))
  redis.call('HSETNX', list, 'gone', '0')
  redis.call('ZADD', changes, text(version), tag)
  live(DAY)
  redis.call('PUBLISH', channel, 'changed')
end

-- A minute is added to what Redis expires by itself, so that nothing is gone before it is over.
local function place(tag, r)
  local class, due, life = REMEMBERED, r.ends + r.remember, r.ends + r.remember - now + 60000
  if r.ends == 0 then
    class, due, life = ENDLESS, 0, 366 * DAY
  elseif now < r.ends then
    class, due = r.rule == '' and BY_HAND or ESCALATED, r.ends
  end
  redis.call('ZADD', ends, text(class * CLASS + due), tag)
  live(life)
end

local function put(tag, r)
  redis.call('HSET', list, tag, format(r))
  place(tag, r)
  change(tag)
end

local function lift(tag)
  redis.call('HDEL', list, tag)
  redis.call('ZADD', ends, text(LIFTED * CLASS + now + 3600000), tag)
  change(tag)
end

-- Forgets what is over, which processes know without reading it. That a ban was lifted they do not
-- know: `gone` is the last such version that was forgotten.
local function forget(tag, isLifted)
  if isLifted then
    redis.call('HSET', list, 'gone', text(math.max(field('gone'), tonumber(redis.call('ZSCORE', changes, tag) or 0))))
  end
  redis.call('HDEL', list, tag)
  redis.call('ZREM', ends, tag)
  redis.call('ZREM', changes, tag)
end

local function expire()
  for class = REMEMBERED, LIFTED do
    local latest = text(class * CLASS + now)
    if class == LIFTED and redis.call('ZCOUNT', ends, text(LIFTED * CLASS), '(' .. text(ENDLESS * CLASS)) > most then
      latest = '(' .. text(ENDLESS * CLASS)
    end
    for _, tag in ipairs(redis.call('ZRANGEBYSCORE', ends, text(class * CLASS), latest, 'LIMIT', '0', FEW)) do
      local r = find(tag)
      if r then
        place(tag, r)
      else
        forget(tag, class == LIFTED)
      end
    end
  end
end

-- Makes room for a new key of a class, or says that nothing may give way to it.
local function makeRoom(class)
  for _ = 1, FEW do
    if redis.call('HLEN', list) - FIELDS < most then
      return true
    end
    local first = redis.call('ZRANGE', ends, '0', '0', 'WITHSCORES')
    if not first[1] or tonumber(first[2]) >= (class + 1) * CLASS then
      return false
    end
    lift(first[1])
  end
  return true
end

local function answer(r)
  return {text(field('version')), text(now), format(r)}
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
  if not r and not makeRoom(ESCALATED) then
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
    if not makeRoom(BY_HAND) then
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
      lift(ARGV[i])
      return {text(field('version')), text(now), ARGV[i], r and inForce(r) and '1' or '0'}
    end
  end
  return {text(field('version')), text(now)}
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
    local class = not inForce(r) and REMEMBERED or rule == '' and BY_HAND or ESCALATED
    if wins and (old or makeRoom(class)) then
      put(tag, r)
      old = r
    end
    states[#states + 1] = old and format(old) or ''
  end
  return {text(field('version')), text(now), unpack(states)}
end

-- What has changed since a version, of a list of that birth, 500 at a time: tag, version and state,
-- or '', in turns. Before that: this list's birth; '1' if what was seen is lost; '1' if the process
-- has to read all, as it was not told of a ban that was lifted.
if op == 'read' then
  local seen, born = tonumber(ARGV[4]), ARGV[5]
  if redis.call('ZCOUNT', ends, text(ENDLESS * CLASS), '+inf') > 0 then
    live(366 * DAY) -- the others live as long as a process reads them
  end
  local version, gone, is = field('version'), field('gone'), text(field('born'))
  local lost = seen > 0 and is ~= born
  local result = {text(version), text(now), is, lost and '1' or '0', seen > 0 and seen < gone and '1' or '0'}
  local page = redis.call('ZRANGEBYSCORE', changes, '(' .. text(seen), '+inf', 'WITHSCORES', 'LIMIT', '0', '500')
  for i = 1, #page, 2 do
    local r = find(page[i])
    result[#result + 1] = page[i]
    result[#result + 1] = page[i + 1]
    result[#result + 1] = r and format(r) or ''
  end
  return result
end

return {err = 'WEIRBANS ' .. op}
