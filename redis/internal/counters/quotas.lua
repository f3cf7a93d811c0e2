-- The quotas that AppendQuotas wrote from at on, where what follows them begins, and whether some
-- have logs. What is above this line is limiter.Lua.
local function readQuotas(request, count, at, now)
  local quotas, hasLogs = {false}, false
  for i = 1, count do
    local kind, a, b, c, settles = struct.unpack('<BdddB', request, at)
    local q = algorithms[kind].compile(a, b, c)
    q.algorithm = algorithms[kind]
    if q.calendar then
      q.algorithm.check(q, now)
    end
    q.bytes = string.sub(request, at, at + 24)
    if settles == 1 then
      q.settles, q.hasEntries = true, q.hasEntries or q.algorithm.hasLows
    end
    hasLogs = hasLogs or q.algorithm.isLog
    quotas[i] = q
    at = at + 26
  end
  return quotas, at, hasLogs
end
