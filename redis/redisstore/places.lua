-- Counts events that are under way, before decide.lua, where there are such charges. A key's
-- value is the limit and the mean time for which a place is held, 8 bytes each; then, of each
-- process that holds some, 32: which it is, the number of its last message about the key, how
-- many it holds, and until when that counts.
--
-- A message says how many places of a key its process holds, which stands whatever was known
-- of it here. So one that is lost, or comes twice, is made good by the next; one that comes
-- after a later one is void. Places are taken on top of what the message says.
do
  local read, pack, sub, rep, min, max = struct.unpack, struct.pack, string.sub, string.rep, math.min, math.max
  local TAKE, RESET = 0, 2
  local HELD, FOREIGN, VOID = 0, 2, 3 -- what becomes of a message
  local heldWeight = 8

  local process, lease, messages, asks, ends
  local keys = {} -- by the message
  local answers, answered, nextAsk, firstAsk = {}, 0, 1, 1

  places = {}

  -- Reads what request.go encodes.
  function places.read(request, at)
    local messageCount, askCount
    process = sub(request, at, at + 7)
    lease, messageCount, askCount, at = read('<dHH', request, at + 8)
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

  -- The mean time of places of which one more was held since that time.
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
  function places.open(values, names, now)
    local nextEnd = 1
    for i = 1, #messages, 6 do
      local key, mine, number = messages[i], messages[i + 2], messages[i + 3]
      local value
      if values then
        value = values[key]
      else
        value = redis.pcall('GET', names[key])
        if type(value) == 'table' then
          if not string.find(value.err, 'WRONGTYPE', 1, true) then
            error(value.err)
          end
          value = 'something else'
        end
      end
      local p = {
        key = key, capacity = messages[i + 1], mine = mine, number = number, guarded = messages[i + 4] == 1,
        state = HELD, stored = value and true, others = 0, rest = '', last = 0, mean = 0, changed = false,
      }
      keys[#keys + 1] = p
      local known, knownUntil = 0, 0
      if value and #value % 32 ~= 16 then
        p.state = FOREIGN
      elseif value then
        local latest = now + lease
        p.mean = read('<d', value, 9)
        for at = 17, #value, 32 do
          local said, held, expiry = read('<ddd', value, at + 8)
          if sub(value, at, at + 7) == process then
            known, knownUntil = held, min(expiry, latest)
            if said > number then
              p.state, p.mine = VOID, held
            end
          elseif expiry > now then
            local entry = sub(value, at, at + 31)
            if expiry > latest then -- the clock has stepped back
              expiry, p.changed = latest, true
              entry = sub(entry, 1, 24) .. pack('<d', latest)
            end
            p.others = p.others + held
            p.rest = p.rest .. entry
            p.last = max(p.last, expiry)
          end
        end
      end
      p.changed = p.changed or p.guarded or known ~= mine or messages[i + 5] > 0 and value
        or mine > 0 and knownUntil - now < lease * 7 / 8
      for _ = 1, messages[i + 5] do
        p.mean = withEnd(p.mean, now, ends[nextEnd])
        nextEnd = nextEnd + 1
      end
    end
  end

  -- Whether the places that the next group asks for are free, if it asks for any.
  function places.fit(g, op, now)
    local fit = true
    firstAsk = nextAsk
    while asks[nextAsk] == g do
      local p, cost, capacity = keys[asks[nextAsk + 1]], asks[nextAsk + 2], asks[nextAsk + 3]
      nextAsk = nextAsk + 4
      if op == RESET and p.state ~= VOID then
        p.state, p.others, p.rest, p.last, p.mean, p.changed = HELD, 0, '', 0, 0, true
      end
      local used, code = p.others + p.mine, 1
      if p.state == FOREIGN then
        code = 2
      elseif op == TAKE and cost > 0 and (p.state == VOID or used + cost > capacity) then
        code = 0
      end
      fit = fit and code == 1
      answers[answered + 1], answers[answered + 2], answers[answered + 3], answers[answered + 4] = code, now, used, p.mean
      answered = answered + 4
    end
    return fit
  end

  -- Takes the places of the group that was asked about last.
  function places.take()
    local answer = answered - (nextAsk - firstAsk)
    for at = firstAsk, nextAsk - 1, 4 do
      local p, cost = keys[asks[at + 1]], asks[at + 2]
      if cost > 0 then
        p.mine = p.mine + cost
        p.changed = true
        answers[answer + 3] = answers[answer + 3] + cost
      end
      answer = answer + 4
    end
  end

  -- Says what is to be stored, and for how long; GONE: nothing.
  function places.store(names, values, lives, GONE, lifeUntil, now)
    for i = 1, #keys do
      local p = keys[i]
      if p.state == FOREIGN then
        if redis.call('PTTL', names[p.key]) == -1 then
          redis.call('PEXPIRE', names[p.key], 3600000)
        end
      elseif p.state == HELD and p.changed then
        local entries = p.rest
        if p.mine > 0 or p.guarded then
          entries = entries .. process .. pack('<ddd', p.number, p.mine, now + lease)
          p.last = max(p.last, now + lease)
        end
        if entries ~= '' then
          values[p.key] = pack('<dd', p.capacity, p.mean) .. entries
          lives[p.key] = lifeUntil(p.last)
        elseif p.stored then
          lives[p.key] = GONE
        end
      end
    end
  end

  -- What became of the messages, and the answers.
  function places.reply()
    local states = {}
    for i = 1, #keys do
      states[i] = string.char(keys[i].state)
    end
    return pack('<' .. rep('Bddd', answered / 4), unpack(answers, 1, answered)) .. table.concat(states)
  end
end
