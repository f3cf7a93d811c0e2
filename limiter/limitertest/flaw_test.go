package limitertest

import (
	"cmp"
	"context"
	"fmt"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weirgo/weir/limiter"
)

func TestASoundStorePasses(t *testing.T) {
	for _, c := range cases {
		failure := c.failure(t, "")
		require.Empty(t, failure, c.name)
	}
}

func TestAStoreWithAClockOfItsOwnPasses(t *testing.T) {
	now := time.Date(2031, 2, 3, 4, 5, 6, 7000, time.UTC)
	Run(t, Harness{
		New: func(testing.TB) limiter.Store {
			s := newFlawed("")
			s.clock = func() time.Time { return now }
			return s
		},
		Sleep: func(d time.Duration) { now = now.Add(d) },
	})
}

func TestEveryFlawIsCaught(t *testing.T) {
	for _, tt := range []struct{ flaw, by string }{
		{"forgets everything", "admits exactly the limit at once"},
		{"every cost is 1", "admits one event that costs the whole limit"},
		{"a refusal spends", "a refusal takes nothing and changes nothing"},
		{"a look spends", "an event of cost 0 only looks"},
		{"costs are 32 bits", "a cost above the limit is never admitted and takes nothing"},
		{"never comes back", "a long pause grants at most the limit"},
		{"states are floats of 32 bits", "counts exactly at the largest limits"},
		{"no delay", "a leaky bucket spaces events evenly"},
		{"late events are taken", "an event that would wait for longer than its Within takes nothing"},
		{"late events come when the queue is empty", "an event that would wait for longer than its Within takes nothing"},
		{"time is in milliseconds", "RetryAfter is exact"},
		{"RetryAfter is in seconds", "RetryAfter is exact"},
		{"expires after half the time", "RetryAfter is exact"},
		{"expires after half the time", "ResetAfter is exact"},
		{"NextAfter is ResetAfter", "NextAfter is exact"},
		{"time never steps back", "a clock that steps back grants at most one burst"},
		{"small windows are counters", "a window of few events is exact"},
		{"expires after half the time", "the units of an event in a log expire together"},
		{"a refund has no time", "the units of an event in a log expire together"},
		{"a batch is one by one", "several limits of a rule are charged together"},
		{"a new limit forgets what is owed", "a limit that stops being exact, and is exact again, keeps what was used"},
		{"a new limit begins anew", "a limit that stops being exact, and is exact again, keeps what was used"},
		{"a batch is one by one", "a batch takes nothing if one charge is refused"},
		{"a batch is one by one", "a refused batch leaves new keys unchanged"},
		{"a batch stops at the first refusal", "a batch takes nothing if one charge is refused"},
		{"a batch stops at the first refusal", "every charge that exceeds its limit is refused"},
		{"a refused batch describes what it did not take", "a batch takes nothing if one charge is refused"},
		{"only the first charge is taken", "a batch takes every charge"},
		{"an empty batch panics or fails", "a batch can be empty"},
		{"a batch has at most ten charges", "a batch can have MaxCharges charges"},
		{"looks stand in the way", "a look in a batch refuses nothing"},
		{"all keys are one", "keys are independent"},
		{"tiers are one", "rules and tiers count separately"},
		{"names are joined with a colon", "rules and tiers count separately"},
		{"keys end after 64 bytes", "a key is any bytes"},
		{"keys are hashed to 16 bits", "thousands of keys count separately"},
		{"charges are not checked", "an invalid batch is an error"},
		{"optional charges refuse", "an optional charge without room refuses nobody"},
		{"optional charges are never taken", "an optional charge without room refuses nobody"},
		{"optional charges are taken whatever there is", "an optional charge without room refuses nobody"},
		{"optional charges are taken by themselves", "a refused batch takes no optional charge"},
		{"optional charges refuse", "optional charges alone are each taken if they fit"},
		{"a charge that was admitted is admitted again", "charges can be decided again"},
		{"a decision keeps an earlier RetryAfter", "charges can be decided again"},
		{"nothing is given back", "refunded units can be taken again"},
		{"a refund has no time", "a refund returns the units that its decision took"},
		{"a refund takes the last turn", "a refunded turn does not move other turns together"},
		{"a refund has no time", "a refunded turn does not move other turns together"},
		{"more is given back than taken", "a refund returns no more than was taken"},
		{"all is given back", "a refund of 0 changes nothing"},
		{"a refund is saved up", "a refund of an unknown key changes nothing"},
		{"one is given back", "a refund of a batch returns units to each key"},
		{"nothing is owed", "a debt uses units"},
		{"what is owed has to fit", "later events wait until a debt is paid"},
		{"what is owed fills the limit", "later events wait until a debt is paid"},
		{"expires after half the time", "later events wait until a debt is paid"},
		{"looks stand in the way", "a look is admitted in spite of debts"},
		{"expires after two windows", "a debt outlives its window"},
		{"what is owed fills the limit", "a debt outlives its window"},
		{"nothing is forgiven", "a debt is at most one limit"},
		{"reset does nothing", "a reset key has no debt"},
		{"reset forgets what is not owed", "a reset key has no debt"},
		{"nothing is owed", "settling charges the actual cost"},
		{"nothing is given back", "settling charges the actual cost"},
		{"what buckets remember is lost", "units that are refunded late were in use until then"},
		{"what buckets remember is lost", "decides as Quota does"},
		{"reset does nothing", "a reset key is like a new key"},
		{"a new limit begins anew", "a changed limit keeps what was used"},
		{"a new limit reads the old state", "a changed limit keeps what was used"},
		{"a look rewrites the old limit's state", "a changed limit keeps what was used"},
		{"a refusal rewrites the old limit's state", "a changed limit keeps what was used"},
		{"a refusal rewrites the old limit's state", "two limits in turn admit at most the larger"},
		{"a refund converts what it changes", "settling under an old limit keeps what was used"},
		{"a debt converts what it changes", "settling under an old limit keeps what was used"},
		{"a debt stays under the old limit", "a raised limit applies to keys that only have debts"},
		{"states belong to the quota's address", "the same limit in a new quota changes nothing"},
		{"other limits' states are lost", "an event counts under each limit of its counter"},
		{"a new limit converts at each decision", "a client below two limits in turn is refused by neither"},
		{"a refused batch describes what it did not take", "decides as Quota does"},
		{"reads and writes in two steps", "exactly N of many callers are admitted"},
		{"owes in two steps", "charges, debts and refunds of many callers add up"},
		{"gives back in two steps", "charges, debts and refunds of many callers add up"},
	} {
		t.Run(tt.flaw+" fails "+tt.by, func(t *testing.T) {
			for _, c := range cases {
				if c.name == tt.by {
					failure := c.failure(t, tt.flaw)
					require.NotEmpty(t, failure, "the case passed on a store with that flaw")
					require.Contains(t, failure, c.why, "a failure says which promise was broken")
					return
				}
			}
			t.Fatalf("there is no case %q", tt.by)
		})
	}
}

