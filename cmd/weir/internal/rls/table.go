package rls

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	common "github.com/envoyproxy/go-control-plane/envoy/extensions/common/ratelimit/v3"
	pb "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	envoytype "github.com/envoyproxy/go-control-plane/envoy/type/v3"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/weirgo/weir/internal/bounded"
	"github.com/weirgo/weir/internal/envoy"
	"github.com/weirgo/weir/limiter"
	"github.com/weirgo/weir/middleware/rules"
)

// A table has the limits of the descriptors of a rules file.
type table struct {
	rules  *rules.Rules
	limits map[string][]*limit // by domain and the entries' keys, the most specific first
	store  limiter.Store

	fromRequest bounded.Map[ownLimit, *limit]
}

// An ownLimit is a limit in a request, and the file's limit that it replaces.
type ownLimit struct {
	replaces *limit
	is       limiter.Limit
}

// mostFromRequest is the largest number of limits from requests. Beyond it they are made anew: the counters
// are in the store.
const mostFromRequest = 1000

// A limit is the limit of a descriptor.
type limit struct {
	envoy.Descriptor
	quotas    []*limiter.Quota
	shadow    bool // also if all rules are
	described *pb.RateLimitResponse_RateLimit
}

// newTable returns the table of rules. Rules without descriptors are an error, because a reload must not
// lift all limits.
func newTable(r *rules.Rules, store limiter.Store) (*table, error) {
	t := &table{rules: r, limits: map[string][]*limit{}, store: store}
	t.fromRequest.Most = mostFromRequest
	for _, d := range r.Descriptors() {
		l, err := t.newLimit(d, d.Limit)
		if err != nil {
			return nil, err
		}
		at := domainAndKeys(d.Domain, d.Entries)
		t.limits[at] = append(t.limits[at], l)
	}
	if len(t.limits) == 0 {
		return nil, errors.New("--rls: the rules have no descriptors, and without them nothing is limited")
	}
	for _, list := range t.limits {
		slices.SortStableFunc(list, func(a, b *limit) int { return a.compareExactness(b) })
	}
	return t, nil
}

// newLimit returns the limit of a descriptor, with the quotas of allowed.
func (t *table) newLimit(d envoy.Descriptor, allowed limiter.Allowance) (*limit, error) {
	quotas, err := limiter.NewQuotas(d.Name, "", allowed)
	if err != nil {
		return nil, err
	}
	checker, checks := limiter.As[limiter.Checker](t.store)
	shadow := d.Shadow || t.rules.Config().Shadow
	for _, q := range quotas {
		if q.OnOutage = d.OnOutage; shadow && q.OnOutage == limiter.FailClosed {
			q.OnOutage = limiter.FailOpen // shadow limits refuse nothing
		}
		if checks {
			if err := checker.Check(q); err != nil {
				return nil, fmt.Errorf("descriptors: %q: %w", d.Name, err)
			}
		}
	}
	l := &limit{Descriptor: d, quotas: quotas, shadow: shadow}
	l.described = describe(l.Name, quotas[0].Limit())
	return l, nil
}

// domainAndKeys joins a domain and the keys of entries.
func domainAndKeys(domain string, entries []envoy.Entry) string {
	b := make([]byte, 0, 128)
	b = appendPart(b, domain)
	for _, e := range entries {
		b = appendPart(b, e.Key)
	}
	return string(b)
}

// appendPart appends a part of a text, with its length before it, against collisions.
func appendPart(b []byte, part string) []byte {
	b = append(strconv.AppendInt(b, int64(len(part)), 10), ':')
	return append(b, part...)
}

// find returns the limit for a descriptor, or nil, and the key to count: the values that the limit leaves
// open. The error is about the limit in the request.
func (t *table) find(domain string, d *common.RateLimitDescriptor) (*limit, string, error) {
	entries := make([]envoy.Entry, len(d.Entries))
	for i, e := range d.Entries {
		entries[i] = envoy.Entry{Key: e.Key, Value: e.Value}
	}
	for _, l := range t.limits[domainAndKeys(domain, entries)] {
		if !l.matches(entries) {
			continue
		}
		key := l.key(entries)
		if d.Limit == nil || !l.FromRequest {
			return l, key, nil
		}
		own, err := t.own(l, d.Limit)
		return own, key, err
	}
	return nil, "", nil
}

