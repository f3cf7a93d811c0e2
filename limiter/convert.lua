-- The counterpart of Quota.Convert, of limits that differ: makes of s, a state under the quota
-- from that was brought to the present, one under q.
local function convert(q, from, s)
  local isLog, wasLog = q.algorithm.isLog, from.algorithm.isLog
  local isCounter, wasCounter = q.algorithm.isCounter, from.algorithm.isCounter
  local used = from.capacity - from.algorithm.remaining(from, s)
  local owed = math.max(0, used - from.capacity)
  used = math.min(used - owed, q.capacity)

  local entries -- where events keep their time
  if wasLog and (isLog or isCounter) then
    owed = s.prev
    entries = s.log
    if s.kept > 0 then
      entries = stored(s, 0, s.kept) .. entries
    end
  elseif wasCounter and isLog then
    owed = math.max(0, s.level - from.capacity)
    entries = ''
    if s.prev > 0 then
      entries = struct.pack('<dd', s.last - s.last % from.window - 1, s.prev)
    end
    if s.level > owed then
      entries = entries .. struct.pack('<dd', s.last, s.level - owed)
    end
  end

  s.quota, s.level, s.prev, s.log, s.kept, s.first = q, 0, 0, '', 0, 0
  if not entries then
    if used > 0 then
      s.level, s.log = q.algorithm.take(q, s, used)
    end
  elseif isCounter then
    local start = s.last - s.last % q.window
    for at = 1, #entries, 16 do
      local time, n = struct.unpack('<dd', entries, at)
      if time >= start then
        s.level = s.level + n
      elseif time >= start - q.window then
        s.prev = s.prev + n
      end
    end
    s.level = math.min(s.level, q.capacity)
    s.prev = math.min(s.prev, q.capacity)
    owed = math.min(owed, q.capacity)
  else
    -- The latest that fit, of which the first may fit in part.
    local room, at = q.capacity, #entries + 1
    while room > 0 and at > 1 do
      at = at - 16
      room = room - struct.unpack('<d', entries, at + 8)
    end
    s.log = string.sub(entries, at)
    if room < 0 then
      local time, n = struct.unpack('<dd', entries, at)
      s.log = struct.pack('<dd', time, n + room) .. string.sub(entries, at + 16)
      room = 0
    end
    s.level = q.capacity - room
    q.algorithm.advance(q, s, s.last)
  end
  s.log = s.log or ''
  if owed > 0 then
    q.algorithm.owe(q, s, math.min(owed, 2 * q.capacity))
  end
end