// failure is how a store with that flaw fails the case, or empty.
func (c testCase) failure(t *testing.T, flaw string) string {
	limits := c.limits
	if limits == nil {
		limits = []limiter.Limit{{}}
	}
	for _, l := range limits {
		if text := c.failureUnder(t, flaw, l); text != "" {
			return text
		}
	}
	return ""
}

func (c testCase) failureUnder(t *testing.T, flaw string, l limiter.Limit) string {
	r := &recorder{}
	synctest.Test(t, func(t *testing.T) {
		r.TB = t
		ended := make(chan struct{})
		go func() { // since a failure ends its goroutine
			defer close(ended)
			defer func() {
				if p := recover(); p != nil {
					r.text = fmt.Sprint("panic: ", p, c.why)
				}
			}()
			store := newFlawed(flaw)
			time.Sleep(3_456_789 * tick) // not to begin where a window does
			c.test(&trial{TB: r, store: store, limit: l, stepsBack: true, sleep: func(d time.Duration) {
				store.behind += max(0, -d)
				time.Sleep(d)
			}})
		}()
		<-ended
	})
	return r.text
}

// A recorder keeps the failure that a case reports to it.
type recorder struct {
	testing.TB
	text string
}

func (r *recorder) Fatalf(format string, args ...any) {
	r.text = fmt.Sprintf(format, args...)
	runtime.Goexit()
}

