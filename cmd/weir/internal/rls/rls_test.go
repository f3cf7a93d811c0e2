package rls

import (
	"context"
	"errors"
	"log/slog"
	"math"
	"net/http"
	"net/http/httptest"
	"slices"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	common "github.com/envoyproxy/go-control-plane/envoy/extensions/common/ratelimit/v3"
	pb "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	typev3 "github.com/envoyproxy/go-control-plane/envoy/type/v3"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/wrapperspb"
	"pgregory.net/rapid"

	"github.com/weirgo/weir/internal/envoy"
	"github.com/weirgo/weir/internal/phase"
	"github.com/weirgo/weir/keyfunc"
	"github.com/weirgo/weir/limiter"
	"github.com/weirgo/weir/limiter/failover"
	"github.com/weirgo/weir/middleware"
	"github.com/weirgo/weir/middleware/rules"
)

const shop = `
version: 1
descriptors:
  - {domain: shop, entries: {key: user}, name: users, limit: 3/1m token_bucket}
  - {domain: shop, entries: [{key: kind, value: checkout}, {key: user}], name: checkouts, limits: [2/10m token_bucket, 1000/1d token_bucket]}
  - {domain: shop, entries: [{key: kind}, {key: user}], name: kinds, limit: 100/1h}
  - {domain: shop, entries: {key: tokens}, name: tokens, limit: 10/1h token_bucket, when: after}
  - {domain: shop, entries: {key: new}, name: new, limit: 1/1h token_bucket, mode: shadow}
  - {domain: shop, entries: {key: closed}, name: closed, limit: 1/1h, on_outage: closed}
  - {domain: shop, entries: {key: plan}, name: plans, limit: 2/1h token_bucket, limit_from_request: true}
`

func read(t testing.TB, text string) *rules.Rules {
	t.Helper()
	r, err := rules.Parse([]byte(text), rules.Options{})
	require.NoError(t, err)
	return r
}

func decider(t testing.TB, store limiter.Store) *Decider {
	t.Helper()
	if store == nil {
		store = limiter.Must(limiter.NewMemory(limiter.MemoryOptions{}))
	}
	made, err := newTable(read(t, shop), store)
	require.NoError(t, err)
	return &Decider{store: store, table: func() *table { return made }}
}

// of is a descriptor of these keys and values.
func of(pairs ...string) *common.RateLimitDescriptor {
	d := &common.RateLimitDescriptor{}
	for i := 0; i < len(pairs); i += 2 {
		d.Entries = append(d.Entries, &common.RateLimitDescriptor_Entry{Key: pairs[i], Value: pairs[i+1]})
	}
	return d
}

func hits(d *common.RateLimitDescriptor, n uint64) *common.RateLimitDescriptor {
	d.HitsAddend = wrapperspb.UInt64(n)
	return d
}

func refund(d *common.RateLimitDescriptor, n uint64) *common.RateLimitDescriptor {
	d.IsNegativeHits = true
	return hits(d, n)
}

// ask returns O for each status that is OK and X for each that is over its limit.
func ask(t testing.TB, d *Decider, all ...*common.RateLimitDescriptor) (string, *pb.RateLimitResponse) {
	t.Helper()
	r, err := d.ShouldRateLimit(t.Context(), &pb.RateLimitRequest{Domain: "shop", Descriptors: all})
	require.NoError(t, err)
	require.Len(t, r.Statuses, len(all))
	var said strings.Builder
	for _, s := range r.Statuses {
		said.WriteByte("?OX"[s.Code])
	}
	assert.Equal(t, strings.Contains(said.String(), "X"), r.OverallCode == pb.RateLimitResponse_OVER_LIMIT)
	return said.String(), r
}

func says(t testing.TB, d *Decider, want string, all ...*common.RateLimitDescriptor) {
	t.Helper()
	said, _ := ask(t, d, all...)
	assert.Equal(t, want, said)
}

func header(r *pb.RateLimitResponse, name string) string {
	for _, h := range r.ResponseHeadersToAdd {
		if h.Key == name {
			return h.Value
		}
	}
	return ""
}

