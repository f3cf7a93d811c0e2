-- The bans that processes share. A key's tag is its digest. KEYS[1] is a hash of tags and states, which
-- are JSON. KEYS[2] is a stream of the tags that have changed. KEYS[3] is a sorted set of tags, by class
-- and end. All times are in milliseconds.
--
-- A call makes changes and reads a page. ARGV[1] is the channel to publish changes on, ARGV[2] the cap.
-- ARGV[3] is the id of the last change that the process has read, ARGV[4] the cursor of its scan of the
-- whole list, or '' to read changes. The rest are changes to make, in JSON, with times from now.
--
-- The answer is the server's time; the id of the last change read; the next cursor, '0' after the last
-- page; '1' if the process must scan, as the stream does not have that last change any more, else '0';
-- an answer to each change, or '!' and an error; and the page, a tag and a state in turn.
local _ = struct.pack -- a server without struct, such as miniredis, is only tested for counters
local list, changes, ends = KEYS[1], KEYS[2], KEYS[3]
local channel, most, seen, cursor = ARGV[1], tonumber(ARGV[2]), ARGV[3], ARGV[4]
local FIRST = 5 -- of the changes
local clock = redis.call('TIME')
local now = clock[1] * 1000 + math.floor(clock[2] / 1000)
local DAY = 24 * 60 * 60 * 1000
local FEW = 16 -- how many other tags a call or a change drops, at most
local KEPT = '10000' -- changes in the stream, at least
local PAGE = 500

-- At the cap, the lower classes give way to the higher ones.
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

-- An empty state cannot be read, and is not the state of a tag that is not in the list.
local function legible(text)
  return text == '' and '?' or text
end

local function state(tag)
  return legible(redis.call('HGET', list, tag) or false) or ''
end

-- The state of a tag, or nil if it does not count any more. Returns nil and false if it cannot be read:
-- processes take it for a permanent ban, until a change replaces it.
local function find(tag)
  local ok, r = pcall(function()
    local r = cjson.decode(state(tag))
    local _ = r.ends + r.remember + r.times -- or it cannot be read
    return counts(r) and r or nil
  end)
  return ok and r or nil, ok
end

-- Makes all keys live for so long at least.
local function live(life)
  for _, key in ipairs(KEYS) do
    if redis.call('PTTL', key) < life then
      redis.call('PEXPIRE', key, text(life))
    end
  end
end

local hasChanged = false
local function change(tag)
  redis.call('XADD', changes, 'MAXLEN', '~', KEPT, '*', 'tag', tag)
  hasChanged = true
end

-- Puts a tag in its class, and makes the list live a minute longer than its state counts.
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

-- Drops tags that are over. Processes drop them by themselves, so this is no change.
local function expire()
  for class = REMEMBERED, BY_HAND do
    for _, tag in ipairs(redis.call('ZRANGEBYSCORE', ends, text(class * CLASS), text(class * CLASS + now), 'LIMIT', '0', FEW)) do
      local r, ok = find(tag)
      if r then
        place(tag, r)
      else
        drop(tag)
      end
      if not ok then
        change(tag)
      end
    end
  end
end

-- Makes room for a new tag of a class. Returns false if nothing may give way to it.
local function makeRoom(class)
  for _ = 1, FEW do
    if redis.call('HLEN', list) < most then
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

-- Bans a key unless it is banned. The answer is the state, or 'full'.
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

-- Writes a ban of a process. Of two bans the newer one holds, else the one by hand, else the one that
-- ends more than a second later. The answer is the state, or 'full'.
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

-- Drops the first of two tags that is in the list. The answer is '1' if it was banned, else '0', and the
-- tag; or '' if neither is in the list. Processes may know a ban that Redis has lost, so they hear of that.
function make.unban(c)
  local tags = {c.tag, c.other}
  for _, tag in ipairs(tags) do
    if redis.call('HEXISTS', list, tag) == 1 then
      local r, ok = find(tag)
      drop(tag)
      change(tag)
      return ((not ok or r and inForce(r)) and '1' or '0') .. tag
    end
  end
  for _, tag in ipairs(tags) do
    change(tag)
  end
  return ''
end

expire()
local result = {text(now), seen, '0', '0'}
for i = FIRST, #ARGV do
  local c = cjson.decode(ARGV[i])
  local ok, said = pcall(make[c.op], c)
  if not ok then -- such as a Redis without memory, which can still be read
    said = '!' .. (type(said) == 'table' and said.err or tostring(said))
  end
  result[#result + 1] = said
end
if hasChanged then
  live(math.max(DAY, redis.call('PTTL', list))) -- the stream too, which shows whether Redis has lost changes
  redis.call('PUBLISH', channel, 'changed')
end
if redis.call('ZCOUNT', ends, text(ENDLESS * CLASS), '+inf') > 0 then
  live(366 * DAY) -- permanent bans live as long as a process reads the list
end

if cursor ~= '' then
  local last = redis.call('XREVRANGE', changes, '+', '-', 'COUNT', '1')[1]
  local page = redis.call('HSCAN', list, cursor, 'COUNT', PAGE)
  result[2], result[3] = last and last[1] or '0-0', page[1]
  for i = 1, #page[2], 2 do
    result[#result + 1] = page[2][i]
    result[#result + 1] = legible(page[2][i + 1])
  end
elseif not redis.call('XRANGE', changes, seen, seen)[1]
  and (seen ~= '0-0' or redis.call('XRANGE', changes, '-', '+', 'COUNT', PAGE)[PAGE]) then
  result[4] = '1' -- if there was no change before, the first few are still in the stream
else
  local page = redis.call('XRANGE', changes, '(' .. seen, '+', 'COUNT', PAGE)
  for _, entry in ipairs(page) do
    result[2] = entry[1]
    result[#result + 1] = entry[2][2]
    result[#result + 1] = state(entry[2][2])
  end
  result[3] = #page == PAGE and '1' or '0'
end
return result
