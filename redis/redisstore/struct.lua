-- The library struct, or a stand-in for it on servers whose Lua lacks it, as miniredis's does: of
-- little-endian B, H and d, which is what the scripts of counters use. Its Lua need not be
-- Redis's, so there is one assignment for each name.
local struct = rawget(_G, 'struct') or (function()
  local floor = math.floor
  local sizes = {B = 1, H = 2, d = 8}

  local function packInteger(n, size)
    local text = ''
    local rest = n
    for _ = 1, size do
      text = text .. string.char(rest % 256)
      rest = floor(rest / 256)
    end
    return text
  end

  local function unpackInteger(s, at, size)
    local n = 0
    for i = size - 1, 0, -1 do
      n = n * 256 + string.byte(s, at + i)
    end
    return n
  end

  -- A double is 52 bits of mantissa, 11 of exponent, and a sign. Here it is 0 or normal.
  local function packDouble(n)
    if n == 0 then
      return packInteger(0, 8)
    end
    local fraction, exponent = math.frexp(math.abs(n))
    local mantissa = (fraction * 2 - 1) * 4503599627370496
    local low = mantissa % 4294967296
    local high = (exponent + 1022) * 1048576 + (mantissa - low) / 4294967296
    return packInteger(low, 4) .. packInteger(n < 0 and high + 2147483648 or high, 4)
  end

  local function unpackDouble(s, at)
    local low = unpackInteger(s, at, 4)
    local high = unpackInteger(s, at + 4, 4)
    local size = high % 2147483648
    if size == 0 and low == 0 then
      return 0
    end
    local mantissa = 1 + (size % 1048576 * 4294967296 + low) / 4503599627370496
    local sign = high == size and 1 or -1
    return sign * math.ldexp(mantissa, floor(size / 1048576) - 1023)
  end

  local function pack(format, ...)
    local values = {...}
    local text = ''
    for i = 2, #format do
      local size = sizes[string.sub(format, i, i)]
      text = text .. (size == 8 and packDouble(values[i - 1]) or packInteger(values[i - 1], size))
    end
    return text
  end

  local function read(format, s, first)
    local results = {}
    local at = first or 1
    for i = 2, #format do
      local size = sizes[string.sub(format, i, i)]
      if at + size - 1 > #s then
        error('data string too short')
      end
      results[i - 1] = size == 8 and unpackDouble(s, at) or unpackInteger(s, at, size)
      at = at + size
    end
    results[#format] = at
    return unpack(results, 1, #format)
  end

  return {pack = pack, unpack = read}
end)()