func TestARefusalIsToldWithItsFieldsAndBody(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := decider(t, nil)
		_, r := ask(t, d, of("user", "ann"))
		assert.Equal(t, "2", header(r, "X-RateLimit-Remaining"))
		assert.Empty(t, r.RawBody)
		s := r.Statuses[0]
		assert.Equal(t, "users", s.CurrentLimit.Name)
		assert.Equal(t, uint32(3), s.CurrentLimit.RequestsPerUnit)
		assert.Equal(t, pb.RateLimitResponse_RateLimit_MINUTE, s.CurrentLimit.Unit)
		assert.Equal(t, uint32(2), s.LimitRemaining)
		assert.Equal(t, 20*time.Second, s.DurationUntilReset.AsDuration())
		says(t, d, "O", hits(of("user", "ann"), 2))
		time.Sleep(500 * time.Millisecond)
		_, r = ask(t, d, of("user", "ann"))
		assert.Equal(t, "20", header(r, "Retry-After"), "rounded up")
		assert.Equal(t, "no-store", header(r, "Cache-Control"))
		assert.JSONEq(t, `{"error": "rate_limit_exceeded", "message": "Too many requests. Try again in 20 seconds.", "retry_after": 20}`, string(r.RawBody))
		_, r = ask(t, d, hits(of("user", "ann"), 4))
		assert.Empty(t, header(r, "Retry-After"), "it is never admitted")
		_, r = ask(t, d, of("kind", "checkout", "user", "ann"))
		assert.Equal(t, uint32(10), r.Statuses[0].CurrentLimit.UnitMultiplier.GetValue())
		assert.Equal(t, pb.RateLimitResponse_RateLimit_MINUTE, r.Statuses[0].CurrentLimit.Unit)
	})
}

