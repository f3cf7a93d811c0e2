package redisstore

import (
	"cmp"
	"context"
	"encoding/binary"
	"flag"
	"fmt"
	"math"
	"math/big"
	"math/rand/v2"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/weirgo/weir/internal/redistest"
	"github.com/weirgo/weir/limiter"
	stores "github.com/weirgo/weir/limiter/store"
)

// A model says what the script must answer and store. It knows no algorithm: it holds a
// [limiter.State] for each counter and asks the [limiter.Quota].
type model map[counter]limiter.State

type counter struct{ rule, tier, key string }

func counterOf(c limiter.Charge) counter { return counter{c.Quota.Rule(), c.Quota.Tier(), c.Key} }

// alike tells that states of a are states of b.
func alike(a, b *limiter.Quota) bool {
	if a.Limit().Calendar() != "" || b.Limit().Calendar() != "" {
		return a.Limit() == b.Limit()
	}
	return a.Algorithm() == b.Algorithm() && a.Numbers(0) == b.Numbers(0)
}

// at is the state of a charge's key.
func (m model) at(c limiter.Charge) limiter.State {
	s := clone(m[counterOf(c)])
	if s.Quota != nil && alike(s.Quota, c.Quota) {
		s.Quota = c.Quota
	}
	for i, o := range s.Others {
		if alike(o.Quota, c.Quota) {
			s.Others[i].Quota = c.Quota
		}
	}
	return s
}

// put writes a state. One with all its units free is forgotten.
func (m model) put(c limiter.Charge, s limiter.State, now int64) {
	m[counterOf(c)] = s
	if s.FreeAfter(now) <= 0 {
		delete(m, counterOf(c))
	}
}

func (m model) decide(charges []limiter.Charge, now int64) []limiter.Decision {
	states := make([]limiter.State, len(charges))
	for i, c := range charges {
		states[i] = m.at(c)
	}
	charges = slices.Clone(charges)
	if stores.TakeAll(charges, states, now) {
		for i, c := range charges {
			if c.Cost > 0 && c.Decision.Allowed { // neither a look nor a refusal writes anything
				m.put(c, states[i], now)
			}
		}
	}
	return decisionsOf(charges)
}

// look is what a charge's key looks like, however much it costs.
func (m model) look(c limiter.Charge, now int64) limiter.Decision {
	return c.Quota.Describe(m.at(c), now, 0, true)
}

// settle owes what charges cost, or refunds as much below 0.
func (m model) settle(charges []limiter.Charge, now int64) {
	for _, c := range charges {
		settlement := limiter.Settlement{Charge: c}
		settlement.Cost, settlement.Actual = max(0, -c.Cost), max(0, c.Cost)
		if c.Cost != 0 {
			m.put(c, c.Quota.Settle(m.at(c), now, settlement), now)
		}
	}
}

// refunds is charges of which all units return.
func refunds(charges ...limiter.Charge) []limiter.Charge {
	charges = slices.Clone(charges)
	for i := range charges {
		charges[i].Cost = -charges[i].Cost
	}
	return charges
}

// clone is s with a log of its own, as a quota may change one in place.
func clone(s limiter.State) limiter.State {
	s.Log = slices.Clone(s.Log)
	s.Others = slices.Clone(s.Others)
	for i := range s.Others {
		s.Others[i] = clone(s.Others[i])
	}
	return s
}

func (m model) reset(charges []limiter.Charge) {
	for _, c := range charges {
		delete(m, counterOf(c))
	}
}

// Chance is where the numbers of a trace come from.
type chance struct {
	draw func(from, to int64) int64
	more func() bool
}

func fromRapid(t *rapid.T, steps int) chance {
	left := rapid.IntRange(1, steps).Draw(t, "steps")
	return chance{
		draw: func(from, to int64) int64 { return rapid.Int64Range(from, to).Draw(t, "") },
		more: func() bool { left--; return left >= 0 },
	}
}

func (c chance) oneIn(n int64) bool { return c.draw(1, n) == n }

// magnitude is a number from 1 to most, as likely small as large.
func (c chance) magnitude(most int64) int64 {
	for n := c.draw(0, int64(big.NewInt(most).BitLen())-1); n > 0; n-- {
		most >>= 1
	}
	return c.draw(most/2+1, most)
}

