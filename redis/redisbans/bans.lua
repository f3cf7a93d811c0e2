-- The bans that processes share. KEYS[1] is a hash: what is known of each key by its digest, in
-- JSON, and `born`, which tells the list from one that was lost before it. KEYS[2] is a stream of the
-- digests that have changed, so that a process reads what it has not seen. KEYS[3] has the digests
-- by class and, within it, by when they are over. All times are in milliseconds.
--
-- ARGV[1] is what to do, ARGV[2] a channel that hears of changes, ARGV[3] the cap. Processes say and
-- are answered times as from now.
local _ = struct.pack -- a server without struct, such as miniredis, is only tested for counters
local list, changes, ends = KEYS[1], KEYS[2], KEYS[3]
local op, channel, most, tag = ARGV[1], ARGV[2], tonumber(ARGV[3]), ARGV[4]
local clock = redis.call('TIME')
local now = clock[1] * 1000 + math.floor(clock[2] / 1000)
local DAY = 24 * 60 * 60 * 1000
local FEW = 16 -- what a call drops beside what it is for, at most
local KEPT = '10000' -- changes, at least; a process that has missed more reads the whole list
local PAGE = '500'

-- The lower classes give way to the higher ones.
local REMEMBERED, ESCALATED, BY_HAND, ENDLESS = 0, 1, 2, 3
local CLASS = 2 ^ 43

local function text(n)
  return string.format('%.0f', n)
end

local function inForce(r)
  return r.ends == 0 or now < r.ends
end

-- What counts of a key, or nil.
local function find(tag)
  local ok, r = pcall(cjson.decode, redis.call('HGET', list, tag) or '')
  if ok and type(r) == 'table' and (inForce(r) or now < r.ends + r.remember) then
    return r
  end
end

local function shift(r, by)
  for _, field in ipairs({'ends', 'since'}) do
    if r[field] ~= 0 then -- which is none
      r[field] = r[field] + by
      if r[field] == 0 then
        r[field] = -1
      end
    end
  end
end

local function state(r)
  if not r then
    return ''
  end
  shift(r, -now)
  return cjson.encode(r)
end

-- Sees to it that nothing expires earlier than that.
local function live(life)
  for _, key in ipairs(KEYS) do
    if redis.call('PTTL', key) < life then
      redis.call('PEXPIRE', key, text(life))
    end
  end
end

local function change(tag)
  redis.call('HSETNX', list, 'born', clock[1] .. '.' .. clock[2])
  redis.call('XADD', changes, 'MAXLEN', '~', KEPT, '*', 'tag', tag)
  live(math.max(DAY, redis.call('PTTL', list))) -- the stream too: without it a loss is not seen
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
  redis.call('HSET', list, tag, cjson.encode(r))
  place(tag, r)
  change(tag)
  return {state(r)}
end

local function drop(tag)
  redis.call('HDEL', list, tag)
  redis.call('ZREM', ends, tag)
end

-- Drops what is over, which processes know without reading it.
local function expire()
  for class = REMEMBERED, BY_HAND do
    for _, tag in ipairs(redis.call('ZRANGEBYSCORE', ends, text(class * CLASS), text(class * CLASS + now), 'LIMIT', '0', FEW)) do
      local r = find(tag)
      if r then
        place(tag, r)
      else
        drop(tag)
      end
    end
  end
end

-- Makes room for a new key of a class, or says that nothing may give way to it.
local function makeRoom(class)
  for _ = 1, FEW do
    if redis.call('HLEN', list) - 1 < most then
      return true
    end
    local first = redis.call('ZRANGE', ends, '0', '0', 'WITHSCORES')
    if not first[1] or tonumber(first[2]) >= (class + 1) * CLASS then
      return false
    end
    drop(first[1])
    change(first[1])
  end
  return true
end

local FULL = {err = 'WEIRFULL'}

expire()

-- tag, rule, first, factor, max
if op == 'escalate' then
  local max = tonumber(ARGV[8])
  local r = find(tag)
  if r and inForce(r) then
    return {state(r)}
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
  return put(tag, {ends = now + ms, remember = max, times = times, rule = ARGV[5], since = now, by = '', reason = ''})
end

-- tag, '1' if the ban is newer than any here, and what is known of the key. Of two bans the newer one
-- holds, else one by hand, else the one that ends later, by more than a second.
if op == 'put' then
  local r = cjson.decode(ARGV[6])
  shift(r, now)
  local old = find(tag)
  local wins = inForce(r) or now < r.ends + r.remember
  if old then
    local lasts = old.ends ~= 0 and (r.ends == 0 or r.ends > old.ends + 1000)
    wins = wins and (ARGV[5] == '1' or lasts and not (inForce(old) and old.rule == ''))
    r.times = math.max(r.times, old.times)
    r.remember = math.max(r.remember, old.remember)
  end
  if not wins then
    return {state(old)}
  end
  if not old and not makeRoom(not inForce(r) and REMEMBERED or r.rule == '' and BY_HAND or ESCALATED) then
    return FULL
  end
  return put(tag, r)
end

-- The first of some tags that is known ends the answer, with '1' if it was banned.
if op == 'unban' then
  for i = 4, #ARGV do
    if redis.call('HEXISTS', list, ARGV[i]) == 1 then
      local r = find(ARGV[i])
      drop(ARGV[i])
      change(ARGV[i])
      return {ARGV[i], r and inForce(r) and '1' or '0'}
    end
  end
  return {}
end

-- A page of what has changed since a change, of the list that was born then or, from a cursor, of all
-- that is known: tags and states, in turns. Before them: when this list was born; the last change
-- that is read then; the next cursor, '0' after the last page; and 'anew' if the process has
-- missed changes and reads all, or 'lost' if Redis has lost what it saw.
if op == 'read' then
  local seen, known, cursor = ARGV[4], ARGV[5], ARGV[6]
  if redis.call('ZCOUNT', ends, text(ENDLESS * CLASS), '+inf') > 0 then
    live(366 * DAY) -- the others live as long as a process reads them
  end
  local born = redis.call('HGET', list, 'born') or ''
  local result = {born, seen, '0', ''}
  local function add(tag)
    result[#result + 1] = tag
    result[#result + 1] = state(find(tag))
  end
  if cursor ~= '' then
    local last = redis.call('XREVRANGE', changes, '+', '-', 'COUNT', '1')[1]
    local page = redis.call('HSCAN', list, cursor, 'COUNT', PAGE)
    result[2], result[3] = last and last[1] or '0-0', page[1]
    for i = 1, #page[2], 2 do
      if page[2][i] ~= 'born' then
        add(page[2][i])
      end
    end
  elseif born ~= known then
    result[4] = known == '' and 'anew' or 'lost'
  elseif seen ~= '0-0' and not redis.call('XRANGE', changes, seen, seen)[1] then
    result[4] = redis.call('XRANGE', changes, '-', seen, 'COUNT', '1')[1] and 'lost' or 'anew'
  else
    local page = redis.call('XRANGE', changes, '(' .. seen, '+', 'COUNT', PAGE)
    for i, entry in ipairs(page) do
      result[2] = entry[1]
      add(entry[2][2])
    end
    result[3] = #page == tonumber(PAGE) and '1' or '0'
  end
  return result
end

return {err = 'WEIRBANS ' .. op}
