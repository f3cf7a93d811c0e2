local read, pack, sub = struct.unpack, struct.pack, string.sub

-- Integer division of numbers from 0 to 2^53. There a/b, a double, is never rounded up to a whole number, so
-- Lua's % is exact, and so are these.
local function div(a, b) return (a - a % b) / b end
local function divUp(a, b)
  local rest = a % b
  if rest == 0 then
    return a / b
  end
  return (a - rest) / b + 1
end