func pick[T any](c chance, from []T) T { return from[c.draw(0, int64(len(from))-1)] }

const year = 366 * 24 * time.Hour

// extremes are the limits at which something has to give.
var extremes = []limiter.Limit{
	{Events: 1, Per: year},
	{Events: 1, Per: year, Algorithm: limiter.SlidingCounter},
	{Events: 1, Per: time.Microsecond, Algorithm: limiter.SlidingCounter},
	{Events: 10, Per: time.Microsecond, Algorithm: limiter.SlidingCounter},
	{Events: 10_000_000, Per: time.Second},
	{Events: 1_000_000_000_000, Per: 30 * 24 * time.Hour},
	{Events: 1_000_000_000_000, Per: year},
	{Events: 999_999_999_989, Per: year - time.Microsecond},
	{Events: 1, Per: year, Algorithm: limiter.TokenBucket},
	{Events: 10, Per: time.Microsecond, Algorithm: limiter.TokenBucket},
	{Events: 10_000_000, Per: time.Second, Burst: 1_000_000_000_000, Algorithm: limiter.TokenBucket},
	{Events: 1_000_000_000_000, Per: 30 * 24 * time.Hour, Algorithm: limiter.TokenBucket},
	{Events: 999_999_999_989, Per: year - time.Microsecond, Burst: 999_999_999_989, Algorithm: limiter.TokenBucket},
	{Events: 3, Per: 7 * time.Microsecond, Burst: 1, Algorithm: limiter.TokenBucket},
	{Events: 1, Per: year, Burst: 1, Algorithm: limiter.LeakyBucket},
	{Events: 1_000_000_000_000, Per: year, Algorithm: limiter.LeakyBucket},
	{Events: 16_383, Per: 16_381 * time.Microsecond, Burst: 1, Algorithm: limiter.LeakyBucket},
	{Events: 1, Per: time.Microsecond, Algorithm: limiter.FixedWindow},
	{Events: 1_000_000_000_000, Per: year, Algorithm: limiter.FixedWindow},
	limiter.Daily(3),
	limiter.Daily(1000).In("Africa/Cairo"),
	limiter.Weekly(5).From(time.Saturday).In("Asia/Kolkata"),
	limiter.Monthly(1_000_000_000_000).In("Europe/Berlin"),
	limiter.Yearly(7).In("America/New_York"),
	{Events: 1, Per: year, Algorithm: limiter.SlidingLog},
	{Events: 10, Per: time.Microsecond, Algorithm: limiter.SlidingLog},
	{Events: 10_000, Per: time.Second, Algorithm: limiter.SlidingLog},
	{Events: 10_000, Per: year, Algorithm: limiter.SlidingLog},
}

// limit is any that is valid.
func (c chance) limit() limiter.Limit {
	if c.oneIn(4) {
		return pick(c, extremes)
	}
	l := limiter.Limit{Algorithm: limiter.Algorithm(c.draw(0, int64(limiter.SlidingCounter)))}
	l.Per = time.Duration(c.magnitude(year.Microseconds())) * time.Microsecond
	events := int64(1_000_000_000_000)
	if l.Algorithm == limiter.SlidingLog {
		events = pick(c, []int64{3, 3, 20, 20, 10_000})
	}
	l.Events = c.magnitude(min(events, 10*l.Per.Microseconds()))
	if l.Algorithm == limiter.TokenBucket || l.Algorithm == limiter.LeakyBucket {
		l.Burst = pick(c, []int64{0, 1, 2, c.magnitude(1_000_000_000_000)})
	}
	for l.Validate() != nil {
		l.Burst /= 2 // as it takes too long to come back
	}
	return l
}

// A fail is what a test in a trace ends with.
type fail interface {
	Helper()
	Fatalf(format string, args ...any)
}

// A comparison is a store and a model that are told the same.
type comparison struct {
	chance
	t      fail
	store  *store
	clock  *serverClock
	client redis.UniversalClient
	model  model

	rules  []*limiter.Quota // as the limits are now
	former []*limiter.Quota // what a limit was before
	keys   []string
	waits  []time.Duration // that decisions told of
	times  []int64         // of decisions
	told   []string

	// What may happen, apart from decisions.
	back, change, batches bool
	hammer                bool // the same is asked again soon
}