// flawed is a sound store, but for one flaw.
type flawed struct {
	flaw  string
	clock func() time.Time
	made  time.Time

	behind time.Duration // how far the clock has stepped back
	latest int64

	mu    sync.Mutex
	held  map[string]held
	saved map[string]int64
	owed  map[string]int64
}

type held struct {
	state limiter.State
	until int64
}

func newFlawed(flaw string) *flawed {
	return &flawed{flaw: flaw, clock: time.Now, made: time.Now(), held: map[string]held{}, saved: map[string]int64{}, owed: map[string]int64{}}
}

func (s *flawed) now() int64 {
	switch s.flaw {
	case "time is in milliseconds":
		return s.clock().UnixMilli() * 1000
	case "never comes back":
		return s.made.UnixMicro()
	}
	now := s.clock().Add(-s.behind).UnixMicro()
	if s.flaw == "time never steps back" {
		s.latest = max(s.latest, now)
		return s.latest
	}
	return now
}

func (s *flawed) name(c limiter.Charge) string {
	rule, tier, key := c.Quota.Rule(), c.Quota.Tier(), c.Key
	switch s.flaw {
	case "all keys are one":
		key = ""
	case "tiers are one":
		tier = ""
	case "names are joined with a colon":
		return rule + ":" + tier + ":" + key
	case "keys end after 64 bytes":
		key = key[:min(64, len(key))]
	case "keys are hashed to 16 bits":
		hash := uint16(7)
		for _, b := range []byte(key) {
			hash = hash*31 + uint16(b)
		}
		key = fmt.Sprint(hash)
	case "states belong to the quota's address":
		rule = fmt.Sprintf("%p", c.Quota)
	}
	return fmt.Sprintf("%q %q %q", rule, tier, key)
}

// counted is charges as they are counted.
func (s *flawed) counted(charges []limiter.Charge) []limiter.Charge {
	if s.flaw != "small windows are counters" {
		return charges
	}
	charges = slices.Clone(charges)
	for i := range charges {
		c := &charges[i]
		if q := c.Quota; q != nil && q.Limit().Algorithm == limiter.SlidingWindow {
			c.Quota, _ = limiter.NewQuota(q.Rule(), q.Tier(), q.Limit().With(limiter.SlidingCounter))
		}
	}
	return charges
}

func (s *flawed) check(charges []limiter.Charge) error {
	err := limiter.CheckCharges(charges)
	switch {
	case s.flaw == "charges are not checked":
		return nil
	case s.flaw == "an empty batch panics or fails" && len(charges) == 0:
		return fmt.Errorf("no charges")
	case s.flaw == "a batch has at most ten charges" && len(charges) > 10:
		return fmt.Errorf("too many charges")
	}
	return err
}

// pause lets others in between two steps, if the flaw is that there are two.
func (s *flawed) pause(flaw string) {
	if s.flaw == flaw {
		s.mu.Unlock()
		runtime.Gosched()
		s.mu.Lock()
	}
}

// load is the state of a charge's key under its quota.
func (s *flawed) load(c limiter.Charge, now int64) limiter.State {
	if s.flaw == "forgets everything" {
		return limiter.State{}
	}
	h, ok := s.held[s.name(c)]
	if owed := s.owed[s.name(c)]; owed > 0 && now >= h.until {
		delete(s.owed, s.name(c))
		return c.Quota.Settle(limiter.State{}, now, limiter.Settlement{Actual: owed})
	}
	if !ok || strings.HasPrefix(s.flaw, "expires") && now >= h.until {
		return limiter.State{}
	}
	h.state.Log = slices.Clone(h.state.Log) // as others may have it at the same time
	if q := h.state.Quota; q == nil || q.Limit() == c.Quota.Limit() {
		return h.state
	}
	switch s.flaw {
	case "a new limit reads the old state":
		h.state.Quota = c.Quota
	case "a new limit begins anew":
		return limiter.State{}
	case "a new limit converts at each decision":
		return converted(h.state, c.Quota, now)
	case "a new limit forgets what is owed":
		return converted(h.state, c.Quota, now)
	case "a look rewrites the old limit's state", "a refusal rewrites the old limit's state":
		if (c.Cost == 0) == (s.flaw == "a look rewrites the old limit's state") {
			s.save(c, converted(h.state, c.Quota, now), now)
		}
	}
	return h.state
}

