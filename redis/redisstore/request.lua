-- Reads ARGV[1], which batch.go encodes, and the values of the keys.
--
-- Most of the time of a short script goes into making its functions, the locals that they share, and its
-- tables. So there are few functions, those that few batches need are made late, and tables begin with all
-- their fields.
local pack, read, sub, rep, max, call = struct.pack, struct.unpack, string.sub, string.rep, math.max, redis.call
local TAKE, SETTLE, RESET, LOOK = 0, 1, 2, 3 -- ops. LOOK decides as TAKE does, and takes nothing
local clock = redis.call('TIME')
local now = clock[1] * 1000000 + clock[2]

local request, names = ARGV[1], KEYS
local quotaCount, groupCount, chargeCount, at = read('<HHH', request)
local quotas, hasLogs, hasLongLogs
quotas, at, hasLogs, hasLongLogs = readQuotas(request, quotaCount, at, now)
local record, size = 'Bddd', 4 -- of an answer
if hasLogs then
  record, size = 'Bdddddd', 7
end
-- Many numbers at once, which is cheaper; the last of them is where the next begin.
local groups = {read('<' .. rep('BB', groupCount), request, at)}
local charges = {read('<' .. rep('HHd', chargeCount), request, groups[#groups])}
local nextCharge, nextTime = 1, charges[#charges]

local values
if hasLongLogs then
  makeLongLogs()
  values = {}
  for i = 1, #names do
    values[i] = longLogs.read(names[i], '216') -- not the entries of a long log
  end
else
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
local answers, answered = {now, unpack(charges)}, 1 -- which makes room for most of them

-- Adds to the answer at at, in a batch with logs, the times of a log's entries.
local answerTimes = hasLogs and function(at, q, s, op, cost)
  local one, event, all = 0, 0, 0
  if q.algorithm.isLog then
    if op ~= TAKE or answers[at + 1] == 1 then
      cost = 0 -- nothing is in its way
    end
    one, event, all = q.algorithm.times(q, s, math.abs(cost))
  end
  answers[at + 5], answers[at + 6], answers[at + 7] = one, event, all
end
