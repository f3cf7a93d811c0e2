-- Decides on a batch: every group in turn, each taken entirely or not at all, at one time, the server's.
-- The answer is what answer.go reads.

-- If a few keys are asked for again and again, a table for each costs less than plain.lua.
local areDifferent = not hasLongLogs and chargeCount < 2 * #names
local KEPT, RESIZED, GONE = 0, -1, -2
local scratch = {quota = false, last = 0, level = 0, prev = 0, log = '', kept = 0, changed = false}
local before, after, afterLives = {false, false, false}, {false, false, false}, {false, false, false}
local lives, states = {unpack(names)}, {false}
local load, many, isFree, clear, write -- once they are needed
local group, levels, logs, ofMany, longest = {false}, {false}, {}, {}, {}
local extra = '' -- what answers about states of other limits have besides

for g = 1, groupCount do
  local op, count = groups[2 * g - 1], groups[2 * g]
  local all = op ~= LOOK
  if op == LOOK then
    op = TAKE
  end
  local isPlain = areDifferent and op ~= RESET
  if isPlain then
    --[[plain.lua]]
  end

  if not isPlain then
    if not load then
      load, many, isFree, clear, write = newStates(now)
    end
    local charge = nextCharge
    for i = 1, count do
      local key, q, cost = charges[charge], quotas[charges[charge + 1]], charges[charge + 2]
      charge = charge + 3
      local optional, at = op == TAKE and cost < 0
      if optional then
        cost = -cost
      end
      local within = false
      if op == SETTLE then
        at, nextTime = read('<d', request, nextTime)
      elseif op == TAKE and q.algorithm.isQueue then
        within, nextTime = read('<d', request, nextTime)
      end

      local s = states[key]
      if not s then
        s = load(names[key], values[key], q)
        if lives[key] and lives[key] ~= names[key] then
          s.changed, s.expiry = true, 0 -- by a plain group
        end
        states[key] = s
      end
      local hasMany = s.others or s.quota.bytes ~= q.bytes
      if hasMany and op == RESET then
        s.quota, hasMany = q, false
      elseif not hasMany then
        q = s.quota
      end
      if op == RESET then
        s.foreign = nil -- only a reset removes it
      end

      local level, log = false, false
      if s.foreign then
        all = false
      elseif hasMany and op == TAKE then
        level, log = many().taken(s, q, cost, within)
        all = all and (level or optional)
      elseif hasMany then
        if cost ~= 0 then
          s = many().settled(s, q, cost, at)
          if many().areFree(s) then
            s.quota = q
            clear(s)
          end
          states[key] = s
        end
      elseif op == TAKE then
        level = s.level
        if cost > 0 then
          level = false
          if cost <= q.capacity then
            level, log = q.algorithm.take(q, s, cost, within)
          end
        end
        all = all and (level or optional)
      elseif op == SETTLE and cost > 0 then
        correct(s, cost)
      elseif (values[key] or s.changed) and (op == RESET or cost < 0) then
        s.changed = true
        if op == SETTLE then
          correct(s, cost, at)
        end
        if op == RESET or isFree(s) then
          clear(s)
        end
      end
      group[i], levels[i], logs[i], ofMany[i], longest[i] = s, level, log, hasMany and q, within
    end

    for i = 1, count do
      local s, level, cost, q = group[i], levels[i], charges[nextCharge + 2], ofMany[i]
      local isTaken, own, isShared = level and all and cost ~= 0, s, true
      if q then
        if isTaken then
          s = logs[i]
          s.changed = true
          states[charges[nextCharge]] = s
        end
        own, isShared = many().stateOf(s, q)
      elseif isTaken then
        s.level, s.changed = level, true
        s.log = logs[i] or s.log
        states[charges[nextCharge]] = s
      end
      answers[answered + 1], answers[answered + 2] = s.foreign and 2 or level and 1 or 0, own.last
      answers[answered + 3], answers[answered + 4] = own.level, own.prev
      if q and own.quota.bytes ~= q.bytes or not isShared then
        local fits = op ~= TAKE or level
        extra = extra .. many().describe(own, isShared, q, (isTaken or not fits) and math.abs(cost) or 0, fits, longest[i])
        answers[answered + 1] = answers[answered + 1] + 4
        if hasLogs then
          answers[answered + 5], answers[answered + 6], answers[answered + 7] = 0, 0, 0
        end
      elseif hasLogs then
        answerTimes(answered, own.quota, own, op, cost)
      end
      nextCharge, answered = nextCharge + 3, answered + size
    end
  end
end

for i = 1, #names do
  local name, s, life = names[i], states[i], lives[i]
  if s then
    write(name, s, values[i])
  elseif life == KEPT then
    call('SETRANGE', name, '0', values[i])
  elseif life == RESIZED then
    call('SET', name, values[i], 'KEEPTTL')
  elseif life == GONE then
    call('DEL', name)
  elseif life and life ~= name then
    call('SET', name, values[i], 'PX', life)
  end
end
return pack('<d' .. rep(record, chargeCount), unpack(answers, 1, answered)) .. extra