func compareWithModel(t fail, c chance, s *store, clock *serverClock) *comparison {
	return compareUnder(t, c, c.limit, s, clock)
}

func compareUnder(t fail, c chance, limit func() limiter.Limit, s *store, clock *serverClock) *comparison {
	clock.micros.Store(clock.begun + c.draw(0, 1_000_000))
	w := &comparison{chance: c, t: t, store: s, clock: clock, client: s.transport.Client, model: model{}}
	w.check(w.client.FlushAll(context.Background()).Err())
	s.clock.Set(clock.micros.Load())
	for _, name := range []counter{{rule: "rule"}, {rule: "rule", tier: "tier"}, {rule: "GET /other"}} {
		w.rules = append(w.rules, w.quota(name.rule, name.tier, limit()))
		w.rules[len(w.rules)-1].Settles = w.oneIn(2)
	}
	w.former = slices.Clone(w.rules)
	w.keys = []string{"a", "b", "c"}[:c.draw(1, 3)]
	return w
}

func (w *comparison) quota(rule, tier string, l limiter.Limit) *limiter.Quota {
	w.t.Helper()
	q, err := limiter.NewQuota(rule, tier, l)
	if err != nil {
		w.t.Fatalf("a limit that was drawn is not valid: %v", err)
	}
	return q
}

func (w *comparison) note(format string, args ...any) {
	w.told = append(w.told, fmt.Sprintf(format, args...))
}

// broken ends the test with what led to it.
func (w *comparison) broken(format string, args ...any) {
	w.t.Helper()
	w.t.Fatalf("%s\nafter\n%s", fmt.Sprintf(format, args...), strings.Join(w.told[max(0, len(w.told)-30):], "\n"))
}

func (w *comparison) check(err error) {
	w.t.Helper()
	if err != nil {
		w.broken("Redis could not decide: %v", err)
	}
}

// run lets things happen, and compares what Redis then holds.
func (w *comparison) run() {
	w.t.Helper()
	for w.more() {
		switch n := w.draw(0, 20); {
		case n == 0 && w.change:
			w.changeLimit()
		case n <= 2 && w.batches:
			w.batch()
		case n == 3:
			charges := w.charges()
			w.note("reset %v", shown(charges[:1]))
			w.check(w.store.Reset(context.Background(), charges[:1]))
			w.model.reset(charges[:1])
		case n <= 6:
			w.settle(w.settlements())
		case n <= 11:
			w.passTime()
		default:
			charges := w.charges()
			w.decide(charges)
			for w.hammer && !w.oneIn(3) {
				w.clock.sleep(time.Duration(w.magnitude(400_000)-1) * time.Microsecond)
				w.decide(charges)
			}
		}
	}
	w.compareStored(w.rules, w.keys)
	keys, err := w.client.DBSize(context.Background()).Result()
	w.check(err)
	if keys != int64(len(w.model)) {
		w.broken("Redis has %d keys, want %d", keys, len(w.model))
	}
}

func (w *comparison) decide(charges []limiter.Charge) []limiter.Decision {
	w.t.Helper()
	w.note("at %d decide %v", w.clock.micros.Load(), shown(charges))
	w.check(w.store.Decide(context.Background(), charges))
	got := decisionsOf(charges)
	w.compare(charges, got, w.model.decide(charges, w.clock.micros.Load()))
	return got
}

func (w *comparison) settle(charges []limiter.Charge) {
	w.t.Helper()
	w.note("at %d settle %v", w.clock.micros.Load(), shown(charges))
	w.check(w.store.change(context.Background(), settle, charges, all(charges)))
	w.model.settle(charges, w.clock.micros.Load())
}

func shown(charges []limiter.Charge) string {
	var b strings.Builder
	for _, c := range charges {
		fmt.Fprintf(&b, " %s of %s/%s %+v costs %d within %v, at %d;", c.Key, c.Quota.Rule(), c.Quota.Tier(), c.Quota.Limit(), c.Cost, c.Within, c.Decision.Receipt.At)
	}
	return b.String()
}

