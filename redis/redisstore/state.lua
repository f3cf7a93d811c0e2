-- States of counters. A counter's value is the quota under which it was written, 25 bytes, its state, 24,
-- and when it expires, 8. A long log has its ring in place of the expiry: log.lua. Other logs, and buckets
-- that settle, have their entries at the end, 16 bytes each. The name of a key has the version of this format.

-- Adds owed units to s, or refunds units if owed is below 0.
local function correct(s, owed, at)
  local q = s.quota
  s.changed = true
  if owed > 0 then
    q.algorithm.owe(q, s, math.min(owed, 2 * q.capacity))
  else
    q.algorithm.refund(q, s, math.min(-owed, q.capacity), at)
  end
end

-- Makes the functions for groups that are not plain, which most batches do not need.
local function newStates(now)
  local pack, read, sub, max, min, call = struct.pack, struct.unpack, string.sub, math.max, math.min, redis.call
  local TAKE, SETTLE, RESET = 0, 1, 2

  local function clear(s)
    s.last, s.level, s.prev, s.log, s.kept, s.expiry = now, 0, 0, '', 0, 0
    s.rewritten = true -- a ring in Redis no longer counts
  end

  -- Returns the state of a counter at the present, which is never before its own past. It has the fields of
  -- all algorithms, its quota, when the value expires, or 0, and whether to write it. Without a value, all
  -- units are free. A value in another format is foreign: it is left as it is.
  local function load(name, value, q)
    if not value then
      return {quota = q, last = now, level = 0, prev = 0, log = '', kept = 0, expiry = 0, changed = false}
    end
    local own, size, bytes = q, #value, sub(value, 1, 25)
    if bytes ~= q.bytes and size >= 57 then
      local kind, a, b, c = read('<Bddd', bytes)
      local algorithm, settles = algorithmOf(kind, q.settles), q.settles
      q = algorithm and algorithm.compile(a, b, c)
      if q then
        q.algorithm, q.bytes, q.settles = algorithm, bytes, settles
      end
    end
    if not q or size < 57 or q.isLong and size < 65 or q.hasEntries and not q.isLong and size % 16 ~= 9 then
      return {quota = own, last = now, level = 0, prev = 0, log = '', kept = 0, expiry = 0, foreign = true}
    end
    local s
    if q.isLong then
      if not longLogs then
        makeLongLogs()
      end
      s = longLogs.load(q, name, value)
    else
      local last, level, prev, expiry = read('<dddd', value, 26)
      local log = q.hasEntries and sub(value, 58) or ''
      s = {quota = q, last = last, level = level, prev = prev, log = log, kept = 0, expiry = expiry, changed = false}
    end
    if s.last > now and q.algorithm.isAhead(q, s, now) then
      clear(s)
    end
    q.algorithm.advance(q, s, max(now, s.last))
    return s
  end

  local function isFree(s)
    return s.level == 0 and s.prev == 0 or s.quota.algorithm.resetAfter(s.quota, s) <= 0
  end

  -- Returns two states for a charge under q of a key whose state s is under another quota: the state that
  -- the charge sees, and the state of the key. Then it returns whether the charge is settled with that.
  --
  -- What was used stays used. A look or a take sees a state that becomes the key's only if the group is
  -- taken: a lower limit forgets what was used above it, and two limits that are asked in turn must not
  -- make room for each other. What is refunded stays under the quota that it was written under. What is
  -- owed does too if that quota counts more.
  local function underQuota(s, q, op, cost, at)
    local from = s.quota

    -- Quota.used, of a state at the present.
    local function usedOf(s)
      return min(s.quota.capacity - s.quota.algorithm.remaining(s.quota, s), 2 * s.quota.capacity)
    end

    -- Quota.convert: a state under q in which as much was used now as in s.
    local function converted()
      local used = usedOf(s)
      local owed = max(0, used - from.capacity)
      local c = load(nil, nil, q)
      c.changed, c.rewritten = s.changed, true
      if used > 0 then
        local level, log = q.algorithm.take(q, c, min(used - owed, q.capacity))
        c.level, c.log = level, log or ''
        q.algorithm.owe(q, c, min(owed, q.capacity))
      end
      return c
    end

    if q.calendar and s.last >= q.second and from.capacity == q.capacity
        and (from.first == q.second and from.second == q.third or from.first == q.third) then
      return s, s, false -- the same limit: the clock has stepped back to before the window of s, which stays
    end
    local c = converted()
    if op == TAKE or op == SETTLE and cost == 0 then
      return c, s, false
    end
    local isOver = from.calendar and s.last >= from.second -- Quota.isOver
    if op == RESET or isFree(s) or isOver and cost > 0 then
      return c, c, false
    end
    if isOver then
      return c, s, true
    end
    correct(s, cost, at)
    if cost > 0 then
      correct(c, cost)
      if usedOf(s) <= usedOf(c) then
        return c, c, true -- as Quota.Settle: a rule that only looks and owes comes to its limit
      end
    elseif isFree(s) then
      clear(s)
    end
    return converted(), s, true
  end

  -- Writes the state of a key that had that value. Value and expiry go together: a key lives at least
  -- until all its units are free again.
  local function write(name, s, value)
    if s.foreign then
      if call('PTTL', name) == -1 then
        call('PEXPIRE', name, 3600000)
      end
      return
    end
    if not s.changed then
      if not value or call('PTTL', name) ~= -1 then
        return
      end
      s.expiry = 0 -- it was taken away
    end
    local q, expiry, life = s.quota, s.expiry, false
    local reset = q.algorithm.resetAfter(q, s)
    if s.level == 0 and s.prev == 0 or reset <= 0 then
      call('DEL', name)
      return
    end
    local free = s.last + reset
    if free > expiry then
      expiry = expiryOf(free, now)
      life = lifeUntil(expiry, now)
    end
    if q.isLong then
      longLogs.save(s, name)
      call('PEXPIRE', name, life)
    else
      put(name, q.bytes .. pack('<dddd', s.last, s.level, s.prev, expiry) .. s.log, life, value and #value)
    end
  end

  return load, underQuota, isFree, clear, write
end