// Behind Envoy and in Go, a client reads the same fields and the same body.
func TestFieldsAndBodyAreMiddlewares(t *testing.T) {
	phase.Test(t, func(t *testing.T) {
		d := decider(t, nil)
		inGo := middleware.Must(middleware.New(middleware.Config{Rules: []middleware.Rule{
			{Name: "kinds", Key: keyfunc.Global, Limit: limiter.PerHour(100)},
			{Name: "users", Key: keyfunc.Global, Limit: limiter.PerMinute(3).With(limiter.TokenBucket)},
		}}))
		h := inGo.Handler(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
		for range 8 {
			_, r := ask(t, d, of("kind", "other", "user", "ann"), of("user", "ann"))
			w := httptest.NewRecorder()
			h.ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/", nil))
			if !assert.Equal(t, w.Code == http.StatusTooManyRequests, r.OverallCode == pb.RateLimitResponse_OVER_LIMIT) {
				return
			}
			for _, name := range []string{"X-RateLimit-Limit", "X-RateLimit-Remaining", "X-RateLimit-Reset",
				"RateLimit-Policy", "RateLimit", "Retry-After", "Cache-Control"} {
				assert.Equal(t, w.Header().Get(name), header(r, name), name)
			}
			assert.Equal(t, w.Body.String(), string(r.RawBody))
			time.Sleep(7 * time.Second)
		}
	})
}

func TestTheMostExactLimitAppliesAndOpenValuesAreCountedApart(t *testing.T) {
	d := decider(t, nil)
	says(t, d, "OO", of("kind", "checkout", "user", "ann"), of("kind", "checkout", "user", "bob"))
	says(t, d, "O", of("kind", "checkout", "user", "ann"))
	says(t, d, "X", of("kind", "checkout", "user", "ann"))
	says(t, d, "O", of("kind", "search", "user", "ann"))
	// What no limit is for is OK, and has none.
	for _, other := range []*common.RateLimitDescriptor{of("user", "ann", "kind", "checkout"), of("kind", "checkout"), of("other", "ann"), of()} {
		said, r := ask(t, d, other)
		assert.Equal(t, "O", said)
		assert.Nil(t, r.Statuses[0].CurrentLimit)
	}
	r, err := d.ShouldRateLimit(t.Context(), &pb.RateLimitRequest{Domain: "another", Descriptors: []*common.RateLimitDescriptor{of("kind", "checkout", "user", "ann")}})
	require.NoError(t, err)
	assert.Equal(t, pb.RateLimitResponse_OK, r.OverallCode)
}

func TestKeysOfSeveralValuesDoNotCollide(t *testing.T) {
	l := &limit{}
	l.Entries = []envoy.Entry{{Key: "a"}, {Key: "b"}}
	key := func(a, b string) string { return l.key([]envoy.Entry{{Key: "a", Value: a}, {Key: "b", Value: b}}) }
	rapid.Check(t, func(t *rapid.T) {
		some := rapid.StringMatching(`[0-9:,]{0,4}`)
		a, b, c, d := some.Draw(t, "a"), some.Draw(t, "b"), some.Draw(t, "c"), some.Draw(t, "d")
		assert.Equal(t, a == c && b == d, key(a, b) == key(c, d))
	})
}

func TestARefusalChargesNoneOfTheDescriptors(t *testing.T) {
	d := decider(t, nil)
	says(t, d, "O", hits(of("user", "ann"), 3))
	for range 5 {
		said, r := ask(t, d, of("user", "bob"), of("user", "ann"))
		assert.Equal(t, "OX", said)
		assert.Equal(t, uint32(3), r.Statuses[0].LimitRemaining, "bob was not charged")
	}
	says(t, d, "OO", of("user", "bob"), hits(of("user", "bob"), 2)) // one key twice: both count
	says(t, d, "XX", of("user", "bob"), of("user", "bob"))
}

func TestNoHitsOfADescriptorAreALook(t *testing.T) {
	d := decider(t, nil)
	for range 5 {
		says(t, d, "O", hits(of("user", "ann"), 0))
	}
	r, err := d.ShouldRateLimit(t.Context(), &pb.RateLimitRequest{Domain: "shop", HitsAddend: 0, Descriptors: []*common.RateLimitDescriptor{of("user", "ann")}})
	require.NoError(t, err)
	assert.Equal(t, uint32(2), r.Statuses[0].LimitRemaining, "of a request 0 means 1")
	r, err = d.ShouldRateLimit(t.Context(), &pb.RateLimitRequest{Domain: "shop", HitsAddend: 2, Descriptors: []*common.RateLimitDescriptor{of("user", "ann")}})
	require.NoError(t, err)
	assert.Zero(t, r.Statuses[0].LimitRemaining)
	says(t, d, "X", hits(of("user", "ann"), 0))
}

func TestALookThatFindsNothingLeftChargesNoneOfTheOthers(t *testing.T) {
	d := decider(t, nil)
	says(t, d, "O", hits(of("user", "ann"), 3))
	for range 5 {
		said, r := ask(t, d, hits(of("user", "ann"), 0), of("user", "bob"))
		assert.Equal(t, "XO", said)
		assert.Equal(t, uint32(3), r.Statuses[1].LimitRemaining, "bob was not charged")
	}
	said, r := ask(t, d, hits(of("user", "bob"), 3), hits(of("user", "bob"), 0)) // what it finds is there before the charge
	assert.Equal(t, "OO", said)
	assert.Zero(t, r.Statuses[0].LimitRemaining)
	assert.Zero(t, r.Statuses[1].LimitRemaining)
}

func TestNegativeHitsReturnWhatWasTaken(t *testing.T) {
	d := decider(t, nil)
	says(t, d, "O", hits(of("user", "ann"), 3))
	says(t, d, "X", of("user", "ann"))
	says(t, d, "O", refund(of("user", "ann"), 2))
	says(t, d, "O", hits(of("user", "ann"), 2))
	says(t, d, "X", of("user", "ann"))
	says(t, d, "O", refund(of("user", "bob"), 100))
	says(t, d, "X", hits(of("user", "bob"), 4)) // no more than the limit is ever there
}

// Envoy says what a stream has used when it is over: it is owed, whatever is left.
func TestWhatIsChargedAfterwardsIsOwedAndAlwaysOK(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := decider(t, nil)
		says(t, d, "O", hits(of("tokens", "ann"), 0))
		says(t, d, "O", hits(of("tokens", "ann"), 15))
		says(t, d, "X", hits(of("tokens", "ann"), 0))
		says(t, d, "O", hits(of("tokens", "ann"), 1))
		time.Sleep(36 * time.Minute) // of 16, 10 above the limit at most are owed
		says(t, d, "X", hits(of("tokens", "ann"), 0))
		time.Sleep(7 * time.Minute)
		says(t, d, "O", hits(of("tokens", "ann"), 0))
	})
}

// own is a descriptor with a limit of its own.
func own(d *common.RateLimitDescriptor, n uint32, unit typev3.RateLimitUnit, multiplier ...uint32) *common.RateLimitDescriptor {
	d.Limit = &common.RateLimitDescriptor_RateLimitOverride{RequestsPerUnit: n, Unit: unit}
	if len(multiplier) > 0 {
		d.Limit.UnitMultiplier = wrapperspb.UInt32(multiplier[0])
	}
	return d
}

