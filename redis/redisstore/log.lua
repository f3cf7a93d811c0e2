-- What a log needs beside the rest: its times are a ring behind the head of its value,
-- eight bytes each, and state.prev is the slot of the oldest.
function event(s, i)
  if s.times then
    return (struct.unpack('<d', s.times, 8 * i + 1))
  end
  local at = 49 + 8 * ((s.head + i) % s.slots)
  local bytes = redis.call('GETRANGE', s.key, at, at + 7)
  if #bytes < 8 then
    return 0 -- it was cut off
  end
  return (struct.unpack('<d', bytes))
end

-- Cuts n stored times out, from the one at i. It reads all that are kept, for saveLog to
-- write them anew: a script that fails after this has changed nothing.
function cut(s, i, n)
  if not s.times then
    local first = (s.head + s.dropped) % s.slots
    local past = first + s.kept
    local times = redis.call('GETRANGE', s.key, 49 + 8 * first, 48 + 8 * math.min(past, s.slots))
    if past > s.slots then
      times = times .. redis.call('GETRANGE', s.key, '49', 48 + 8 * (past - s.slots))
    end
    s.times = times .. string.rep('\0', 8 * s.kept - #times)
    s.dropped = 0
  end
  i = s.dropped + i
  s.times = string.sub(s.times, 1, 8 * i) .. string.sub(s.times, 8 * (i + n) + 1)
  s.kept = s.kept - n
end

function saveLog(s, quota)
  local first = (s.head + s.dropped) % s.slots
  local times = ''
  if s.rewritten or s.times then
    redis.call('DEL', s.key)
    first = 0
  end
  if s.times then
    times = string.sub(s.times, 8 * s.dropped + 1, 8 * (s.dropped + s.kept))
  end
  redis.call('SETRANGE', s.key, '0', quota .. struct.pack('<ddd', s.last, s.level, first) .. times)
  local slot = (first + s.kept) % s.slots
  local more = s.level - s.kept
  while more > 0 do -- once, or twice where the ring ends
    local n = math.min(more, s.slots - slot)
    redis.call('SETRANGE', s.key, 49 + 8 * slot, string.rep(struct.pack('<d', s.last), n))
    more = more - n
    slot = 0
  end
end