func (w *comparison) compare(charges []limiter.Charge, got, want []limiter.Decision) {
	w.t.Helper()
	for i := range charges {
		if got[i].Receipt.By == limiter.ByMemory {
			got[i].Receipt.By = limiter.ByStore
		}
		if got[i] != want[i] {
			w.broken("(%v) charge %d was answered\n%+v, and\n%+v is what Go says", got, i, got[i], want[i])
		}
		w.times = append(w.times, got[i].Receipt.At)
		for _, wait := range []time.Duration{got[i].RetryAfter, got[i].NextAfter, got[i].ResetAfter, got[i].Delay} {
			if wait > 0 && wait != limiter.Never {
				w.waits = append(w.waits, wait)
			}
		}
	}
}

// charges are one to six, no two of them for one counter.
func (w *comparison) charges() []limiter.Charge {
	var charges []limiter.Charge
	for n := w.draw(1, 6); n > 0; n-- {
		i := w.draw(0, int64(len(w.rules))-1)
		q := w.rules[i]
		if w.batches && w.oneIn(4) {
			q = w.former[i]
		}
		c := limiter.Charge{Quota: q, Key: pick(w.chance, w.keys), Cost: w.cost(q), Optional: w.oneIn(4)}
		if w.oneIn(3) {
			c.Within = time.Duration(w.magnitude(q.Window().Microseconds())) * time.Microsecond
			c.Within = pick(w.chance, []time.Duration{c.Within, c.Within, q.Window(), 1, 300 * 24 * time.Hour})
		}
		if !slices.ContainsFunc(charges, func(other limiter.Charge) bool { return counterOf(other) == counterOf(c) }) {
			charges = append(charges, c)
		}
	}
	return charges
}

// refunds are charges that were taken at the times of decisions, or at an unknown time.
// settlements are refunds and debts.
func (w *comparison) settlements() []limiter.Charge {
	charges := w.charges()
	for i := range charges {
		if !w.oneIn(3) {
			charges[i].Cost = -charges[i].Cost
		}
		if len(w.times) > 0 && !w.oneIn(4) {
			charges[i].Decision.Receipt.At = pick(w.chance, w.times[max(0, len(w.times)-20):])
		}
	}
	return charges
}

func (w *comparison) cost(q *limiter.Quota) int64 {
	switch most := q.Capacity(); w.draw(0, 11) {
	case 0:
		return 0
	case 1:
		return most
	case 2:
		return most + 1
	case 3:
		return most - 1
	case 4:
		return pick(w.chance, []int64{math.MaxInt64, 1 << 53, 1<<53 + 1, 1 << 62})
	case 5, 6:
		return w.magnitude(most)
	case 7:
		return most/2 + 1
	default:
		return 1
	}
}

func (w *comparison) passTime() {
	window := pick(w.chance, w.rules).Window().Microseconds()
	now := w.clock.micros.Load()
	step := int64(0)
	switch w.draw(0, 9) {
	case 0:
		step = 1
	case 1:
		step = w.draw(0, window)
	case 2:
		step = w.magnitude(window)
	case 3: // where a window ends, or that of a calendar or one beside it
		step = window - now%window + w.draw(-1, 1)
		q := pick(w.chance, w.rules)
		if start, end := q.WindowAt(now); q.Limit().Calendar() != "" {
			step = pick(w.chance, []int64{end, start, start - (end - start), end + (end - start)}) - now + w.draw(-1, 1)
		}
	case 4, 5, 6: // what somebody was told to wait, and a microsecond less
		if len(w.waits) > 0 {
			step = pick(w.chance, w.waits[max(0, len(w.waits)-6):]).Microseconds() + w.draw(-1, 0)
		}
	case 7:
		step = w.draw(1, 5) * year.Microseconds() / 2
	default:
		if w.back {
			step = -w.magnitude(pick(w.chance, []int64{(5 * time.Hour).Microseconds(), 2 * window}))
		}
	}
	if w.back || step > 0 {
		now += step
	}
	const first, last = 946684800_000000, 7258118400_000000 // the years 2000 and 2200
	w.clock.sleep(time.Duration(min(max(now, first), last)-w.clock.micros.Load()) * time.Microsecond)
	wrong := int64(0) // as the process's clock is: Redis's says which window of a calendar it is
	if w.oneIn(8) {
		wrong = w.draw(-1, 1) * w.magnitude(40*24*time.Hour.Microseconds())
	}
	w.store.clock.Set(w.clock.micros.Load() + wrong)
	w.note("%d us later, at %d", step, w.clock.micros.Load())
}