func TestALimitInARequestAppliesWhereTheFileSaysSo(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := decider(t, nil)
		for range 2 {
			says(t, d, "O", of("plan", "ann"))
		}
		says(t, d, "X", of("plan", "ann"))
		for range 5 {
			says(t, d, "O", own(of("plan", "bob"), 5, typev3.RateLimitUnit_HOUR))
		}
		_, r := ask(t, d, own(of("plan", "bob"), 5, typev3.RateLimitUnit_HOUR))
		assert.Equal(t, pb.RateLimitResponse_OVER_LIMIT, r.OverallCode)
		assert.EqualValues(t, 5, r.Statuses[0].CurrentLimit.RequestsPerUnit)

		_, r = ask(t, d, own(of("plan", "cat"), 5, typev3.RateLimitUnit_SECOND, 30))
		assert.EqualValues(t, 30, r.Statuses[0].CurrentLimit.UnitMultiplier.Value)

		for range 3 {
			says(t, d, "O", own(of("user", "ann"), 100, typev3.RateLimitUnit_HOUR))
		}
		says(t, d, "X", own(of("user", "ann"), 100, typev3.RateLimitUnit_HOUR))
	})
}

func TestARequestMayHaveAnyLimitHoweverManyThereWere(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := decider(t, nil)
		limited := func(name string, most uint32) *pb.RateLimitResponse {
			_, r := ask(t, d, own(of("plan", name), most, typev3.RateLimitUnit_HOUR))
			assert.EqualValues(t, most, r.Statuses[0].CurrentLimit.RequestsPerUnit)
			return r
		}
		for n := range uint32(2*mostFromRequest + 5) {
			limited(strconv.Itoa(int(n)), n+3)
		}
		known := 0
		d.table().fromRequest.Each(func(*limit) { known++ })
		assert.LessOrEqual(t, known, mostFromRequest)
		r := limited("0", 3)
		assert.EqualValues(t, 1, r.Statuses[0].LimitRemaining, "what was used under a former limit stays used")
	})
}

func TestALimitInShadowRefusesNothing(t *testing.T) {
	d := decider(t, nil)
	for range 3 {
		says(t, d, "OO", of("new", "ann"), of("kind", "search", "user", "ann"))
	}
	_, r := ask(t, d, of("new", "ann"))
	assert.Empty(t, header(r, "X-RateLimit-Limit"))
	says(t, d, "O", hits(of("user", "ann"), 3))
	says(t, d, "OX", of("new", "bob"), of("user", "ann"))
	all, err := newTable(read(t, "mode: shadow\n"+shop), d.store)
	require.NoError(t, err)
	d.table = func() *table { return all }
	says(t, d, "O", of("user", "ann"))
}

// A counted store counts its batches.
type counted struct {
	limiter.Store
	batches int
}

func (c *counted) Decide(ctx context.Context, charges []limiter.Charge) error {
	c.batches++
	return c.Store.Decide(ctx, charges)
}

func TestALimitInShadowNeedsNoBatchOfItsOwn(t *testing.T) {
	store := &counted{Store: limiter.Must(limiter.NewMemory(limiter.MemoryOptions{}))}
	d := decider(t, store)
	says(t, d, "OO", of("new", "ann"), of("user", "ann"))
	assert.Equal(t, 1, store.batches)
	for left := uint32(2); left > 0; left-- { // the shadow limit has nothing left, the other is charged once
		_, r := ask(t, d, of("new", "ann"), of("user", "ann"))
		assert.Equal(t, left-1, r.Statuses[1].LimitRemaining)
	}
	store.batches = 0
	says(t, d, "OX", of("new", "bob"), of("user", "ann"))
	assert.Equal(t, 1, store.batches)
	_, r := ask(t, d, of("new", "bob"))
	assert.Zero(t, r.Statuses[0].LimitRemaining, "the refused request did not charge the shadow limit")
	assert.Equal(t, pb.RateLimitResponse_OK, r.OverallCode)
}

func TestARequestThatMakesNoSenseIsRefusedAsThat(t *testing.T) {
	d := decider(t, nil)
	for name, r := range map[string]*pb.RateLimitRequest{
		"no domain":      {Descriptors: []*common.RateLimitDescriptor{of("user", "ann")}},
		"no descriptors": {Domain: "shop"},
		"too many hits":  {Domain: "shop", Descriptors: []*common.RateLimitDescriptor{hits(of("user", "ann"), math.MaxUint64)}},
		"a limit of 0":   {Domain: "shop", Descriptors: []*common.RateLimitDescriptor{own(of("plan", "ann"), 0, typev3.RateLimitUnit_HOUR)}},
		"no unit":        {Domain: "shop", Descriptors: []*common.RateLimitDescriptor{own(of("plan", "ann"), 5, typev3.RateLimitUnit_UNKNOWN)}},
		"no period":      {Domain: "shop", Descriptors: []*common.RateLimitDescriptor{own(of("plan", "ann"), 5, typev3.RateLimitUnit_HOUR, 0)}},
		"a long period":  {Domain: "shop", Descriptors: []*common.RateLimitDescriptor{own(of("plan", "ann"), 5, typev3.RateLimitUnit_YEAR, 1<<31)}},
	} {
		_, err := d.ShouldRateLimit(t.Context(), r)
		assert.Equal(t, codes.InvalidArgument, status.Code(err), name)
	}
	says(t, d, "XX", hits(of("user", "ann"), math.MaxInt64), hits(of("user", "ann"), math.MaxInt64)) // their sum is no less
}

