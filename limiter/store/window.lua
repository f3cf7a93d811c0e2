-- The counterpart of fixedwindow.go and slidingcounter.go. Of a calendar a quota knows two windows: the one of the
-- time that it was compiled for, in which every state is that is written under it, and the next one.
local function newWindow(fades)
  -- When the window of a time begins and ends, and when the next one ends.
  local function windowOf(q, t)
    if not q.second then
      local start = t - t % q.window
      return start, start + q.window, start + 2 * q.window
    elseif t < q.second then
      return q.first, q.second, q.third
    end
    return q.second, q.third, q.third + q.window -- where nothing is owed, so that only the first two count
  end

  -- How far into a window the share of a previous count is at most room.
  local function faded(q, prev, room)
    if not fades or prev <= room then
      return 0
    end
    local shares = (room + 1) * q.steps - 1
    local after, window = (q.steps - (shares - shares % prev) / prev) * q.step, q.window -- div, in less time
    return after < window and after or window
  end

  return {
    windowOf = windowOf,

    -- of is the step of a window that fades, and otherwise the lengths of a calendar's windows, or 0.
    compile = function(capacity, window, of)
      local q = {
        algorithm = false, bytes = false, capacity = capacity, unit = 1, full = capacity, window = window,
        step = false, steps = false,
      }
      if fades then
        q.step, q.steps = of, divUp(window, of)
      elseif of > 0 then
        q.window = div(of, 33554432) * 1000000
        q.first, q.second = window, window + q.window
        q.third = q.second + of % 33554432 * 1000000
      end
      return q
    end,

    advance = function(q, s, t)
      local last, window = s.last, q.window
      if t < (q.second or last - last % window + window) then
        s.last = t -- in most cases
        return
      end
      local _, finish, followedTo = windowOf(q, last)
      if t >= finish then
        local owed = math.max(0, s.level - q.capacity)
        local within = s.level - owed
        s.level, s.prev = 0, 0
        if t < followedTo then
          s.level, s.prev = owed, fades and within or 0
        elseif fades and t < followedTo + q.window then
          s.prev = owed
        end
      end
      s.last = t
    end,

    used = function(q, s)
      if s.prev == 0 then
        return s.level
      end
      local share = div(s.prev * (q.steps - div(s.last % q.window, q.step)), q.steps) -- whole units
      return math.min(s.level + share, 2 * q.capacity)
    end,

    owe = function(q, s, n)
      s.level = math.min(s.level + n, 2 * q.capacity)
    end,

    refund = function(q, s, n, at)
      local start, finish = windowOf(q, s.last)
      if at == 0 then
        local current = math.min(n, s.level)
        s.level = s.level - current
        s.prev = math.max(0, s.prev - (n - current))
      elseif start <= at and at < finish then
        s.level = math.max(0, s.level - n)
      elseif start - q.window <= at and at < start then
        s.prev = math.max(0, s.prev - n)
      end
    end,

    wait = function(q, s, room)
      local last, level, length = s.last, s.level, q.window
      local left, owed = length - last % length, level - q.capacity
      if q.second then
        local _, finish, followedTo = windowOf(q, last)
        left, length = finish - last, followedTo - finish
      end
      if level <= room then
        return fades and s.prev > 0 and faded(q, s.prev, room - level) - (length - left) or 0
      elseif owed > room then
        return left + length + faded(q, owed, room)
      elseif owed > 0 then
        return left + faded(q, q.capacity, room - owed)
      elseif not fades then
        return left
      end
      return left + faded(q, level, room)
    end,
  }
end
