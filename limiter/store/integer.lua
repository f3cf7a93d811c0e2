-- Integer division of what is not negative and at most 2^53. There a/b, a double, is never
-- rounded up to a whole number, so that Lua's % is exact, and with it these.
local function div(a, b) return (a - a % b) / b end
local function divUp(a, b)
  local rest = a % b
  if rest == 0 then
    return a / b
  end
  return (a - rest) / b + 1
end