// converted is s as one of q's, without what is owed.
func converted(s limiter.State, q *limiter.Quota, now int64) limiter.State {
	used := s.Quota.Capacity() - s.Quota.Describe(s, now, 0, true).Remaining
	state, _ := q.Take(limiter.State{}, now, min(used, q.Capacity()))
	return state
}

func (s *flawed) save(c limiter.Charge, state limiter.State, now int64) {
	if s.flaw == "states are floats of 32 bits" {
		state.Level, state.Prev = int64(float32(state.Level)), int64(float32(state.Prev))
	}
	reset := state.FreeAfter(now)
	if s.flaw == "other limits' states are lost" {
		state.Others = nil
	}
	switch s.flaw {
	case "expires after two windows":
		reset = 2 * c.Quota.Window().Microseconds()
	case "what buckets remember is lost":
		if c.Quota.Algorithm() == limiter.TokenBucket {
			state.Log = nil
		}
	case "expires after half the time":
		reset /= 2
	}
	s.held[s.name(c)] = held{state, now + reset}
}

func (s *flawed) Decide(_ context.Context, charges []limiter.Charge) error {
	if err := s.check(charges); err != nil {
		return err
	}
	given := charges
	charges = s.counted(charges)
	s.mu.Lock()
	defer s.mu.Unlock()
	now := s.now()

	all := true
	before, after := make([]limiter.State, len(charges)), make([]limiter.State, len(charges))
	allowed := make([]bool, len(charges))
	for i, c := range charges {
		cost := c.Cost
		switch {
		case s.flaw == "every cost is 1":
			cost = min(1, cost)
		case s.flaw == "a look spends":
			cost = max(1, cost)
		case s.flaw == "costs are 32 bits":
			cost = int64(int32(cost))
		}
		before[i] = s.load(c, now)
		after[i], allowed[i] = c.Quota.Take(before[i], now, cost+s.saved[s.name(c)])
		late := c.Quota.Late(before[i], now, c.Within)
		if late > 0 && cost > 0 && s.flaw != "late events are taken" {
			after[i], allowed[i] = before[i], false
		}
		if s.flaw == "a refund is saved up" && s.saved[s.name(c)] < 0 {
			after[i], allowed[i] = before[i], true
		}
		if s.flaw == "looks stand in the way" && cost == 0 && c.Quota.Describe(before[i], now, 0, true).Remaining == 0 {
			allowed[i] = false
		}
		all = all && (allowed[i] || c.Optional && s.flaw != "optional charges refuse")
		if s.flaw == "a batch stops at the first refusal" && !all {
			break
		}
	}
	s.pause("reads and writes in two steps")
	for i, c := range charges {
		take := all && allowed[i]
		switch s.flaw {
		case "optional charges are never taken":
			take = all && !c.Optional
		case "optional charges are taken by themselves":
			take = allowed[i] && (all || c.Optional)
		case "optional charges are taken whatever there is":
			if all && !allowed[i] {
				after[i], take = c.Quota.Settle(before[i], now, limiter.Settlement{Actual: c.Cost}), true
			}
		case "a batch is one by one":
			take = allowed[i]
		case "a batch stops at the first refusal":
			take = allowed[i]
		case "only the first charge is taken":
			take = all && i == 0
		case "a refusal spends":
			if !allowed[i] && c.Cost <= c.Quota.Capacity() {
				rest := c.Quota.Describe(before[i], now, 0, true).Remaining
				after[i], _ = c.Quota.Take(before[i], now, rest)
				take = true
			}
		}
		if take && (c.Cost > 0 || s.flaw == "a look spends") {
			s.save(c, after[i], now)
		}
		d := &given[i].Decision
		was := *d
		switch {
		case all && allowed[i]:
			*d = c.Quota.Describe(after[i], now, c.Cost, true)
		case allowed[i] && s.flaw == "a refused batch describes what it did not take":
			*d = c.Quota.Describe(after[i], now, c.Cost, true)
		case allowed[i]:
			*d = c.Quota.Describe(before[i], now, 0, true)
		default:
			*d = c.Quota.Describe(before[i], now, c.Cost, false)
			if d.RetryAfter = max(d.RetryAfter, c.Quota.Late(before[i], now, c.Within)); s.flaw == "late events come when the queue is empty" {
				d.RetryAfter = max(d.RetryAfter, d.ResetAfter)
			}
		}
		switch s.flaw {
		case "a charge that was admitted is admitted again":
			d.Allowed = d.Allowed || was.Allowed
		case "a decision keeps an earlier RetryAfter":
			d.RetryAfter = cmp.Or(d.RetryAfter, was.RetryAfter)
		case "no delay":
			d.Delay = 0
		case "NextAfter is ResetAfter":
			d.NextAfter = d.ResetAfter
		case "RetryAfter is in seconds":
			if r := d.RetryAfter; r > 0 && r != limiter.Never {
				d.RetryAfter = (r + time.Second - 1).Truncate(time.Second)
			}
		}
	}
	return nil
}

