-- The fast path, a block of decide.lua: as a function it would take up to a tenth more of Redis's time. It
-- decides on a group if it is plain: each key has no value, or a value that was written under the quota of its
-- charge. Such a key has no state in a table. Its value is unpacked and packed for each charge, and lives
-- has its life: the key's name until the value changes, and then for how many milliseconds the key lives,
-- KEPT if its expiry is late enough, RESIZED if the value may also have another length, or GONE. It is
-- false if the value did not change and was seen to have an expiry.
--
-- If the group is not plain, isPlain is false after this block, and nothing else has changed.
local charge, answer, time, allFit, s = nextCharge, answered, nextTime, all, scratch
for i = 1, count do
  local key, q, cost = charges[charge], quotas[charges[charge + 1]], charges[charge + 2]
  local optional = op == TAKE and cost < 0
  if optional then
    cost = -cost
  end
  local value, bytes, algorithm, hasEntries, expiry = values[key], q.bytes, q.algorithm, q.hasEntries, 0
  if states[key] or value and (sub(value, 1, 25) ~= bytes
      or #value < 57 or #value > 57 and (not hasEntries or #value % 16 ~= 9)) then
    isPlain = false
    break
  end
  s.last, s.level, s.prev, s.log = now, 0, 0, ''
  if value then
    s.last, s.level, s.prev, expiry = read('<dddd', value, 26)
    if hasEntries then
      s.log = sub(value, 58)
    end
    if s.last > now and algorithm.isAhead(q, s, now) then
      isPlain = false
      break
    end
    algorithm.advance(q, s, max(now, s.last))
  end
  local within
  if op == TAKE and algorithm.isQueue then
    within, time = read('<d', request, time)
  end
  local level, log = s.level, s.log
  before[i], after[i] = level, false
  if hasEntries then
    logs[i] = log
  end
  local changes = cost > 0
  if op == TAKE then
    if changes then
      level = false
      if cost <= q.capacity then
        level, log = algorithm.take(q, s, cost, within)
      end
      if level then
        s.level = level
        if hasEntries then
          s.log = log
        end
      else
        changes = false
        allFit = allFit and optional
      end
    end
  else
    local at
    at, time = read('<d', request, time)
    level = false
    changes = cost > 0 or cost < 0 and value
    if changes then
      s.quota = q
      correct(s, cost, at)
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
        expiry = expiryOf(free, now)
        life = lifeUntil(expiry, now)
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
  answers[answer + 1], answers[answer + 2] = level and 1 or 0, s.last
  answers[answer + 3], answers[answer + 4] = s.level, s.prev
  charge, answer = charge + 3, answer + size
end

if isPlain then
  for i = 1, count do
    local key = charges[nextCharge]
    if allFit and after[i] then
      values[key], lives[key] = after[i], afterLives[i]
      if lives[key] == GONE then
        values[key] = false
      end
    else
      answers[answered + 3] = before[i]
      if values[key] and lives[key] == names[key] then
        lives[key] = false
        if call('PTTL', names[key]) == -1 then -- it was taken away
          call('PEXPIRE', names[key], lifeUntil(read('<d', values[key], 50), now))
        end
      end
    end
    if hasLogs then
      s.last, s.level, s.prev = answers[answered + 2], answers[answered + 3], answers[answered + 4]
      s.log = allFit and after[i] and sub(after[i], 58) or logs[i]
      answerTimes(answered, quotas[charges[nextCharge + 1]], s, op, charges[nextCharge + 2])
    end
    nextCharge, answered = nextCharge + 3, answered + size
  end
  nextTime, all = time, allFit
end
