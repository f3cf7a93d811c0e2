// Package network parses networks as people write them, and finds addresses in sets of
// networks.
package network

import (
	"errors"
	"net/netip"
	"slices"
)

// nat64 is the well-known prefix of RFC 6052. The last 32 bits of an address under it are
// an IPv4 address.
var nat64 = netip.MustParsePrefix("64:ff9b::/96")

// FromNAT64 returns the IPv4 address in a NAT64 address, or else ip itself.
func FromNAT64(ip netip.Addr) netip.Addr {
	if !nat64.Contains(ip) {
		return ip
	}
	bytes := ip.As16()
	return netip.AddrFrom4([4]byte(bytes[12:]))
}

// Parse parses a CIDR, or an address as a network of one.
func Parse(s string) (netip.Prefix, error) {
	prefix, err := netip.ParsePrefix(s)
	if err != nil {
		ip, err := netip.ParseAddr(s)
		if err != nil {
			return netip.Prefix{}, errors.New("it is neither an address nor a CIDR")
		}
		if ip.Zone() != "" {
			return netip.Prefix{}, errors.New("zones can't be told apart; leave it out")
		}
		prefix = netip.PrefixFrom(ip, ip.BitLen())
	}
	// Contains never finds an IPv4 address in an IPv6 prefix, so ::ffff:10.0.0.0/104
	// would match nothing.
	if ip := prefix.Addr(); ip.Is4In6() {
		if prefix.Bits() < 96 {
			return netip.Prefix{}, errors.New("it is wider than IPv4; write it as IPv4")
		}
		prefix = netip.PrefixFrom(ip.Unmap(), prefix.Bits()-96)
	}
	return prefix.Masked(), nil
}

// Widest returns the shortest prefix length that one owner can have, as in 10.0.0.0/8 and
// fc00::/7. A check on it also catches 0.0.0.0/0 in two halves.
func Widest(prefix netip.Prefix) int {
	if prefix.Addr().Is6() {
		return 7
	}
	return 8
}

// A Set is a set of networks. A lookup takes at most one step for each distinct prefix
// length, or a few steps in a small set. The zero Set is empty.
type Set struct {
	prefixes map[netip.Prefix]struct{}
	lengths4 []int
	lengths6 []int
	few      []netip.Prefix // all networks, if at most few; comparing them is faster
}

const few = 8

// Add puts a network into the set.
func (s *Set) Add(prefix netip.Prefix) {
	if s.prefixes == nil {
		s.prefixes = map[netip.Prefix]struct{}{}
	}
	s.prefixes[prefix] = struct{}{}
	lengths := &s.lengths4
	if prefix.Addr().Is6() {
		lengths = &s.lengths6
	}
	if !slices.Contains(*lengths, prefix.Bits()) {
		*lengths = append(*lengths, prefix.Bits())
	}
	if len(s.few) <= few {
		s.few = append(s.few, prefix)
	}
}

// Contains reports whether a network contains ip, which must not be IPv4 in IPv6.
func (s *Set) Contains(ip netip.Addr) bool {
	if len(s.few) <= few {
		for _, prefix := range s.few {
			if prefix.Contains(ip) {
				return true
			}
		}
		return false
	}
	lengths := s.lengths4
	if ip.Is6() {
		lengths = s.lengths6
	}
	for _, bits := range lengths {
		if prefix, err := ip.Prefix(bits); err == nil {
			if _, ok := s.prefixes[prefix]; ok {
				return true
			}
		}
	}
	return false
}

// Len returns the number of networks.
func (s *Set) Len() int { return len(s.prefixes) }