// changeLimit gives a rule another limit, or the same one in another quota.
func (w *comparison) changeLimit() {
	i := w.draw(0, int64(len(w.rules))-1)
	q := w.rules[i]
	l := q.Limit()
	switch w.draw(0, 5) {
	case 0:
	case 1, 2: // another number
		if l.Events = w.draw(1, 2*l.Events); l.Validate() != nil {
			l = q.Limit()
		}
	case 3: // another algorithm
		l = limiter.Limit{Events: l.Events, Per: l.Per, Algorithm: limiter.Algorithm(w.draw(0, int64(limiter.SlidingCounter)))}
		if l.Validate() != nil {
			l = w.limit()
		}
	default:
		l = w.limit()
	}
	w.former[i] = q
	w.rules[i] = w.quota(q.Rule(), q.Tier(), l)
	w.rules[i].Settles = q.Settles
	w.note("%s/%s is %+v", q.Rule(), q.Tier(), l)
}

// batch carries several groups to Redis at once, which must be as one after the other.
func (w *comparison) batch() {
	w.t.Helper()
	type sent struct {
		*call
		charges []limiter.Charge
	}
	var batch []*call
	var all []sent
	for n := w.draw(2, 6); n > 0; n-- {
		op := op(w.draw(0, 6))
		if op > reset {
			op = take
		}
		charges := w.charges()
		if op == settle {
			charges = w.settlements()
		}
		g := newCall(op)
		for i := range charges {
			c := &charges[i]
			g.tag = w.store.names.Digest(c.Key)
			g.add(w.store.names.Name(g.tag, c.Quota), c)
		}
		batch = append(batch, g)
		all = append(all, sent{g, charges})
		w.note("together: op %d, %s", op, shown(charges))
	}
	sendAlone(w.store, batch)
	now := w.clock.micros.Load()
	for _, g := range all {
		<-g.done
		w.check(g.err)
		if g.reply.now != now {
			w.broken("the script said it was %d, want %d", g.reply.now, now)
		}
		charges := slices.Clone(g.charges)
		for i := range charges {
			charges[i].Optional = charges[i].Optional && g.op == take
		}
		var want []limiter.Decision
		switch g.op {
		case take:
			g.reply.decide(charges, true)
			want = w.model.decide(g.charges, now)
		case settle:
			g.reply.look(charges)
			w.model.settle(g.charges, now)
			for _, c := range g.charges {
				want = append(want, w.model.look(c, now))
			}
		case reset:
			g.reply.look(charges)
			w.model.reset(g.charges)
			for _, c := range g.charges {
				want = append(want, w.model.look(c, now))
			}
		}
		w.compare(g.charges, decisionsOf(charges), want)
		g.free()
	}
}

// compareStored reads the bytes of all counters of the rules and keys, not through the script.
func (w *comparison) compareStored(rules []*limiter.Quota, keys []string) {
	w.t.Helper()
	var of []counter
	var names []string
	for _, q := range rules {
		for _, key := range keys {
			of = append(of, counter{q.Rule(), q.Tier(), key})
			names = append(names, w.store.names.Name(w.store.names.Digest(key), q))
		}
	}
	values, err := w.client.MGet(context.Background(), names...).Result()
	w.check(err)
	for i, name := range names {
		value, isStored := values[i].(string)
		want, ok := w.model[of[i]]
		switch {
		case !isStored && !ok:
			continue
		case !isStored:
			w.broken("%s is not stored, want %+v", name, want)
		case !ok:
			w.broken("%s is stored as %x, though nothing of it is used", name, value)
		}
		states, cut, err := decodeStates(value, want)
		if err != nil {
			w.broken("%s, of %+v: %v", name, want.Quota.Limit(), err)
		}
		if len(states) != 1+len(want.Others) || len(states) > 1 && cut != want.Cut {
			w.broken("%s, of %+v, is stored as\n%+v, cut at %d, and\n%+v is what Go says", name, want.Quota.Limit(), states, cut, want)
		}
		for i, want := range append([]limiter.State{want}, want.Others...) {
			state := states[i]
			if state.Last != want.Last || state.Level != want.Level || state.Prev != want.Prev || state.Taken != want.Taken || !slices.Equal(state.Log, want.Log) {
				w.broken("%s, of %+v, is stored as\n%+v, and\n%+v is what Go says", name, want.Quota.Limit(), state, want)
			}
		}
	}
}

