// Package network parses networks as people write them, and finds addresses in sets of
// networks.
package network

import (
	"errors"
	"fmt"
	"math"
	"net/netip"
	"slices"
)

// Prefixes under which an address has an IPv4 address in it. Under nat64 these are the last 32 bits: of RFC 6052, of
// RFC 8215 for the translators of one network, and of RFC 2765 for IPv4-translated addresses. A host with an IPv4
// address has all 2^80 addresses under sixToFour (RFC 3056) with those 32 bits behind the prefix.
var (
	nat64      = netip.MustParsePrefix("64:ff9b::/96")
	localNAT64 = netip.MustParsePrefix("64:ff9b:1::/48")
	translated = netip.MustParsePrefix("::ffff:0:0:0/96")
	sixToFour  = netip.MustParsePrefix("2002::/16")
)

// embedding are these prefixes, with the number of bits in front of the IPv4 address.
var embedding = []struct {
	prefix netip.Prefix
	before int
}{{nat64, 96}, {localNAT64, 96}, {translated, 96}, {sixToFour, 16}}

// OfClient returns the IPv4 address in a NAT64 or 6to4 address, or else ip itself. No host has a 6to4 address of an
// IPv4 address that is not global (RFC 3056): a sender who forges one is not in a private network. Under localNAT64 a
// translator may have the IPv4 address in other bits (RFC 6052 §2.2): the bits between are then not 0.
func OfClient(ip netip.Addr) netip.Addr {
	bytes := ip.As16()
	last := netip.AddrFrom4([4]byte(bytes[12:]))
	switch {
	case nat64.Contains(ip), translated.Contains(ip),
		localNAT64.Contains(ip) && [4]byte(bytes[8:12]) == [4]byte{} && !last.IsUnspecified():
		return last
	case sixToFour.Contains(ip):
		if host := netip.AddrFrom4([4]byte(bytes[2:6])); host.IsGlobalUnicast() && !host.IsPrivate() {
			return host
		}
	}
	return ip
}

// OfClients returns the network as [OfClient] writes its addresses.
func OfClients(prefix netip.Prefix) netip.Prefix {
	host := OfClient(prefix.Addr())
	for _, in := range embedding {
		if host.Is4() && in.prefix.Contains(prefix.Addr()) && prefix.Bits() >= in.before {
			return netip.PrefixFrom(host, min(prefix.Bits()-in.before, 32))
		}
	}
	return prefix
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
// fc00::/7. Each NAT64 prefix, and the 6to4 prefix, contains all of IPv4.
func Widest(prefix netip.Prefix) int {
	if prefix.Addr().Is4() {
		return 8
	}
	for _, in := range embedding {
		if prefix.Bits() >= 7 && prefix.Overlaps(in.prefix) {
			return in.before + 8
		}
	}
	return 7
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

// Networks for no client's address, or for machines of one's own. The rest of IPv4 is public, and of
// IPv6 2000::/3.
var (
	notPublic4 = []netip.Prefix{
		netip.MustParsePrefix("0.0.0.0/8"), netip.MustParsePrefix("10.0.0.0/8"),
		netip.MustParsePrefix("127.0.0.0/8"), netip.MustParsePrefix("224.0.0.0/3"),
	}
	public6 = netip.MustParsePrefix("2000::/3")
)

// Check returns an error if the networks, with those of more, contain more than half of the public addresses of
// IPv4, or of IPv6: the set then stands for everybody, and not for a list. No network may be wider than
// [Widest].
func (s *Set) Check(more ...*Set) error {
	var all Set
	for _, set := range append(more, s) {
		for prefix := range set.prefixes {
			all.Add(OfClients(prefix))
		}
	}
	public4 := 1.0
	for _, prefix := range notPublic4 {
		public4 -= share(prefix)
	}
	var ipv4, ipv6 float64
	for prefix := range all.prefixes {
		switch at := prefix.Addr(); {
		case all.isInAnother(prefix):
		case at.Is6() && public6.Contains(at):
			ipv6 += share(prefix) / share(public6)
		case at.Is4() && !slices.ContainsFunc(notPublic4, func(p netip.Prefix) bool { return p.Contains(at) }):
			ipv4 += share(prefix) / public4
		}
	}
	for family, part := range map[string]float64{"IPv4": ipv4, "IPv6": ipv6} {
		if part > 0.5 {
			return fmt.Errorf("its networks together contain %.3g%% of the public addresses of %s: at most half are allowed", 100*part, family)
		}
	}
	return nil
}

// isInAnother reports whether a wider network of the set contains one of its networks.
func (s *Set) isInAnother(prefix netip.Prefix) bool {
	lengths := s.lengths4
	if prefix.Addr().Is6() {
		lengths = s.lengths6
	}
	return slices.ContainsFunc(lengths, func(bits int) bool {
		if bits >= prefix.Bits() {
			return false
		}
		_, ok := s.prefixes[netip.PrefixFrom(prefix.Addr(), bits).Masked()]
		return ok
	})
}

// share is the part of all addresses of its family that a network contains.
func share(p netip.Prefix) float64 { return math.Ldexp(1, -p.Bits()) }

// Len returns the number of networks.
func (s *Set) Len() int { return len(s.prefixes) }
