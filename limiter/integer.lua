-- Integer division of what is not negative and below 2^53. There a/b, a double, is never
-- rounded up to a whole number, so that Lua's % is exact, and with it these.
local function div(a, b) return (a - a % b) / b end
local function divUp(a, b) return div(a + b - 1, b) end