// decodeStates reads a value with the states of want.
func decodeStates(value string, want limiter.State) (states []limiter.State, cut int64, err error) {
	if value == "" || value[0] != 255 {
		s, err := decodeStored(value, want.Quota)
		return []limiter.State{s}, 0, err
	}
	quotas := []*limiter.Quota{want.Quota}
	for _, o := range want.Others {
		quotas = append(quotas, o.Quota)
	}
	double := func(at int) int64 { return int64(math.Float64frombits(binary.LittleEndian.Uint64([]byte(value[at:])))) }
	for at := 17; at < len(value); {
		q := quotas[min(len(states), len(quotas)-1)]
		numbers := [3]int64{double(at + 1), double(at + 9), double(at + 17)}
		if w := q.Numbers(numbers[1]); limiter.Algorithm(value[at]) != q.Algorithm() || numbers != w {
			return nil, 0, fmt.Errorf("state %d was written under %d %v, want %d %v", len(states), value[at], numbers, q.Algorithm(), w)
		}
		s := limiter.State{Last: double(at + 25), Level: double(at + 33), Prev: double(at + 41), Taken: double(at + 49)}
		end := at + 65 + int(double(at+57))
		for at += 65; at < end; at += 16 {
			s.Log = append(s.Log, limiter.Entry{At: double(at), N: double(at + 8)})
		}
		states = append(states, s)
	}
	return states, double(1), nil
}

// decodeStored reads a value that was written under q.
func decodeStored(value string, q *limiter.Quota) (s limiter.State, err error) {
	double := func(at int) int64 {
		f := math.Float64frombits(binary.LittleEndian.Uint64([]byte(value[at : at+8])))
		if f != math.Trunc(f) || f < 0 || f > 1<<53 {
			err = fmt.Errorf("there is %v at %d: not an integer from 0 to 2^53", f, at)
		}
		return int64(f)
	}
	if len(value) < 57 {
		return s, fmt.Errorf("it has %d bytes", len(value))
	}
	numbers := [3]int64{double(1), double(9), double(17)}
	if want := q.Numbers(numbers[1]); limiter.Algorithm(value[0]) != q.Algorithm() || numbers != want {
		return s, fmt.Errorf("it was written under %d %v, want %d %v", value[0], numbers, q.Algorithm(), want)
	}
	s = limiter.State{Last: double(25), Level: double(33), Prev: double(41)}
	entry := func(at int) {
		s.Log = append(s.Log, limiter.Entry{At: double(at), N: double(at + 8)})
	}
	if !isLog(q) || q.Capacity() <= 10 {
		if len(value) != 57 && (!isLog(q) && !hasLows(q) || len(value)%16 != 57%16) {
			return s, fmt.Errorf("it has %d bytes", len(value))
		}
		if most := 10; len(value) > 57+16*most {
			return s, fmt.Errorf("it has %d bytes", len(value))
		}
		for at := 57; at < len(value); at += 16 {
			entry(at)
		}
		if expiry, free := double(49), s.Last+q.Describe(clone(s), s.Last, 0, true).ResetAfter.Microseconds(); err == nil && expiry < free {
			return s, fmt.Errorf("it expires at %d, and is free at %d", expiry, free)
		}
		return s, err
	}
	slots, head, count := q.Capacity(), double(49), double(57)
	if most := 65 + 16*int(slots); len(value) > most || head >= slots || count > slots {
		return s, fmt.Errorf("a ring of %d has %d bytes, %d entries and a head at %d", slots, len(value), count, head)
	}
	for i := range count {
		at := 65 + 16*int((head+i)%slots)
		if at+16 > len(value) {
			return s, fmt.Errorf("entry %d of %d is at %d, after the end at %d", i, count, at, len(value))
		}
		entry(at)
	}
	return s, err
}