// requestUnits has the lengths of the units of limits in requests. Their months and years are not the calendar's.
var requestUnits = map[envoytype.RateLimitUnit]time.Duration{
	envoytype.RateLimitUnit_SECOND: time.Second,
	envoytype.RateLimitUnit_MINUTE: time.Minute,
	envoytype.RateLimitUnit_HOUR:   time.Hour,
	envoytype.RateLimitUnit_DAY:    24 * time.Hour,
	envoytype.RateLimitUnit_MONTH:  30 * 24 * time.Hour,
	envoytype.RateLimitUnit_YEAR:   365 * 24 * time.Hour,
}

// own returns l with the limit in a request.
func (t *table) own(l *limit, given *common.RateLimitDescriptor_RateLimitOverride) (*limit, error) {
	multiplier := int64(1)
	if given.UnitMultiplier != nil {
		multiplier = int64(given.UnitMultiplier.Value)
	}
	unit := requestUnits[given.Unit]
	if unit == 0 || multiplier > int64(math.MaxInt64/unit) {
		return nil, fmt.Errorf("the request's limit for %q: the unit is %d %v", l.Name, multiplier, given.Unit)
	}
	is := limiter.Limit{Events: int64(given.RequestsPerUnit), Per: unit * time.Duration(multiplier), Algorithm: l.quotas[0].Limit().Algorithm}
	if err := is.Validate(); err != nil {
		return nil, fmt.Errorf("the request's limit for %q: %w", l.Name, err)
	}
	at := ownLimit{l, is}
	return t.fromRequest.Get(at, func() (*limit, error) { return t.newLimit(l.Descriptor, is) })
}

// matches reports whether the limit is for a descriptor with these entries.
func (l *limit) matches(entries []envoy.Entry) bool {
	return slices.EqualFunc(l.Entries, entries, func(want, e envoy.Entry) bool {
		return want.Key == e.Key && (want.Value == "" || want.Value == e.Value)
	})
}

// compareExactness orders two limits with the same keys. At the first entry where only one of them has a value,
// the limit with the value comes first.
func (l *limit) compareExactness(other *limit) int {
	return slices.CompareFunc(l.Entries, other.Entries, func(a, b envoy.Entry) int {
		return min(1, len(b.Value)) - min(1, len(a.Value))
	})
}

// key joins the values of the entries without a value in the file. One value stands alone.
func (l *limit) key(entries []envoy.Entry) string {
	var open []string
	for i, e := range entries {
		if l.Entries[i].Value == "" {
			open = append(open, e.Value)
		}
	}
	if len(open) == 1 {
		return open[0]
	}
	var b []byte
	for _, value := range open {
		b = appendPart(b, value)
	}
	return string(b)
}

// units has Envoy's units, the longest first.
var units = []struct {
	of   pb.RateLimitResponse_RateLimit_Unit
	long time.Duration
	word string // of a calendar, if there is one
}{
	{pb.RateLimitResponse_RateLimit_YEAR, math.MaxInt64, "yearly"},
	{pb.RateLimitResponse_RateLimit_MONTH, math.MaxInt64, "monthly"},
	{pb.RateLimitResponse_RateLimit_WEEK, 7 * 24 * time.Hour, "weekly"},
	{pb.RateLimitResponse_RateLimit_DAY, 24 * time.Hour, "daily"},
	{pb.RateLimitResponse_RateLimit_HOUR, time.Hour, ""},
	{pb.RateLimitResponse_RateLimit_MINUTE, time.Minute, ""},
	{pb.RateLimitResponse_RateLimit_SECOND, time.Second, ""},
}

// describe returns a limit in Envoy's form. If no unit fits its period, the unit is left out.
func describe(name string, l limiter.Limit) *pb.RateLimitResponse_RateLimit {
	d := &pb.RateLimitResponse_RateLimit{Name: name, RequestsPerUnit: uint32(min(l.Events, math.MaxUint32))}
	calendar, _, _ := strings.Cut(l.Calendar(), " ")
	for _, u := range units {
		switch {
		case u.word != "" && u.word == calendar:
			d.Unit = u.of
			return d
		case l.Per%u.long == 0:
			if d.Unit = u.of; l.Per > u.long {
				d.UnitMultiplier = wrapperspb.UInt32(uint32(l.Per / u.long))
			}
			return d
		}
	}
	return d
}
