-- Decides on a batch: every group in turn, each taken entirely or not at all, at one
-- time, the server's. ARGV[1] is what request.go encodes; the answer is what answer.go
-- reads. What is above this line is limiter.Lua, the algorithms; whether all of them are
-- here; and, where logs are, log.lua.
--
-- A key's value is the quota it was written under, 25 bytes, and its state, 24. What such a
-- value is has a version (format.go), which is in its name: there is no other here. Of what
-- is something else nothing is known, neither that it is used up nor that it is not: it is
-- left as it is, and the groups that ask for it are told.
--
-- Most of what a short script costs is functions and tables that it makes anew each time.
-- So there are few functions, and tables begin with all their fields.
local pack, read, sub, rep = struct.pack, struct.unpack, string.sub, string.rep
local clock = redis.call('TIME')
local now = clock[1] * 1000000 + clock[2]

local request = ARGV[1]
local quotaCount, groupCount, chargeCount, at = read('<HHH', request)
local quotas = {false}
for i = 1, quotaCount do
  local kind, a, b, c = read('<Bddd', request, at)
  local q = algorithms[kind].compile(a, b, c)
  q.algorithm = algorithms[kind]
  q.bytes = sub(request, at, at + 24)
  quotas[i] = q
  at = at + 25
end
-- Many numbers at once, which is cheaper; the last of them is where the next begin.
local groups = {read('<' .. rep('BB', groupCount), request, at)}
local charges = {read('<' .. rep('HHd', chargeCount), request, groups[#groups])}
local nextTime = charges[#charges]

-- All values at once too, unless some may be logs, which are long.
local values
if not saveLog then
  values = redis.call('MGET', unpack(KEYS))
  -- It has no value for another type either.
  local unused, n = {}, 0
  for i = 1, #KEYS do
    if not values[i] then
      n = n + 1
      unused[n] = KEYS[i]
    end
  end
  if n > 0 and redis.call('EXISTS', unpack(unused)) > 0 then
    for i = 1, #KEYS do
      if not values[i] and redis.call('EXISTS', KEYS[i]) == 1 then
        values[i] = 'something else'
      end
    end
  end
end

-- Makes s a state under q that knows of no event.
local function clear(s, q)
  s.quota, s.level, s.prev = q, 0, 0
  if q.algorithm.isLog then
    s.kept, s.dropped, s.head, s.slots, s.times = 0, 0, 0, q.capacity, nil
  else
    s.kept = nil
  end
end

-- Whether all units of s are free, and after how many microseconds they are.
local function isFree(s)
  local _, reset = s.quota.algorithm.look(s.quota, s)
  return s.level == 0 and s.prev == 0 or reset <= 0, reset
end

local TAKE, REFUND, RESET = 0, 1, 2
local states = {false}
local group, levels = {false}, {false}
local answers, answered = {now, 0, 0, 0, 0}, 1
local format = {'<d', ''}
local nextCharge, nextFormat = 1, 2
for g = 1, groupCount do
  local op, size = groups[2 * g - 1], groups[2 * g]
  local firstCharge = nextCharge
  local all = true
  for i = 1, size do
    local key, q, cost = charges[nextCharge], quotas[charges[nextCharge + 1]], charges[nextCharge + 2]
    nextCharge = nextCharge + 3
    local taken
    if op == REFUND then
      taken, nextTime = read('<d', request, nextTime)
    end

    -- The state of the key at the present, which is never before its own past.
    local s = states[key]
    if not s then
      local value
      if values then
        value = values[key]
      else
        value = redis.pcall('GETRANGE', KEYS[key], '0', '48')
        if type(value) == 'table' then
          if not string.find(value.err, 'WRONGTYPE', 1, true) then
            error(value.err) -- not to be taken for a key that nobody has used
          end
          value = 'something else'
        elseif value == '' and redis.call('EXISTS', KEYS[key]) == 0 then
          value = false
        end
      end
      s = {
        key = KEYS[key], quota = q, last = now, level = 0, prev = 0,
        stored = value and true, foreign = false, rewritten = false, changed = false,
      }
      states[key] = s
      if q.algorithm.isLog then
        clear(s, q)
      end
      if value then
        local bytes = sub(value, 1, 25)
        local written = q
        if #value < 49 then
          written = nil
        elseif bytes ~= q.bytes then
          local kind, a, b, c = read('<Bddd', bytes)
          local algorithm = algorithms[kind]
          written = nil
          if algorithm then
            written = algorithm.compile(a, b, c)
            written.algorithm = algorithm
            written.bytes = bytes
          elseif not complete then
            error('WEIRINCOMPLETE')
          end
        end
        if written then
          if written ~= q then
            clear(s, written)
          end
          s.last, s.level, s.prev = read('<ddd', value, 26)
          if written.algorithm.isLog then
            s.kept, s.head = s.level, s.prev
          end
          written.algorithm.advance(written, s, math.max(now, s.last))
        else
          s.foreign = true
        end
      end
    end
    if s.foreign and op == RESET then
      s.foreign = false -- which is what it takes to get rid of it
    end

    -- Under another quota, what was used stays used. Who looks or takes through it gets a
    -- copy, which becomes the key's state only if the group is taken: a lower limit forgets
    -- what was used above it, and two that are asked in turn must not make room for each
    -- other.
    local before = s.quota
    if before ~= q and before.bytes ~= q.bytes then
      if op == TAKE or cost == 0 and op ~= RESET then
        local copy = {}
        for name, value in pairs(s) do
          copy[name] = value
        end
        s = copy
      end
      local used = math.min(before.capacity - before.algorithm.look(before, s), q.capacity)
      clear(s, q)
      s.rewritten = true
      if used > 0 then
        s.level = q.algorithm.take(q, s, used)
      end
    end

    group[i] = s
    levels[i] = false
    if s.foreign then
      all = false
    elseif op == TAKE then
      local level = s.level
      if cost > 0 then
        level = cost <= q.capacity and q.algorithm.take(q, s, cost)
      end
      levels[i] = level
      all = all and level
    elseif (s.stored or s.changed) and (op == RESET or cost > 0) then
      s.changed = true
      if op == REFUND then
        q.algorithm.refund(q, s, math.min(cost, q.capacity), taken)
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
    local level = levels[i]
    local cost = charges[firstCharge + 3 * i - 1]
    if op == TAKE and all and cost > 0 then
      s.level = level
      s.changed = true
      states[charges[firstCharge + 3 * i - 3]] = s
    end
    answers[answered + 1] = level and 1 or 0
    if s.foreign then
      answers[answered + 1] = 2
    end
    answers[answered + 2] = s.last
    answers[answered + 3] = s.level
    if s.kept then
      answers[answered + 4], answers[answered + 5], answers[answered + 6] =
        s.quota.algorithm.times(s.quota, s, cost)
      answered = answered + 6
      format[nextFormat] = 'Bddddd'
    else
      answers[answered + 4] = s.prev
      answered = answered + 4
      format[nextFormat] = 'Bddd'
    end
    nextFormat = nextFormat + 1
  end
end

-- Value and expiry go together: a key lives until all its units are free again. One
-- millisecond is added, as Redis counts from when the script began, which may be before now.
for i = 1, #KEYS do
  local s = states[i]
  if s.foreign then
    if redis.call('PTTL', s.key) == -1 then
      redis.call('PEXPIRE', s.key, 3600000) -- so that it is not there for ever
    end
  elseif s.changed or s.stored and redis.call('PTTL', s.key) == -1 then -- somebody took it away
    local free, reset = isFree(s)
    local life = divUp(reset + s.last - now, 1000) + 1
    if free then
      if s.stored then
        redis.call('DEL', s.key)
      end
    elseif s.kept then
      saveLog(s, s.quota.bytes)
      redis.call('PEXPIRE', s.key, life)
    else
      redis.call('SET', s.key, s.quota.bytes .. pack('<ddd', s.last, s.level, s.prev), 'PX', life)
    end
  end
end
return pack(table.concat(format), unpack(answers))
