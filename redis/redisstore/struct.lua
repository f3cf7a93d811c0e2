-- A stand-in for the library struct, for servers whose Lua lacks it, as miniredis's does: of
-- little-endian B, H and d, which is what the scripts of counters use. Its Lua need not be
-- Redis's, so there is one assignment for each name.
local struct = (function()
  local byte = string.byte
  local char = string.char
  local floor = math.floor

  local function packInteger(n, size)
    local bytes = {}
    local rest = n
    for i = 1, size do
      bytes[i] = char(rest % 256)
      rest = floor(rest / 256)
    end
    return table.concat(bytes)
  end

  local function unpackInteger(s, at, size)
    local n = 0
    for i = size - 1, 0, -1 do
      n = n * 256 + byte(s, at + i)
    end
    return n
  end

  -- A double is 52 bits of mantissa, 11 of exponent, and a sign.
  local function packDouble(n)
    local sign = 0
    local size = n
    if n < 0 then
      sign = 128
      size = -n
    end
    local high = 0
    local low = 0
    if size ~= size then
      high = 2047 * 1048576 + 524288
    elseif size == math.huge then
      high = 2047 * 1048576
    elseif size > 0 then
      local fraction, exponent = math.frexp(size)
      local biased = exponent + 1022
      local mantissa = (fraction * 2 - 1) * 4503599627370496
      if biased < 1 then
        mantissa = math.ldexp(fraction, exponent + 1074)
        biased = 0
      end
      low = mantissa % 4294967296
      high = biased * 1048576 + (mantissa - low) / 4294967296
    end
    local front = packInteger(low, 4) .. packInteger(high % 16777216, 3)
    return front .. char(sign + floor(high / 16777216))
  end

  local function unpackDouble(s, at)
    local low = unpackInteger(s, at, 4)
    local high = unpackInteger(s, at + 4, 4)
    local sign = 1
    if high >= 2147483648 then
      sign = -1
      high = high - 2147483648
    end
    local exponent = floor(high / 1048576)
    local mantissa = high % 1048576 * 4294967296 + low
    if exponent == 2047 then
      if mantissa > 0 then
        return 0 / 0
      end
      return sign * math.huge
    end
    if exponent == 0 then
      return sign * math.ldexp(mantissa, -1074)
    end
    return sign * math.ldexp(mantissa + 4503599627370496, exponent - 1075)
  end

  local function sizeOf(code)
    if code == 'B' then
      return 1
    end
    if code == 'H' then
      return 2
    end
    if code == 'd' then
      return 8
    end
    error('WEIRSTRUCT ' .. code)
  end

  local function pack(format, ...)
    local values = {...}
    local parts = {}
    for i = 2, #format do
      local code = string.sub(format, i, i)
      local size = sizeOf(code)
      if size == 8 then
        parts[i - 1] = packDouble(values[i - 1])
      else
        parts[i - 1] = packInteger(values[i - 1], size)
      end
    end
    return table.concat(parts)
  end

  local function read(format, s, first)
    local results = {}
    local at = first or 1
    for i = 2, #format do
      local size = sizeOf(string.sub(format, i, i))
      if at + size - 1 > #s then
        error('data string too short')
      end
      if size == 8 then
        results[i - 1] = unpackDouble(s, at)
      else
        results[i - 1] = unpackInteger(s, at, size)
      end
      at = at + size
    end
    results[#format] = at
    return unpack(results, 1, #format)
  end

  return {pack = pack, unpack = read}
end)()