func (s *flawed) Settle(_ context.Context, settlements []limiter.Settlement) error {
	if err := limiter.CheckSettlements(settlements); err != nil && s.flaw != "charges are not checked" {
		return err
	}
	var refunds, debts []limiter.Charge
	for _, c := range settlements {
		if owed := c.Actual - c.Cost; owed > 0 {
			c.Cost = owed
			debts = append(debts, c.Charge)
		} else {
			c.Cost = -owed
			refunds = append(refunds, c.Charge)
		}
	}
	s.refund(s.counted(refunds))
	return s.owe(s.counted(debts))
}

func (s *flawed) refund(charges []limiter.Charge) {
	s.mu.Lock()
	defer s.mu.Unlock()
	now := s.now()
	for i, c := range charges {
		cost := c.Cost
		switch {
		case s.flaw == "nothing is given back":
			continue
		case s.flaw == "one is given back" && i > 0:
			continue
		case s.flaw == "a refund has no time":
			c.Decision = limiter.Decision{}
		case s.flaw == "a refund takes the last turn":
			d := c.Quota.Describe(s.held[s.name(c)].state, now, 0, true)
			c.Decision = d
		case s.flaw == "all is given back" && cost == 0:
			cost = c.Quota.Capacity()
		case s.flaw == "a refund is saved up":
			if _, ok := s.held[s.name(c)]; !ok {
				s.saved[s.name(c)] -= cost
				continue
			}
		}
		state := s.load(c, now)
		if state.Quota != nil && state.Quota != c.Quota && s.flaw == "a refund converts what it changes" {
			state = converted(state, c.Quota, now)
		}
		s.pause("gives back in two steps")
		c.Cost = cost
		state = c.Quota.Settle(state, now, limiter.Settlement{Charge: c})
		if s.flaw == "more is given back than taken" && state.Level == 0 {
			state.Level = -cost
		}
		s.save(c, state, now)
	}
}

func (s *flawed) owe(charges []limiter.Charge) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	now := s.now()
	for _, c := range charges {
		cost, state := c.Cost, s.load(c, now)
		switch {
		case state.Quota == nil:
		case s.flaw == "a debt converts what it changes":
			state = converted(state, c.Quota, now)
		case s.flaw == "a debt stays under the old limit":
			c.Quota = state.Quota
		}
		free := c.Quota.Describe(state, now, 0, true).Remaining
		switch {
		case s.flaw == "nothing is owed":
			continue
		case s.flaw == "what is owed has to fit" && cost > free:
			return fmt.Errorf("there is no room for %d", cost)
		case s.flaw == "what is owed fills the limit":
			cost = min(cost, free)
		case s.flaw == "nothing is forgiven" && cost > c.Quota.Capacity():
			s.owed[s.name(c)] += cost - c.Quota.Capacity()
		}
		s.pause("owes in two steps")
		s.save(c, c.Quota.Settle(state, now, limiter.Settlement{Actual: cost}), now)
	}
	return nil
}

func (s *flawed) Reset(_ context.Context, charges []limiter.Charge) error {
	if err := s.check(charges); err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, c := range charges {
		switch s.flaw {
		case "reset does nothing":
		case "reset forgets what is not owed":
			if h := s.held[s.name(c)]; h.state.Level <= c.Quota.Capacity() {
				delete(s.held, s.name(c))
			}
		default:
			delete(s.held, s.name(c))
		}
	}
	return nil
}
