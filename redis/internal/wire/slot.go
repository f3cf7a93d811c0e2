package wire

// Slots is the number of slots in a Redis Cluster.
const Slots = 16384

// SlotOf is the slot of keys with a tag in a Cluster: CRC16 (XMODEM) of the tag, as the Redis Cluster
// specification says.
func SlotOf(text []byte) uint16 {
	crc := uint16(0)
	for _, c := range text {
		crc = crc<<8 ^ crc16[byte(crc>>8)^c]
	}
	return crc % Slots
}

var crc16 = func() (table [256]uint16) {
	for i := range table {
		crc := uint16(i) << 8
		for range 8 {
			carry := crc&0x8000 != 0
			crc <<= 1
			if carry {
				crc ^= 0x1021
			}
		}
		table[i] = crc
	}
	return table
}()