// hasLows reports whether q's buckets remember how low they were.
func hasLows(q *limiter.Quota) bool {
	return q.Settles && q.Algorithm() == limiter.TokenBucket
}

func startRedis(t testing.TB, options ...string) (*redistest.Server, *redis.Client) {
	t.Helper()
	server := redistest.Start(t, options...)
	client := redis.NewClient(&redis.Options{Addr: server.Addr})
	t.Cleanup(func() { _ = client.Close() })
	return server, client
}

// steps is how long a trace may be.
func steps() int {
	if testing.Short() {
		return 30
	}
	return 120
}

// draws is how many traces the tests of all scripts draw: 200, or WEIR_DRAWS.
func draws(t *testing.T) int {
	t.Helper()
	n, err := strconv.Atoi(cmp.Or(os.Getenv("WEIR_DRAWS"), "200"))
	require.NoError(t, err, "WEIR_DRAWS")
	return n
}

func TestLuaDecidesAndStoresWhatGoDoes(t *testing.T) { compareWithGo(t, draws(t), false) }

// A server without struct has the same scripts and the stand-in for it, which a test of its own
// holds equal to struct. So a tenth of the traces do.
func TestThePlainScriptsDecideAndStoreWhatGoDoes(t *testing.T) {
	compareWithGo(t, (draws(t)+9)/10, true)
}

// compareWithGo compares any requests with the model, and groups in a batch with the same groups
// one after the other. Two servers share the traces: while one decides, Go works on the other.
// A failure prints the seed, and the phase in which the clock began.
func compareWithGo(t *testing.T, traces int, lacksStruct bool) {
	const servers = 2
	checks := flag.Lookup("rapid.checks")
	if checks.Value.String() == checks.DefValue && !testing.Short() {
		require.NoError(t, checks.Value.Set(strconv.Itoa((traces+servers-1)/servers)))
		t.Cleanup(func() { _ = checks.Value.Set(checks.DefValue) })
	}
	for i := range servers {
		t.Run(fmt.Sprint("server ", i+1), func(t *testing.T) {
			t.Parallel()
			_, client := startRedis(t)
			clock := newServerClock(t)
			s := onClock(t, clock, client, Options{ForgetRefusals: true})
			if lacksStruct {
				s.script = onTestClock(t, standIn(t)+strings.TrimPrefix(scriptLua, structLua))
			}
			rapid.Check(t, func(t *rapid.T) {
				w := compareWithModel(t, fromRapid(t, steps()), s, clock)
				w.back, w.change, w.batches = true, true, true
				w.run()
			})
		})
	}
}

// A log has a search and a ring, so it gets more of what is hard for them: few events of
// different times, and waits that end when one in the middle does.
func TestALogInLuaDecidesAndStoresWhatOneInGoDoes(t *testing.T) {
	t.Parallel()
	_, client := startRedis(t)
	clock := newServerClock(t)
	s := onClock(t, clock, client, Options{ForgetRefusals: true})
	rapid.Check(t, func(t *rapid.T) {
		c := fromRapid(t, 2*steps())
		w := compareUnder(t, c, func() limiter.Limit {
			return limiter.Limit{Events: c.draw(2, 12), Per: time.Second, Algorithm: limiter.SlidingLog}
		}, s, clock)
		w.keys, w.back, w.batches = w.keys[:1], true, true
		for c.more() {
			if c.oneIn(4) {
				w.batch()
			}
			q := pick(c, w.rules)
			d := w.decide([]limiter.Charge{{Quota: q, Key: w.keys[0], Cost: c.draw(0, q.Capacity())}})[0]
			switch {
			case d.RetryAfter == 0:
				clock.sleep(time.Duration(c.draw(0, 200_000)) * time.Microsecond)
			case c.oneIn(2):
				clock.sleep(d.RetryAfter)
			default:
				clock.sleep(d.RetryAfter - time.Microsecond)
			}
		}
		w.run()
	})
}