func TestARequestWithTooManyCountersIsRefusedAndLogged(t *testing.T) {
	var log strings.Builder
	d := decider(t, nil)
	d.logger = slog.New(slog.NewTextHandler(&log, nil))
	all := []*common.RateLimitDescriptor{of("none", "ann"), of("new", "ann")} // without a limit, and in shadow
	for i := range limiter.MaxCharges {
		all = append(all, of("user", strconv.Itoa(i)))
	}
	for range 2 { // Envoy admits a request after an error
		said, r := ask(t, d, all...)
		assert.Equal(t, "OO"+strings.Repeat("X", limiter.MaxCharges), said)
		assert.Empty(t, header(r, "Retry-After"), "no time helps")
		assert.NotContains(t, string(r.RawBody), "Try again")
	}
	assert.Equal(t, 1, strings.Count(log.String(), "code=weir-too-many-counters"))
	all = all[:limiter.MaxCharges+1]
	says(t, d, strings.Repeat("O", len(all)), all...)
}

// A dead store has no server to ask.
type dead struct{ limiter.Store }

var errDead = errors.New("connection refused")

func (dead) Decide(context.Context, []limiter.Charge) error     { return errDead }
func (dead) Settle(context.Context, []limiter.Settlement) error { return errDead }

func TestAnOutageIsDecidedByPolicyOrUnavailable(t *testing.T) {
	memory := limiter.Must(limiter.NewMemory(limiter.MemoryOptions{}))
	bare := decider(t, dead{memory})
	_, err := bare.ShouldRateLimit(t.Context(), &pb.RateLimitRequest{Domain: "shop", Descriptors: []*common.RateLimitDescriptor{of("user", "ann")}})
	assert.Equal(t, codes.Unavailable, status.Code(err))
	around, err := failover.New(dead{memory}, failover.Options{OnDegraded: func(failover.Event) {}})
	require.NoError(t, err)
	d := decider(t, around)
	says(t, d, "O", hits(of("user", "ann"), 3))
	says(t, d, "X", of("user", "ann")) // counted in the process
	_, err = d.ShouldRateLimit(t.Context(), &pb.RateLimitRequest{Domain: "shop", Descriptors: []*common.RateLimitDescriptor{of("user", "bob"), of("closed", "ann")}})
	assert.Equal(t, codes.Unavailable, status.Code(err))
	says(t, d, "O", hits(of("user", "bob"), 3)) // of which nothing was taken
	all, err := newTable(read(t, "mode: shadow\n"+shop), around)
	require.NoError(t, err)
	d.table = func() *table { return all }
	says(t, d, "O", of("closed", "ann")) // in shadow
}

// If several descriptors match the same entries, the descriptor with the earliest value goes first.
func TestTheExactnessOfDescriptorsIsAnOrder(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		given := []envoy.Entry{{Key: "a", Value: "1"}, {Key: "b", Value: "2"}, {Key: "c", Value: "3"}}
		draw := func(label string) limit {
			d := limit{Descriptor: envoy.Descriptor{Entries: slices.Clone(given)}}
			for i, has := range rapid.SliceOfN(rapid.Bool(), len(given), len(given)).Draw(t, label) {
				if !has {
					d.Entries[i].Value = ""
				}
			}
			return d
		}
		p, q := draw("one"), draw("other")
		assert.True(t, p.matches(given) && q.matches(given))
		assert.Equal(t, p.compareExactness(&q), -q.compareExactness(&p))
		assert.Equal(t, slices.Equal(p.Entries, q.Entries), p.compareExactness(&q) == 0)
		first := slices.IndexFunc(given, func(e envoy.Entry) bool {
			i := slices.Index(given, e)
			return p.Entries[i] != q.Entries[i]
		})
		if first >= 0 {
			assert.Equal(t, p.Entries[first].Value != "", p.compareExactness(&q) < 0)
		}
		assert.False(t, p.matches(given[:2]), "fewer entries")
		assert.False(t, p.matches(append(slices.Clone(given), envoy.Entry{Key: "d"})), "more entries")
	})
}
