-- Counts slots, in a batch that has charges of slots. A key's value is the limit, the mean time for
-- which a slot is held, and when the key expires, 8 bytes each; then 32 bytes for each process that held
-- slots lately: which process, the number of its last message about the key, how many slots it holds, and
-- until when they count. A process that holds none stays until then, for its number, and a key that is
-- used again need not be made again.
--
-- A message says how many slots of a key its process holds, whatever Redis counted before. So the
-- next message mends one that was lost or came twice, and a message that is older than the last
-- one is void. Slots are acquired on top of what the message says.
local function newSlots(put, lifeUntil)
  local read, pack, sub, rep, min, max = struct.unpack, struct.pack, string.sub, string.rep, math.min, math.max
  local TAKE, RESET = 0, 2
  local HELD, FOREIGN, VOID = 0, 2, 3 -- what becomes of a message
  local heldWeight = 8

  local process, lease, messages, asks, ends
  local answers, answered, nextAsk, firstAsk = {}, 0, 1, 1

  -- What is known of the key of each message: a table for each field is cheaper than one for each
  -- key. How many slots the process holds, the mean, the key's expiry and the value's length;
  -- then what is seldom there: what others hold, until when, and their part of the value; a state
  -- that is not HELD; and whether it is to be written.
  local mine, means, expiries, sizes = {}, {}, {}, {}
  local others, lasts, rests, states, changed = {}, {}, {}, {}, {}

  local slots = {keys = false, read = false, open = false, fit = false, take = false, store = false, reply = false}

  -- Reads what request.go encodes.
  function slots.read(request, at, messageCount)
    local askCount
    process, lease, askCount, at = read('<ddH', request, at)
    messages = {read('<' .. rep('HdddBB', messageCount), request, at)}
    at = table.remove(messages)
    asks = {read('<' .. rep('HHdd', askCount), request, at)}
    at = table.remove(asks)
    local endCount = 0
    for i = 6, #messages, 6 do
      endCount = endCount + messages[i]
    end
    ends = {read('<' .. rep('d', endCount), request, at)}
    return table.remove(ends)
  end

  -- The numbers of the keys of slots.
  function slots.keys()
    local keys = {}
    for i = 1, #messages, 6 do
      keys[messages[i]] = true
    end
    return keys
  end

  -- The mean time of slots of which one more was held since that time.
  local function withEnd(mean, now, since)
    local held = now - since
    if since <= 0 or held < 0 then
      return mean
    end
    if mean == 0 then
      return max(1, held)
    end
    local step = (held - mean) / heldWeight
    return max(1, mean + (step < 0 and math.ceil(step) or math.floor(step)))
  end

  -- Brings each key to the present, with what its message says.
  function slots.open(values, now)
    local nextEnd, latest = 1, now + lease
    for m = 1, #messages / 6 do
      local at = 6 * m
      local key, held, number, endCount = messages[at - 5], messages[at - 3], messages[at - 2], messages[at]
      local value = values[key]
      local known, knownUntil, mean = 0, 0, 0
      mine[m], expiries[m], sizes[m] = held, 0, 0
      if value and #value % 32 ~= 24 then
        states[m] = FOREIGN
      elseif value then
        sizes[m] = #value
        mean, expiries[m] = read('<dd', value, 9)
        for from = 25, #value, 32 do
          local holder, said, count, expiry = read('<dddd', value, from)
          if holder == process then
            known, knownUntil = count, min(expiry, latest)
            if said > number then
              states[m], mine[m] = VOID, count
            end
          elseif expiry > now then
            local entry = sub(value, from, from + 31)
            if expiry > latest then -- the clock has stepped back
              expiry, changed[m] = latest, true
              entry = pack('<dddd', holder, said, count, latest)
            end
            others[m] = (others[m] or 0) + count
            rests[m] = (rests[m] or '') .. entry
            lasts[m] = max(lasts[m] or 0, expiry)
          end
        end
      end
      if known ~= held or endCount > 0 or messages[at - 1] == 1 or held > 0 and knownUntil - now < lease * 7 / 8 then
        changed[m] = true
      end
      for _ = 1, endCount do
        mean = withEnd(mean, now, ends[nextEnd])
        nextEnd = nextEnd + 1
      end
      means[m] = mean
    end
  end

  -- Whether the slots that the next group asks for are free, if it asks for any.
  function slots.fit(g, op, now)
    local fit = true
    firstAsk = nextAsk
    while asks[nextAsk] == g do
      local m, cost, capacity = asks[nextAsk + 1], asks[nextAsk + 2], asks[nextAsk + 3]
      nextAsk = nextAsk + 4
      local optional = op == TAKE and cost < 0
      if optional then
        cost = -cost
      end
      if op == RESET and states[m] == FOREIGN then
        states[m], changed[m] = nil, true -- which releases no slots: events in flight go on
      end
      local used, code = (others[m] or 0) + mine[m], 1
      if states[m] == FOREIGN then
        code = 2
      elseif op == TAKE and cost > 0 and (states[m] or used + cost > capacity) then
        code = 0
      end
      fit = fit and (code == 1 or code == 0 and optional)
      answers[answered + 1], answers[answered + 2] = code, now
      answers[answered + 3], answers[answered + 4] = used, means[m]
      answered = answered + 4
    end
    return fit
  end

  -- Takes the slots of the group that was asked about last.
  function slots.take()
    local answer = answered - (nextAsk - firstAsk)
    for at = firstAsk, nextAsk - 1, 4 do
      local m, cost = asks[at + 1], math.abs(asks[at + 2])
      if cost > 0 and answers[answer + 1] == 1 then
        mine[m], changed[m] = mine[m] + cost, true
        answers[answer + 3] = answers[answer + 3] + cost
      end
      answer = answer + 4
    end
  end

  function slots.store(names, now)
    local latest = now + lease
    for m = 1, #mine do
      local at = 6 * m
      local name = names[messages[at - 5]]
      if states[m] == FOREIGN then
        if redis.call('PTTL', name) == -1 then
          redis.call('PEXPIRE', name, 3600000)
        end
      elseif changed[m] and not states[m] then
        local last, life, expiry = max(lasts[m] or 0, latest), false, expiries[m]
        if last > expiry then
          expiry = last + lease / 2 -- so that it need not be set each time
          life = lifeUntil(expiry, now)
        end
        local value = pack('<ddddddd', messages[at - 4], means[m], expiry, process, messages[at - 2], mine[m], latest)
        if rests[m] then
          value = value .. rests[m]
        end
        put(name, value, life, sizes[m])
      end
    end
  end

  -- What became of the messages, and the answers.
  function slots.reply()
    for m = 1, #mine do
      answers[answered + m] = states[m] or HELD
    end
    return pack('<' .. rep('Bddd', answered / 4) .. rep('B', #mine), unpack(answers, 1, answered + #mine))
  end
  return slots
end