// A bucket that settles gets more events than it has lows, and not so slowly that it empties.
func TestTheLowsOfABucketInLuaAreThoseInGo(t *testing.T) {
	t.Parallel()
	_, client := startRedis(t)
	clock := newServerClock(t)
	s := onClock(t, clock, client, Options{ForgetRefusals: true})
	rapid.Check(t, func(t *rapid.T) {
		c := fromRapid(t, 2*steps())
		w := compareUnder(t, c, func() limiter.Limit {
			return limiter.Limit{Events: c.draw(10, 200), Per: time.Second, Algorithm: limiter.TokenBucket}
		}, s, clock)
		q, key := w.rules[0], w.keys[0]
		q.Settles = true
		for range 24 {
			w.decide([]limiter.Charge{{Quota: q, Key: key, Cost: c.draw(1, 10)}})
			if c.oneIn(3) {
				back := []limiter.Charge{{Quota: q, Key: key, Cost: -c.draw(1, 10)}}
				back[0].Decision.Receipt.At = pick(c, w.times)
				w.note("settle %v", shown(back))
				w.check(s.change(context.Background(), settle, back, all(back)))
				w.model.settle(back, clock.micros.Load())
			}
			w.compareStored([]*limiter.Quota{q}, []string{key})
			clock.sleep(time.Duration(c.draw(0, 30_000)) * time.Microsecond)
		}
	})
}

// A process that alone talks to Redis never sees that it remembers refusals.
func TestARememberedRefusalIsWhatRedisWouldHaveSaid(t *testing.T) {
	t.Parallel()
	_, client := startRedis(t)
	clock := newServerClock(t)
	remembered := uint64(0)
	rapid.Check(t, func(rt *rapid.T) {
		s := onClock(t, clock, client, Options{})
		w := compareWithModel(rt, fromRapid(rt, steps()), s, clock)
		w.hammer = true
		w.run()
		remembered += s.remembered.Load()
	})
	assert.NotZero(t, remembered, "refusals are remembered at all")
}

func TestDivisionInLuaIsGos(t *testing.T) {
	t.Parallel()
	_, client := startRedis(t)
	const script = `
		local answers = {}
		for i = 1, #ARGV, 2 do
			local a, b = tonumber(ARGV[i]), tonumber(ARGV[i + 1])
			answers[#answers + 1] = string.format('%.17g %.17g', div(a, b), divUp(a, b))
		end
		return answers`
	const top = int64(1 << 53)
	var pairs [][2]int64
	add := func(a, b int64) {
		if a >= 0 && b > 0 && a <= top && b <= top {
			pairs = append(pairs, [2]int64{a, b})
		}
	}
	interesting := []int64{1, 2, 3, 5, 7, 10, 1<<14 - 1, 1 << 14, 999_983, 1_000_000, 60_000_000,
		1 << 26, 1<<27 - 1, 94906265, 94906266, 94906267, 1_700_000_000_000_000, 1 << 52, 1<<52 + 1, top - 3, top - 2, top - 1, top}
	for _, a := range interesting {
		add(0, a)
		for _, b := range interesting {
			for _, d := range []int64{-1, 0, 1} {
				add(a+d, b)
				add(a, b+d)
				add(top/b*b+d, b) // as near to a multiple as doubles are dense
				add((top/b-1)*b+d, b)
			}
		}
	}
	random := rand.New(rand.NewPCG(3, 4))
	for range 20_000 {
		b := random.Int64N(top>>random.IntN(53)) + 1
		add(top/b*b-random.Int64N(2), b)
		add(random.Int64N(top), b)
	}
	source := stores.Lua() + script
	for some := range slices.Chunk(pairs, 1000) {
		args := make([]any, 0, 2*len(some))
		for _, p := range some {
			args = append(args, p[0], p[1])
		}
		answers, err := client.Eval(context.Background(), source, nil, args...).StringSlice()
		require.NoError(t, err)
		for i, p := range some {
			up := fmt.Sprint((p[0] + p[1] - 1) / p[1])
			got, gotUp, _ := strings.Cut(answers[i], " ")
			if got != fmt.Sprint(p[0]/p[1]) || gotUp != up {
				t.Fatalf("div and divUp of %d and %d are %s and %s in Lua, want %d and %s as in Go", p[0], p[1], got, gotUp, p[0]/p[1], up)
			}
		}
	}
}
