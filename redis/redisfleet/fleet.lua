-- What the processes of a service tell each other of themselves. KEYS[1] is a hash: by the name
-- of a process, when it last told in milliseconds, a space, and what it told.
--
-- ARGV[1] is what to do; of tell, ARGV[2] is the process, ARGV[3] what it tells and ARGV[4] how
-- many processes there may be; of leave, ARGV[2] is the process.
local told = KEYS[1]
local op, process = ARGV[1], ARGV[2]
local clock = redis.call('TIME')
local now = clock[1] * 1000 + math.floor(clock[2] / 1000)
local FORGET = 10 * 60 * 1000

if op == 'leave' then
  redis.call('HDEL', told, process)
  return {}
end

-- Those that have not told for long are forgotten.
local function prune(all)
  local kept = {}
  for i = 1, #all, 2 do
    local at, text = string.match(all[i + 1], '^(%d+) (.*)$')
    if at and now - tonumber(at) < FORGET then
      kept[#kept + 1] = all[i]
      kept[#kept + 1] = string.format('%.0f', math.max(0, now - tonumber(at)))
      kept[#kept + 1] = text
    else
      redis.call('HDEL', told, all[i])
    end
  end
  return kept
end

if op == 'all' then
  return prune(redis.call('HGETALL', told))
end

if redis.call('HEXISTS', told, process) == 0 and redis.call('HLEN', told) >= tonumber(ARGV[4]) then
  prune(redis.call('HGETALL', told))
  if redis.call('HLEN', told) >= tonumber(ARGV[4]) then
    return redis.error_reply('WEIRFULL')
  end
end
redis.call('HSET', told, process, string.format('%.0f', now) .. ' ' .. ARGV[3])
redis.call('PEXPIRE', told, FORGET)
return {}
