-- The bans that processes share. KEYS[1] is a hash: what is known of each key by its digest (its tag),
-- in JSON, and `born`, which tells the list from a list that was lost before it. KEYS[2] is a stream
-- of the tags that have changed, so that a process reads what it has not seen. KEYS[3] has the tags
-- by class and, within it, by when they are over. All times are in milliseconds.
--
-- A call makes changes and reads: ARGV[1] is a channel that hears of changes, ARGV[2] the cap. ARGV[3]
-- and ARGV[4] say which list the process has read and the last change that it has seen, ARGV[5] where
-- its scan of the whole list goes on, if it scans. What follows are changes, in JSON, with times from
-- now. The answer is: the time; which list this is; the last change that is read then; the next
-- cursor, '0' after the last page; 'anew' if the process has missed changes and must scan, or 'lost' if
-- Redis has lost changes that the process saw, else ''; the answer to each change, or its error after
-- a '!'; and a page, of tags and what is known of them, in turns.
local _ = struct.pack -- a server without struct, such as miniredis, is only tested for counters
local list, changes, ends = KEYS[1], KEYS[2], KEYS[3]
local channel, most, known, seen, cursor = ARGV[1], tonumber(ARGV[2]), ARGV[3], ARGV[4], ARGV[5]
local FIRST = 6 -- of the changes
local clock = redis.call('TIME')
local now = clock[1] * 1000 + math.floor(clock[2] / 1000)
local DAY = 24 * 60 * 60 * 1000
local FEW = 16 -- what a change drops beside what it is for, at most
local KEPT = '10000' -- changes, at least; a process that has missed more scans the list
local PAGE = 500

-- The lower classes give way to the higher ones.
local REMEMBERED, ESCALATED, BY_HAND, ENDLESS = 0, 1, 2, 3
local CLASS = 2 ^ 43

local function text(n)
  return string.format('%.0f', n)
end

local function inForce(r)
  return r.ends == 0 or now < r.ends
end

local function counts(r)
  return inForce(r) or now < r.ends + r.remember
end

-- What counts of a key, or nil.
local function find(tag)
  local ok, r = pcall(cjson.decode, redis.call('HGET', list, tag) or '')
  if ok and type(r) == 'table' and counts(r) then
    return r
  end
end

local function state(tag)
  return redis.call('HGET', list, tag) or ''
end

-- Sees to it that nothing expires earlier than that.
local function live(life)
  for _, key in ipairs(KEYS) do
    if redis.call('PTTL', key) < life then
      redis.call('PEXPIRE', key, text(life))
    end
  end
end

local hasChanged = false
local function change(tag)
  redis.call('HSETNX', list, 'born', clock[1] .. '.' .. clock[2])
  redis.call('XADD', changes, 'MAXLEN', '~', KEPT, '*', 'tag', tag)
  hasChanged = true
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

local function write(tag, r)
  redis.call('HSET', list, tag, cjson.encode(r))
  place(tag, r)
  change(tag)
  return state(tag)
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

local make = {}

-- Bans a key unless it is banned. The answer is what is known then, or 'full'.
function make.escalate(c)
  local r = find(c.tag)
  if r and inForce(r) then
    return state(c.tag)
  end
  if not r and not makeRoom(ESCALATED) then
    return 'full'
  end
  local times = r and math.min(r.times, 2147483646) + 1 or 1
  -- As Escalation.Duration does it.
  local power, square, n = 1, c.factor, times - 1
  while n > 0 do
    if n % 2 == 1 then
      power = power * square
    end
    square = square * square
    n = math.floor(n / 2)
  end
  local ms = c.first * power
  ms = ms < c.max and math.floor(ms) or c.max
  return write(c.tag, {ends = now + ms, remember = c.max, times = times, rule = c.rule, since = now, by = '', reason = ''})
end

-- Has a ban that a process knows of. Of two bans the newer one holds, else one by hand, else the one
-- that ends later, by more than a second. The answer is what is known then, or 'full'.
function make.put(c)
  local r = {remember = c.remember, times = c.times, rule = c.rule, by = c.by, reason = c.reason}
  r.ends = c.ends ~= 0 and c.ends + now or 0 -- which is none
  r.since = c.since ~= 0 and c.since + now or 0
  local old = find(c.tag)
  local wins = counts(r)
  if old then
    local lasts = old.ends ~= 0 and (r.ends == 0 or r.ends > old.ends + 1000)
    wins = wins and (c.newer or lasts and not (inForce(old) and old.rule == ''))
    r.times = math.max(r.times, old.times)
    r.remember = math.max(r.remember, old.remember)
  end
  if not wins then
    return state(c.tag)
  end
  if not old and not makeRoom(not inForce(r) and REMEMBERED or r.rule == '' and BY_HAND or ESCALATED) then
    return 'full'
  end
  return write(c.tag, r)
end

-- Forgets the first of two tags that is known. The answer is '1' if it was banned, else '0', and the
-- tag; or ''.
function make.unban(c)
  for _, tag in ipairs({c.tag, c.other}) do
    if redis.call('HEXISTS', list, tag) == 1 then
      local r = find(tag)
      drop(tag)
      change(tag)
      return (r and inForce(r) and '1' or '0') .. tag
    end
  end
  return ''
end

expire()
local result = {text(now), '', seen, '0', ''}
for i = FIRST, #ARGV do
  local c = cjson.decode(ARGV[i])
  local ok, said = pcall(make[c.op], c)
  if not ok then -- Redis is full, say, and yet it can be read
    said = '!' .. (type(said) == 'table' and said.err or tostring(said))
  end
  result[#result + 1] = said
end
if hasChanged then
  live(math.max(DAY, redis.call('PTTL', list))) -- the stream too: without it a loss is not seen
  redis.call('PUBLISH', channel, 'changed')
end
if redis.call('ZCOUNT', ends, text(ENDLESS * CLASS), '+inf') > 0 then
  live(366 * DAY) -- the others live as long as a process reads them
end

local born = redis.call('HGET', list, 'born') or ''
result[2] = born
if known ~= '' and born ~= known then
  result[5] = 'lost'
elseif cursor ~= '' then
  local last = redis.call('XREVRANGE', changes, '+', '-', 'COUNT', '1')[1]
  local page = redis.call('HSCAN', list, cursor, 'COUNT', PAGE)
  result[3], result[4] = last and last[1] or '0-0', page[1]
  for i = 1, #page[2], 2 do
    if page[2][i] ~= 'born' then
      result[#result + 1] = page[2][i]
      result[#result + 1] = page[2][i + 1]
    end
  end
elseif born ~= known then
  result[5] = 'anew'
elseif seen ~= '0-0' and not redis.call('XRANGE', changes, seen, seen)[1] then
  result[5] = redis.call('XRANGE', changes, '-', seen, 'COUNT', '1')[1] and 'lost' or 'anew'
else
  local page = redis.call('XRANGE', changes, '(' .. seen, '+', 'COUNT', PAGE)
  for _, entry in ipairs(page) do
    result[3] = entry[1]
    result[#result + 1] = entry[2][2]
    result[#result + 1] = state(entry[2][2])
  end
  result[4] = #page == PAGE and '1' or '0'
end
return result
