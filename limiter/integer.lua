-- Go's integer division for what is not negative. Lua's own would round: a/b is a
-- double, and so is what its % is made of.
local fmod = math.fmod
local function div(a, b) return (a - fmod(a, b)) / b end
local function divUp(a, b) return div(a + b - 1, b) end
