-- Decides on a batch: every group in turn, each taken entirely or not at all, at one
-- time, the server's. ARGV[1] is what request.go encodes; the answer is what answer.go
-- reads. What is above this line is limiter.Lua: the algorithms, and whether all of
-- them are here.
--
-- A key's value is the quota it was written under, 25 bytes, and its state, 24. Behind
-- that a log has a ring of times, eight bytes each, whose oldest is in the slot prev.
local pack, read, sub, rep = struct.pack, struct.unpack, string.sub, string.rep
local quotaSize, headSize = 25, 49
local clock = redis.call('TIME')
local now = clock[1] * 1000000 + clock[2]
local states = {}

-- All values at once, which is cheaper, unless some may be logs, which are long.
local values
if not algorithms[SLIDING_LOG] then
  values = redis.call('MGET', unpack(KEYS))
end

-- The first headSize bytes of KEYS[i], or of what somebody else has put there.
local function valueOf(i)
  if values then
    return values[i] or ''
  end
  local value = redis.pcall('GETRANGE', KEYS[i], '0', '48')
  if type(value) == 'table' and not string.find(value.err, 'WRONGTYPE', 1, true) then
    error(value.err) -- not to be taken for a key that nobody has used
  end
  return value
end

local function readQuota(bytes)
  local q = {}
  local kind
  kind, q[1], q[2], q[3] = read('<Bddd', bytes)
  q.algorithm = algorithms[kind]
  if q.algorithm then
    q.bytes = bytes
    q.algorithm.compile(q)
    return q
  end
end

-- The time of a log's stored event i, from 0. The algorithms above call it.
function event(s, i)
  local at = headSize + 8 * fmod(s.head + i, s.slots)
  local bytes = redis.call('GETRANGE', s.key, at, at + 7)
  if #bytes < 8 then
    return 0 -- somebody has cut it off
  end
  return (read('<d', bytes))
end

-- Makes s a state under q that knows of no event.
local function clear(s, q)
  s.quota, s.level, s.prev = q, 0, 0
  if q.algorithm.isLog then
    s.kept, s.dropped, s.head, s.slots = 0, 0, 0, q.capacity
  end
end

-- What the state says under another quota: what was used stays used.
local function convert(s, q)
  local before = s.quota
  local remaining = before.algorithm.look(before, s)
  local used = math.min(before.capacity - remaining, q.capacity)
  clear(s, q)
  s.rewritten = true
  if used > 0 then
    s.level = q.algorithm.take(q, s, used)
  end
end

-- The state of KEYS[i] at the present, which is never before its own past. A value that
-- is none of ours is as good as none.
local function load(i, q)
  local value = valueOf(i)
  local s = { -- with all its fields at once, which is when a table is cheap
    key = KEYS[i], quota = q, last = now, level = 0, prev = 0,
    stored = value ~= '', rewritten = false, changed = false,
  }
  states[i] = s
  clear(s, q)
  if not s.stored then
    return s
  end
  local written
  if type(value) == 'string' and #value >= headSize then
    local bytes = sub(value, 1, quotaSize)
    written = q
    if bytes ~= q.bytes then
      written = readQuota(bytes)
      if not written and not complete then
        error('WEIRINCOMPLETE')
      end
    end
  end
  if not written then
    s.rewritten = true
    return s
  end
  clear(s, written)
  s.last, s.level, s.prev = read('<ddd', value, quotaSize + 1)
  if written.algorithm.isLog then
    s.kept, s.head = s.level, s.prev
  end
  written.algorithm.advance(written, s, math.max(now, s.last))
  return s
end

-- That state under q. Who only looks through another limit gets a copy.
local function stateOf(i, q, looks)
  local s = states[i] or load(i, q)
  if s.quota.bytes ~= q.bytes then
    if looks then
      local original = s
      s = {}
      for name, value in pairs(original) do
        s[name] = value
      end
    end
    convert(s, q)
  end
  return s
end

