-- What a log needs beside the rest: its times are a ring behind the head of its value,
-- eight bytes each, and state.prev is the slot of the oldest.
function event(s, i)
  local at = 49 + 8 * ((s.head + i) % s.slots)
  local bytes = redis.call('GETRANGE', s.key, at, at + 7)
  if #bytes < 8 then
    return 0 -- somebody has cut it off
  end
  return (struct.unpack('<d', bytes))
end

function saveLog(s, quota)
  local first = (s.head + s.dropped) % s.slots
  if s.rewritten then
    redis.call('DEL', s.key)
    first = 0
  end
  redis.call('SETRANGE', s.key, '0', quota .. struct.pack('<ddd', s.last, s.level, first))
  local slot = (first + s.kept) % s.slots
  local more = s.level - s.kept
  while more > 0 do -- once, or twice where the ring ends
    local n = math.min(more, s.slots - slot)
    redis.call('SETRANGE', s.key, 49 + 8 * slot, string.rep(struct.pack('<d', s.last), n))
    more = more - n
    slot = 0
  end
end
