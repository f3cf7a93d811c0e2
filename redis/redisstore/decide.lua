-- Decides on a batch, which batch.go encodes: on every call in turn, each taken entirely or not at all, at one time,
-- the server's. reply.go reads the reply.
--
-- Most of the time of a short script goes into making its functions and tables. So functions that few batches need are
-- made late, and a state that only one call needs is in a table that the next call uses again.
local TAKE, SETTLE, RESET, LOOK = 0, 1, 2, 3 -- ops. LOOK decides as TAKE does, and takes nothing

local request, names = ARGV[1], KEYS
local quotaCount, callCount, chargeCount, at = read('<HHH', request)
local quotas, hasLogs, hasLongLogs
quotas, at, hasLogs, hasLongLogs = readQuotas(request, quotaCount, at)
-- Many numbers at once, which is cheaper; the last of them is where the next begin.
local calls = {read('<' .. rep('BB', callCount), request, at)}
local charges = {read('<' .. rep('HHd', chargeCount), request, calls[#calls])}
local nextCharge, nextTime = 1, charges[#charges]
local values = readValues(names, hasLongLogs)

local isRepeated = {} -- by key: whether several charges name it
if chargeCount > #names then
  local isKnown = {}
  for i = 1, 3 * chargeCount, 3 do
    local key = charges[i]
    isRepeated[key] = isKnown[key]
    isKnown[key] = true
  end
end

local record, size = 'Bddd', 4 -- of each charge in the reply
if hasLogs then
  record, size = 'Bdddddd', 7
end
local reply, filled = {now, unpack(charges)}, 1 -- which makes room for most of it
local extra = '' -- the end of the reply: about states of other limits

-- Adds the times of a log's entries to the reply about a charge.
local addTimes = hasLogs and function(q, s, cost)
  local one, event, all = 0, 0, 0
  if q and q.logs then
    one, event, all = q.algorithm.times(q, s, cost)
  end
  reply[filled + 5] = one
  reply[filled + 6] = event
  reply[filled + 7] = all
end

local states = {} -- by key, of keys that several charges name
-- By charge of a call: a table for a state, the state, the level and the log after the event if it fits, the quota if
-- other limits use the counter too, and the longest Delay.
local spare, current, levels, logs, others, longest = {false}, {false}, {false}, {false}, {false}, {}

for c = 1, 2 * callCount, 2 do
  local op, count, charge, all = calls[c], calls[c + 1], nextCharge, true
  if op == LOOK then
    op, all = TAKE, false
  end
  for i = 1, count do
    local key, q, cost = charges[charge], quotas[charges[charge + 1]], charges[charge + 2]
    charge = charge + 3
    local s, other, level, log = states[key], nil, nil, nil
    if not s then
      s = spare[i] or newState(q)
      spare[i] = s
      s = load(s, names[key], values[key], q)
    end
    if s.quota ~= q or s.others then
      if s.foreign or s.others or s.quota.bytes ~= q.bytes then
        shapes = shapes or newShapes()
        other = q
      else
        q = s.quota
      end
    end

    if op == TAKE then
      local optional, within = false, nil
      if cost < 0 then
        optional, cost = true, -cost
      end
      if q.queue then
        within, nextTime = read('<d', request, nextTime)
      end
      if other then
        longest[i] = within
        log = not s.foreign and shapes.taken(q, s, cost, within)
        level, optional = log and s.level, optional and not s.foreign
      elseif cost == 0 then
        level = s.level
      else
        local units = cost * q.unit
        local after = s.level + units
        if (s.prev == 0 and after or q.algorithm.used(q, s) * q.unit + units) <= q.full
            and (not within or s.level <= within * q.refill) then
          level, log = after, ''
          if q.hasEntries then
            log = q.algorithm.record(s, cost, after)
          end
        end
      end
      if not level and not optional then
        all = false
      end
    elseif op == RESET then
      local changed = s.changed or values[key]
      s, other = newState(q), nil
      s.changed = changed
    else
      local at
      at, nextTime = read('<d', request, nextTime)
      if not s.foreign and cost ~= 0 and (values[key] or s.changed or cost > 0) then
        if other then
          s = shapes.settled(q, s, cost, at)
        elseif cost > 0 then
          q.algorithm.owe(q, s, math.min(cost, 2 * q.capacity))
        else
          q.algorithm.refund(q, s, math.min(-cost, q.capacity), at)
          if q.algorithm.wait(q, s, 0) <= 0 then
            s = newState(q)
          end
        end
        s.changed = true
      end
    end
    current[i] = s
    levels[i] = level
    logs[i] = log
    others[i] = other
    if isRepeated[key] then
      states[key] = s
      spare[i] = false
    end
  end

  for i = 1, count do
    local key, cost, s, level, q = charges[nextCharge], charges[nextCharge + 2], current[i], levels[i], others[i]
    local code, isTaken = 0, false
    if level then
      code, isTaken = 1, all and cost ~= 0
      if isTaken and q then
        s = logs[i]
      elseif isTaken then
        s.level = level
        s.log = logs[i]
        s.changed = true
      end
    end
    local own, fits = s, op ~= TAKE or level
    if q and s.foreign then
      code = 2
    elseif q then
      local isShared
      own, isShared = shapes.stateOf(s, q)
      if own.quota.bytes ~= q.bytes or not isShared then
        extra = extra .. shapes.describe(q, s, (isTaken or not fits) and math.abs(cost) or 0, fits, longest[i])
        code = code + 4
      end
    end
    reply[filled + 1] = code
    reply[filled + 2] = own.last
    reply[filled + 3] = own.level
    reply[filled + 4] = own.prev
    if hasLogs then
      addTimes(code < 2 and own.quota, own, fits and 0 or math.abs(cost)) -- nothing is in the way of what fits
    end
    filled = filled + size
    nextCharge = nextCharge + 3
    if isRepeated[key] then
      states[key] = s
    else
      save(s, names[key], values[key])
    end
  end
end

for key, s in pairs(states) do
  save(s, names[key], values[key])
end
return pack('<d' .. rep(record, chargeCount), unpack(reply, 1, filled)) .. extra
