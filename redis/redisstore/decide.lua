-- Decides on a batch: every group in turn, each taken entirely or not at all, at one
-- time, the server's. ARGV[1] is what request.go encodes; the answer is what answer.go
-- reads. Above this line are limiter.Lua, the algorithms, quotas.lua and convert.lua; whether all
-- algorithms are there (complete); log.lua if there are long logs; and slots.lua if there are slots.
--
-- A key's value is the quota it was written under, 25 bytes, its state, 24, and when it expires, 8.
-- A long log has its ring behind the state. Other logs, and buckets that settle, have their
-- entries at the end, 16 bytes each. The name of a key has the version of this format. Nobody
-- knows what another value stands for: it is left as it is, and the groups that ask for it
-- hear so.
--
-- Most of the cost of a short script is functions and tables that it makes anew each time.
-- So there are few functions, and tables begin with all their fields.
local pack, read, sub, rep, max, min = struct.pack, struct.unpack, string.sub, string.rep, math.max, math.min
local clock = redis.call('TIME')
local now = clock[1] * 1000000 + clock[2]

local request, names, call = ARGV[1], KEYS, redis.call
local quotaCount, groupCount, chargeCount, at = read('<HHH', request)
if slots then
  at = slots.read(request, at)
end
local quotas, hasLogs
quotas, at, hasLogs = readQuotas(request, quotaCount, at, now)
local record, size = 'Bddd', 4 -- of an answer
if hasLogs then
  record, size = 'Bdddddd', 7
