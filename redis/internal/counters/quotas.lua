-- The quotas that AppendQuotas wrote from at on, where what follows them begins, and whether some
-- have logs, and long ones. What is above this line is store.Lua.
local function readQuotas(request, count, at, now)
  local quotas, hasLogs, hasLongLogs = {false}, false, false
  for i = 1, count do
    local kind, a, b, c, settles = struct.unpack('<BdddB', request, at)
    local algorithm = algorithmOf(kind, settles == 1)
    local q = algorithm.compile(a, b, c)
    q.algorithm, q.bytes = algorithm, string.sub(request, at, at + 24)
    if settles == 1 then
      q.settles = true
    end
    if q.calendar then
      algorithm.check(q, now)
    end
    hasLogs, hasLongLogs = hasLogs or algorithm.isLog, hasLongLogs or q.isLong
    quotas[i] = q
    at = at + 26
  end
  return quotas, at, hasLogs, hasLongLogs
end
