-- Returns the quota with these Numbers of a limiter.Quota, or nil if no quota has that kind. An algorithm's
-- functions are made when it is first asked for: each function that is made costs time whenever the script runs.
local algorithms = {}
local function compile(kind, settles, a, b, c)
  local index = settles and kind == 1 and 'settles' or kind
  if not algorithms[index] then
    if kind == 1 or kind == 2 then
      algorithms[index] = newBucket(kind == 2, settles and kind == 1)
    elseif kind == 3 or kind == 5 then
      algorithms[index] = newWindow(kind == 5)
    elseif kind == 4 then
      algorithms[index] = newLog()
    end
  end
  local algorithm = algorithms[index]
  if algorithm then
    local q = algorithm.compile(a, b, c)
    q.algorithm = algorithm
    if settles then
      q.settles = true
    end
    return q
  end
end

-- Whether the clock has stepped back so far that s no longer counts.
local function isAhead(q, s, t)
  return (q.first or s.last) - t > (q.window or divUp(q.full, q.refill))
end

-- Returns the level and the entries of s after an event of that cost, for which there is room.
local function take(q, s, cost)
  local level = s.level + cost * q.unit
  return level, q.hasEntries and q.algorithm.record(s, cost, level) or s.log
end