end
-- Many numbers at once, which is cheaper; the last of them is where the next begin.
local groups = {read('<' .. rep('BB', groupCount), request, at)}
local charges = {read('<' .. rep('HHd', chargeCount), request, groups[#groups])}
local nextTime = charges[#charges]

-- All values at once too, unless some may be long logs.
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

if slots then
  slots.open(values, names, now)
end

-- Whether all units of s are free, and after how many microseconds they are.
local function isFree(s)
  local reset = s.quota.algorithm.resetAfter(s.quota, s)
  return s.level == 0 and s.prev == 0 or reset <= 0, reset
end

local TAKE, SETTLE, RESET = 0, 1, 2

-- Owes that many units, or refunds as many below 0.
local function correct(q, s, owed, at)
  s.changed = true
  if owed > 0 then
    q.algorithm.owe(q, s, min(owed, 2 * q.capacity))
  else
    q.algorithm.refund(q, s, min(-owed, q.capacity), at)
  end
end

local function copyOf(s)
  local copy = {}
  for name, value in pairs(s) do
    copy[name] = value
  end
  return copy
end

local function clear(s)
  s.last, s.level, s.prev, s.log, s.kept = now, 0, 0, '', 0
  s.rewritten = true
end

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

-- Most groups are plain: they change keys that have no value, or one of the quota they are
-- charged under. Such a key has no table. What it has is its value, and its life: its name
-- until the value changes; then how many milliseconds it is to live, or KEPT if its expiry is
-- late enough, RESIZED if moreover the value has another length, or GONE; or false, if it did
-- not change and was seen to have an expiry.
local KEPT, RESIZED, GONE = 0, -1, -2
local scratch = {last = 0, level = 0, prev = 0, log = '', kept = 0}
local lives = {unpack(names)}
local before, after, afterLives = {false, false, false}, {false, false, false}, {false, false, false}
local logs = {}

local states = {false} -- of the other keys
local group, levels, taken = {false}, {false}, {}
local answers, answered = {now, unpack(charges)}, 1 -- which makes room for most of them
local answerTimes = hasLogs and function(answer, q, s, op, cost)
  local one, event, all = 0, 0, 0
  if q.algorithm.isLog then
    if op ~= TAKE or answers[answer + 1] == 1 then
      cost = 0 -- nothing is in its way
    end
    one, event, all = q.algorithm.times(q, s, cost)
  end
  answers[answer + 5], answers[answer + 6], answers[answer + 7] = one, event, all
end
local nextCharge = 1
for g = 1, groupCount do
  local op, count = groups[2 * g - 1], groups[2 * g]
  local firstCharge, firstAnswer = nextCharge, answered
  local fit = not slots or slots.fit(g, op, now)
  local all = fit
  local firstTime = nextTime
  local plain = op ~= RESET and areDifferent
  if plain then
    for i = 1, count do
      local key, q, cost = charges[nextCharge], quotas[charges[nextCharge + 1]], charges[nextCharge + 2]
      local optional = op == TAKE and cost < 0
      if optional then
        cost = -cost
      end
      local s, value, bytes, algorithm, expiry = scratch, values[key], q.bytes, q.algorithm, 0
      local hasEntries = q.hasEntries
      if states[key] or value and (sub(value, 1, 25) ~= bytes
          or #value < 57 or #value > 57 and (not hasEntries or #value % 16 ~= 9)) then
        plain = false
        break
      end
      s.last, s.level, s.prev, s.log = now, 0, 0, ''
      if value then
        s.last, s.level, s.prev, expiry = read('<dddd', value, 26)
        if hasEntries then
          s.log = sub(value, 58)
        end
        if s.last > now and algorithm.isAhead(q, s, now) then
          plain = false
          break
        end
        algorithm.advance(q, s, max(now, s.last))
      end
      local level, log = s.level, s.log
      before[i], after[i] = level, false
      if hasEntries then
        logs[i] = log
      end
      local changes = cost > 0
      if op == TAKE then
        if cost > 0 then
          level = false
          if cost <= q.capacity then
            level, log = algorithm.take(q, s, cost)
          end
          if level then
            s.level = level
            if hasEntries then
              s.log = log
            end
          else
            changes = false
            all = all and optional
          end
        end
      else
        local at
        at, nextTime = read('<d', request, nextTime)
        level = false
        changes = cost > 0 or cost < 0 and value
        if changes then
          correct(q, s, cost, at)
        end
      end
      if changes then
        local reset = algorithm.resetAfter(q, s)
        if op ~= TAKE and (s.level == 0 and s.prev == 0 or reset <= 0) then
          s.last, s.level, s.prev = now, 0, 0
          after[i], afterLives[i] = 'nothing', GONE
        else
          local free, life = s.last + reset, lives[key]
          if free > expiry then
            expiry = expiryOf(free)
            life = lifeUntil(expiry)
          elseif not life or life == names[key] then
            life = hasEntries and RESIZED or KEPT
          end
          local changed = bytes .. pack('<dddd', s.last, s.level, s.prev, expiry)
          if hasEntries then
            changed = changed .. s.log
          end
          after[i], afterLives[i] = changed, life
        end
      end
      answers[answered + 1], answers[answered + 2] = level and 1 or 0, s.last
      answers[answered + 3], answers[answered + 4] = s.level, s.prev
      nextCharge, answered = nextCharge + 3, answered + size
    end
  end
  if plain then
    for i = 1, count do
      local key = charges[firstCharge + 3 * i - 3]
      if all and after[i] then
        values[key], lives[key] = after[i], afterLives[i]
        if op ~= TAKE and lives[key] == GONE then
          values[key] = false
        end
      else
        answers[firstAnswer + size * (i - 1) + 3] = before[i]
        if values[key] and lives[key] == names[key] then
          lives[key] = false
          if call('PTTL', names[key]) == -1 then -- it was taken away
            local q, s = quotas[charges[firstCharge + 3 * i - 2]], scratch
            s.last, s.level, s.prev = read('<ddd', values[key], 26)
            s.log = sub(values[key], 58)
            lives[key] = lifeUntil(expiryOf(s.last + q.algorithm.resetAfter(q, s)))
          end
        end
      end
      if hasLogs then
        local q, cost = quotas[charges[firstCharge + 3 * i - 2]], math.abs(charges[firstCharge + 3 * i - 1])
        local s, answer = scratch, firstAnswer + size * (i - 1)
        s.last, s.level, s.prev = answers[answer + 2], answers[answer + 3], answers[answer + 4]
        s.log = all and after[i] and sub(after[i], 58) or logs[i]
        answerTimes(answer, q, s, op, cost)
      end
    end
    count = 0 -- what follows is for other groups
  else
    all, nextCharge, answered, nextTime = fit, firstCharge, firstAnswer, firstTime
  end

  for i = 1, count do
    local key, q, cost = charges[nextCharge], quotas[charges[nextCharge + 1]], charges[nextCharge + 2]
    nextCharge = nextCharge + 3
    local optional = op == TAKE and cost < 0
    if optional then
      cost = -cost
    end
    local at
    if op == SETTLE then
      at, nextTime = read('<d', request, nextTime)
    end

    -- The state of the key at the present, which is never before its own past.
    local s = states[key]
    if not s then
      local value
      if values then
        value = values[key]
      else
        value = readValue(names[key], '216') -- all but the entries of a long log
      end
      s = {
        key = names[key], quota = q, last = now, level = 0, prev = 0, log = '', kept = 0, first = 0,
        stored = value and true or lives[key] == GONE, foreign = false, rewritten = false,
        changed = lives[key] and lives[key] ~= names[key], -- by a plain group
      }
      states[key] = s
      if value then
        local bytes = sub(value, 1, 25)
        local written = q
        if #value < 57 then
          written = nil
        elseif bytes ~= q.bytes then
          local kind, a, b, c = read('<Bddd', bytes)
          local algorithm = algorithms[kind]
          written = nil
          if algorithm then
            written = algorithm.compile(a, b, c)
            written.algorithm = algorithm
            written.bytes = bytes
            written.settles = q.settles
          end
          if not complete and (not written or written.isLong) then
            error('WEIRINCOMPLETE')
          end
        end
        local hasEntries = written and (written.hasEntries or written.algorithm.hasLows)
        if hasEntries and (written.isLong and #value < 65 or not written.isLong and #value % 16 ~= 9) then
          written = nil
        end
        if written then
          s.quota = written
          s.last, s.level, s.prev = read('<ddd', value, 26)
          if written.isLong then
            local first, kept = read('<dd', value, 50)
            s.first = max(0, min(first, written.capacity - 1))
            s.kept = max(0, min(kept, written.capacity))
          elseif hasEntries then
            s.log = sub(value, 58)
          end
          if s.last > now and written.algorithm.isAhead(written, s, now) then
            s.last, s.level, s.prev, s.log, s.kept, s.rewritten = now, 0, 0, '', 0, true
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
    -- other. What is refunded stays under the quota that it was written under, and what is
    -- owed too if that counts more; the copy is for the answer alone then. That takes its algorithm, with its lows.
    local from = s.quota
    if q.calendar and s.last >= q.second and from.capacity == q.capacity
        and (from.first == q.second and from.second == q.third or from.first == q.third) then
      q = from -- the same limit: the clock has stepped back to before the window of s, which stays
    end
    local isOther = from ~= q and from.bytes ~= q.bytes
    local isOver = isOther and from.calendar and s.last >= from.second -- Quota.isOver
    local isCorrected = isOther and op == SETTLE and (cost < 0 or cost > 0 and not isOver) and not isFree(s)
    if isCorrected and not isOver then
      if not complete then
        error('WEIRINCOMPLETE')
      end
      local converted
      if cost > 0 then
        converted = copyOf(s)
        convert(q, from, converted, now)
        correct(converted.quota, converted, cost)
      end
      correct(s.quota, s, cost, at)
      if converted and usedOf(from, s) <= usedOf(q, converted) then
        -- As Quota.Settle: a rule that only looks and owes comes to its limit.
        for name, value in pairs(converted) do
          s[name] = value
        end
        s.rewritten = true
        isOther = false
      elseif cost < 0 and isFree(s) then
        clear(s)
      end
    end
    if isOther then
      if isCorrected or op == TAKE or cost == 0 and op ~= RESET then
        s = copyOf(s)
      end
      convert(q, from, s, now)
      s.rewritten = true
    end

    group[i] = s
    levels[i] = false
    if s.foreign then
      all = false
    elseif isCorrected then
      -- It was, above.
    elseif op == TAKE then
      local level = s.level
      if cost > 0 then
        level = false
        if cost <= q.capacity then
          level, taken[i] = q.algorithm.take(q, s, cost)
        end
      end
      levels[i] = level
      all = all and (level or optional)
    elseif op == SETTLE and cost > 0 then
      correct(s.quota, s, cost)
    elseif (s.stored or s.changed) and (op == RESET or cost < 0) then
      s.changed = true
      if op == SETTLE then
        correct(s.quota, s, cost, at)
      end
      if op == RESET or isFree(s) then
        clear(s)
      end
    end
  end

  for i = 1, count do
    local s = group[i]
    local level = levels[i]
    local cost = math.abs(charges[firstCharge + 3 * i - 1])
    if op == TAKE and all and level and cost > 0 then
      s.level = level
      s.log = taken[i] or s.log
      s.changed = true
      states[charges[firstCharge + 3 * i - 3]] = s
    end
    answers[answered + 1] = level and 1 or 0
    if s.foreign then
      answers[answered + 1] = 2
    end
    answers[answered + 2], answers[answered + 3], answers[answered + 4] = s.last, s.level, s.prev
    if hasLogs then
      answerTimes(answered, s.quota, s, op, cost)
    end
    answered = answered + size
  end
  if slots and op == TAKE and all then
    slots.take()
  end
end

local written = values or {}
if slots then
  slots.store(names, written, lives, KEPT, RESIZED, lifeUntil, now)
end

-- Value and expiry go together: a key lives at least until all its units are free again.
for i = 1, #names do
  local s, life = states[i], lives[i]
  if not s then
    if life == KEPT then
      call('SETRANGE', names[i], '0', written[i])
    elseif life == RESIZED then
      call('SET', names[i], written[i], 'KEEPTTL')
    elseif life == GONE then
      call('DEL', names[i])
    elseif life and life ~= names[i] then
      call('SET', names[i], written[i], 'PX', life)
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
    elseif s.quota.isLong then
      saveLog(s)
      call('PEXPIRE', s.key, life)
    else
      call('SET', s.key, s.quota.bytes .. pack('<dddd', s.last, s.level, s.prev, expiry) .. s.log, 'PX', life)
    end
  end
end
local reply = pack('<d' .. rep(record, chargeCount), unpack(answers, 1, answered))
if slots then
  reply = reply .. slots.reply()
end
return reply
