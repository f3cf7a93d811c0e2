-- Decides on a batch: every group in turn, each taken entirely or not at all, at one
-- time, the server's. ARGV[1] is what request.go encodes; the answer is what answer.go
-- reads. What is above this line is limiter.Lua, the algorithms; whether all of them are
-- here; and, where logs are, log.lua.
--
-- A key's value is the quota it was written under, 25 bytes, its state, 24, and when it
-- expires, 8, which a log has not, nor what leases write. What such a value is has a version,
-- which is in its name: there is no other here. Of what is something else nothing is known,
-- neither that it is used up nor that it is not: it is left as it is, and the groups that ask
-- for it are told.
--
-- Most of what a short script costs is functions and tables that it makes anew each time.
-- So there are few functions, and tables begin with all their fields.
local pack, read, sub, rep, max = struct.pack, struct.unpack, string.sub, string.rep, math.max
local clock = redis.call('TIME')
local now = clock[1] * 1000000 + clock[2]

local request, names, call = ARGV[1], KEYS, redis.call
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
  values = call('MGET', unpack(names))
  -- It has no value for another type either.
  local unused, n = {}, 0
  for i = 1, #names do
    if not values[i] then
      n = n + 1
      unused[n] = names[i]
    end
  end
  if n > 0 and call('EXISTS', unpack(unused)) > 0 then
    for i = 1, #names do
      if not values[i] and call('EXISTS', names[i]) == 1 then
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
  local reset = s.quota.algorithm.resetAfter(s.quota, s)
  return s.level == 0 and s.prev == 0 or reset <= 0, reset
end

local TAKE, REFUND, RESET = 0, 1, 2

-- When a key that is free at that time is to expire: later, as an expiry that is late enough
-- for the next event too need not be set again, which costs more than all else.
local function expiryOf(free)
  return free + max(div(max(0, free - now), 2), 5000000)
end
local function lifeUntil(expiry)
  return divUp(expiry - now, 1000) + 1 -- as Redis counts from when the script began
end

-- Where a few keys are asked for again and again, a table for each costs less than its value
-- packed and unpacked for each charge.
local areDifferent = values and chargeCount < 2 * #names

-- Most groups are plain: they take from keys that have no value, or one of the quota they are
-- charged under. Such a key has no table. What it has is its value, and its life: its name
-- until the value changes; then how many milliseconds it is to live, or 0 if its expiry is
-- late enough; or false, if it did not change and was seen to have an expiry.
local scratch = {last = 0, level = 0, prev = 0}
local lives = {unpack(names)}
local before, after, afterLives = {false, false, false}, {false, false, false}, {false, false, false}

local states = {false} -- of the other keys
local group, levels = {false}, {false}
local answers, answered = {now, unpack(charges)}, 1 -- which makes room for most of them
local format = {'<d', ''} -- where there are logs
local nextCharge, nextFormat = 1, 2
for g = 1, groupCount do
  local op, size = groups[2 * g - 1], groups[2 * g]
  local firstCharge, firstAnswer = nextCharge, answered
  local all = true
  local plain = op == TAKE and areDifferent
  if plain then
    for i = 1, size do
      local key, q, cost = charges[nextCharge], quotas[charges[nextCharge + 1]], charges[nextCharge + 2]
      local s, value, bytes, algorithm, expiry = scratch, values[key], q.bytes, q.algorithm, 0
      if states[key] or value and (#value ~= 57 or sub(value, 1, 25) ~= bytes) then
        plain, all, nextCharge, answered = false, true, firstCharge, firstAnswer
        break
      end
      s.last, s.level, s.prev = now, 0, 0
      if value then
        s.last, s.level, s.prev, expiry = read('<dddd', value, 26)
        algorithm.advance(q, s, max(now, s.last))
      end
      local level = s.level
      before[i], after[i] = level, false
      if cost > 0 then
        level = cost <= q.capacity and algorithm.take(q, s, cost)
        if level then
          s.level = level
          local free, life = s.last + algorithm.resetAfter(q, s), lives[key]
          if free > expiry then
            expiry = expiryOf(free)
            life = lifeUntil(expiry)
          elseif not life or life == names[key] then
            life = 0
          end
          after[i], afterLives[i] = bytes .. pack('<dddd', s.last, level, s.prev, expiry), life
        end
        all = all and level
      end
      answers[answered + 1], answers[answered + 2] = level and 1 or 0, s.last
      answers[answered + 3], answers[answered + 4] = s.level, s.prev
      nextCharge, answered = nextCharge + 3, answered + 4
    end
  end
  if plain then
    for i = 1, size do
      local key = charges[firstCharge + 3 * i - 3]
      if all and after[i] then
        values[key], lives[key] = after[i], afterLives[i]
      else
        answers[firstAnswer + 4 * i - 1] = before[i]
        if values[key] and lives[key] == names[key] then
          lives[key] = false
          if call('PTTL', names[key]) == -1 then -- it was taken away
            local q, s = quotas[charges[firstCharge + 3 * i - 2]], scratch
            s.last, s.level, s.prev = read('<ddd', values[key], 26)
            lives[key] = lifeUntil(expiryOf(s.last + q.algorithm.resetAfter(q, s)))
          end
        end
      end
    end
    size = 0 -- what follows is for other groups
  end

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
        value = redis.pcall('GETRANGE', names[key], '0', '48')
        if type(value) == 'table' then
          if not string.find(value.err, 'WRONGTYPE', 1, true) then
            error(value.err) -- not to be taken for a key without a value
          end
          value = 'something else'
        elseif value == '' and call('EXISTS', names[key]) == 0 then
          value = false
        end
      end
      s = {
        key = names[key], quota = q, last = now, level = 0, prev = 0,
        stored = value and true, foreign = false, rewritten = false,
        changed = lives[key] and lives[key] ~= names[key], -- by a plain group
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
          written.algorithm.advance(written, s, max(now, s.last))
        else
          s.foreign = true
        end
      end
    end
    if s.foreign and op == RESET then
      s.foreign = false -- which is what it takes to get rid of it
    end

    -- Under another quota, what was used stays used. A look or a take through it gets a
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
      local used = math.min(before.capacity - before.algorithm.remaining(before, s), q.capacity)
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

-- Value and expiry go together: a key lives at least until all its units are free again.
for i = 1, #names do
  local s, life = states[i], lives[i]
  if not s then
    if life == 0 then
      call('SETRANGE', names[i], '0', values[i])
    elseif life and life ~= names[i] then
      call('SET', names[i], values[i], 'PX', life)
    end
  elseif s.foreign then
    if call('PTTL', s.key) == -1 then
      call('PEXPIRE', s.key, 3600000) -- so that it is not there for ever
    end
  elseif s.changed or s.stored and call('PTTL', s.key) == -1 then -- it was taken away
    local free, reset = isFree(s)
    local expiry = expiryOf(s.last + reset)
    life = lifeUntil(expiry)
    if free then
      if s.stored then
        call('DEL', s.key)
      end
    elseif s.kept then
      saveLog(s, s.quota.bytes)
      call('PEXPIRE', s.key, life)
    else
      call('SET', s.key, s.quota.bytes .. pack('<dddd', s.last, s.level, s.prev, expiry), 'PX', life)
    end
  end
end
return pack(saveLog and table.concat(format) or '<d' .. rep('Bddd', chargeCount), unpack(answers, 1, answered))