local function saveLog(s)
  local first = fmod(s.head + s.dropped, s.slots)
  if s.rewritten then
    redis.call('DEL', s.key)
    first = 0
  end
  redis.call('SETRANGE', s.key, '0', s.quota.bytes .. pack('<ddd', s.last, s.level, first))
  local slot = fmod(first + s.kept, s.slots)
  local more = s.level - s.kept
  while more > 0 do -- once, or twice where the ring ends
    local n = math.min(more, s.slots - slot)
    redis.call('SETRANGE', s.key, headSize + 8 * slot, rep(pack('<d', s.last), n))
    more = more - n
    slot = 0
  end
end

-- Whether all units are free, and else after how many microseconds they are.
local function isFree(s)
  local _, reset = s.quota.algorithm.look(s.quota, s)
  return s.level == 0 and s.prev == 0 or reset <= 0, reset
end

-- Value and expiry go together: a key lives until all its units are free again.
local function save(s)
  local q = s.quota
  local free, reset = isFree(s)
  -- One more, as Redis counts from when the script began, in whole milliseconds, which may
  -- be before now.
  local life = divUp(math.max(0, reset) + s.last - now, 1000) + 1
  if free then
    if s.stored then
      redis.call('DEL', s.key)
    end
  elseif q.algorithm.isLog then
    saveLog(s)
    redis.call('PEXPIRE', s.key, life)
  else
    redis.call('SET', s.key, q.bytes .. pack('<ddd', s.last, s.level, s.prev), 'PX', life)
  end
end

local request = ARGV[1]
local quotaCount, groupCount, chargeCount, at = read('<HHH', request)
local quotas = {}
for i = 1, quotaCount do
  quotas[i] = readQuota(sub(request, at, at + quotaSize - 1))
  at = at + quotaSize
end
-- Many numbers at once, which is cheaper; the last of them is where the next begin.
local groups = {read('<' .. rep('BB', groupCount), request, at)}
local charges = {read('<' .. rep('HHd', chargeCount), request, groups[#groups])}

local answers, answered, format = {now}, 1, {'<d'}
local function answer(s, allowed, cost)
  local a = s.quota.algorithm
  answers[answered + 1] = allowed
  answers[answered + 2] = s.last
  answers[answered + 3] = s.level
  if a.isLog then
    answers[answered + 4], answers[answered + 5], answers[answered + 6] = a.times(s.quota, s, cost)
    answered = answered + 6
    format[#format + 1] = 'Bddddd'
  else
    answers[answered + 4] = s.prev
    answered = answered + 4
    format[#format + 1] = 'Bddd'
  end
end

local TAKE, GIVE_BACK, RESET = 0, 1, 2
local group, costs, levels = {}, {}, {}
local nextCharge = 1
for g = 1, groupCount do
  local op, size = groups[2 * g - 1], groups[2 * g]
  local all = true
  for i = 1, size do
    local q, cost = quotas[charges[nextCharge + 1]], charges[nextCharge + 2]
    local s = stateOf(charges[nextCharge], q, cost == 0 and op ~= RESET)
    nextCharge = nextCharge + 3
    group[i] = s
    costs[i] = cost
    levels[i] = nil
    if op == TAKE then
      local level = s.level
      if cost > 0 then
        -- A state of another limit is replaced even if a refusal follows, whose
        -- RetryAfter goes by the new one. A look leaves it alone.
        s.changed = s.changed or s.rewritten
        level = cost <= q.capacity and q.algorithm.take(q, s, cost)
      end
      levels[i] = level
      all = all and level
    elseif (s.stored or s.changed) and (op == RESET or cost > 0) then
      s.changed = true
      if op == GIVE_BACK then
        q.algorithm.giveBack(q, s, math.min(cost, q.capacity))
      end
      if op == RESET or isFree(s) then
        clear(s, q)
        s.rewritten = true
        s.last = now
      end
    end
  end
  for i = 1, size do
    local s = group[i]
    if op == TAKE and all and costs[i] > 0 then
      s.level = levels[i]
      s.changed = true
    end
    answer(s, levels[i] and 1 or 0, costs[i])
  end
end

for i = 1, #KEYS do
  local s = states[i]
  if s.changed then
    save(s)
  elseif s.stored and redis.call('PTTL', s.key) == -1 then
    -- Somebody has taken its expiry away.
    s.changed = true
    save(s)
  end
end
return pack(table.concat(format), unpack(answers))
