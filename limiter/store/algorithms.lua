-- Returns the algorithm with the number kind of limiter.Algorithm, or nil if there is none. A token
-- bucket of a quota that settles has functions of its own. An algorithm's functions are made when it is
-- first asked for, as each function that is made costs time whenever the script runs.
local algorithms = {false, false, false, false, false, false}
local function algorithmOf(kind, settles)
  local index = settles and kind == 1 and 6 or kind
  local algorithm = algorithms[index]
  if algorithm then
    return algorithm
  end
  if kind == 1 or kind == 2 then
    algorithm = (function(isQueue)
      --[[tokenbucket.lua]]
    end)(kind == 2)
    if index == 6 then
      (function(bucket)
        --[[settles.lua]]
      end)(algorithm)
    end
  elseif kind == 3 then
    algorithm = (function()
      --[[fixedwindow.lua]]
    end)()
  elseif kind == 4 then
    algorithm = (function()
      --[[slidinglog.lua]]
    end)()
  elseif kind == 5 then
    algorithm = (function()
      --[[slidingcounter.lua]]
    end)()
  end
  algorithms[index] = algorithm
  return algorithm
end
