package offenders_test

import (
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/weirgo/weir/internal/phase"
	"github.com/weirgo/weir/keyfunc"
	"github.com/weirgo/weir/limiter"
	"github.com/weirgo/weir/middleware"
	"github.com/weirgo/weir/observe/offenders"
)

func TestNewSaysEverythingThatIsWrong(t *testing.T) {
	for _, o := range []offenders.Options{
		{K: -1, Window: -time.Hour, MaxRules: -1, Secret: []byte("short")}, {K: 10_001, Window: time.Millisecond, MaxRules: 10_001, Secret: []byte("short")},
	} {
		_, err := offenders.New(o)
		assert.ErrorContains(t, err, fmt.Sprintf("offenders: K is %d: it must be from 1 to 10000, or 0 for 100", o.K))
		assert.ErrorContains(t, err, fmt.Sprintf("offenders: Window is %v: it must be from 1s to 8784h0m0s, or 0 for 1h0m0s", o.Window))
		assert.ErrorContains(t, err, fmt.Sprintf("offenders: MaxRules is %d: it must be from 1 to 10000, or 0 for 100", o.MaxRules))
		assert.ErrorContains(t, err, "offenders: Secret has 5 bytes")
	}
	_, err := offenders.New(offenders.Options{Window: 367 * 24 * time.Hour})
	assert.ErrorContains(t, err, "Window is 8808h0m0s")
	_, err = offenders.New(offenders.Options{K: 10_000, Window: time.Second, MaxRules: 10_000})
	assert.NoError(t, err)
}

// tell tells the sketch of so many requests of a key.
func tell(t testing.TB, s *offenders.Sketch, rule, key string, refused bool, n int) {
	t.Helper()
	o := seen(t, rule, refused)
	o.Rules[0].Key = key
	for range n {
		s.Observe(o)
	}
}

func exactly(n uint64) offenders.Count { return offenders.Count{N: n} }

func TestACallerMayChooseTheKey(t *testing.T) {
	s := sketch(t, offenders.Options{ShowKeys: true})
	s.Count("login", "a", true)
	s.Count("login", "a", false)
	assert.Equal(t, []offenders.Offender{{Digest: s.Digest("a"), Key: "a", Whole: true, Refused: exactly(1), All: exactly(2)}}, s.Top("login", 2))
}

func TestWhoIsRefusedMostIsOnTopAndWhoAsksMostIsBusiest(t *testing.T) {
	s := sketch(t, offenders.Options{ShowKeys: true})
	tell(t, s, "ip", "a", false, 30)
	tell(t, s, "ip", "b", true, 20)
	tell(t, s, "ip", "c", true, 3)
	tell(t, s, "user", "a", true, 1)

	assert.Equal(t, []offenders.Offender{
		{Digest: s.Digest("b"), Key: "b", Whole: true, Refused: exactly(20), All: exactly(20)},
		{Digest: s.Digest("c"), Key: "c", Whole: true, Refused: exactly(3), All: exactly(3)},
	}, s.Top("ip", 10), "who was not refused is no offender")
	assert.Equal(t, []offenders.Offender{
		{Digest: s.Digest("a"), Key: "a", Whole: true, All: exactly(30)},
		{Digest: s.Digest("b"), Key: "b", Whole: true, Refused: exactly(20), All: exactly(20)},
	}, s.Busiest("ip", 2))
	assert.Equal(t, []offenders.Rule{{"ip", 23, 53}, {"user", 1, 1}}, s.Rules())

	assert.Empty(t, s.Top("none", 10))
	assert.Empty(t, s.Top("ip", 0))
	assert.Empty(t, s.Busiest("ip", -1))
}

func TestWhatIsLongAgoIsForgotten(t *testing.T) {
	phase.Test(t, func(t *testing.T) {
		s := sketch(t, offenders.Options{ShowKeys: true})
		count := func(key string) (n uint64) {
			for _, o := range s.Top("ip", 10) {
				if o.Key == key {
					n = o.Refused.N
				}
			}
			return n
		}
		time.Sleep(5 * time.Minute)
		tell(t, s, "ip", "early", true, 7)
		time.Sleep(30 * time.Minute)
		tell(t, s, "ip", "late", true, 2)
		time.Sleep(30 * time.Minute)
		assert.Equal(t, uint64(7), count("early"), "an hour ago")
		assert.Equal(t, uint64(2), count("late"))
		time.Sleep(10 * time.Minute)
		assert.Equal(t, uint64(0), count("early"), "70 minutes ago")
		assert.Equal(t, uint64(2), count("late"))
		time.Sleep(time.Hour)
		assert.Empty(t, s.Top("ip", 10))
		assert.Empty(t, s.Rules())

		time.Sleep(24 * time.Hour)
		tell(t, s, "ip", "late", true, 1)
		assert.Equal(t, uint64(1), count("late"))
		for range 600 { // each minute, for ten hours
			time.Sleep(time.Minute)
			tell(t, s, "ip", "late", true, 1)
			n := count("late")
			assert.LessOrEqual(t, n, uint64(71))
		}
		assert.GreaterOrEqual(t, count("late"), uint64(60))
	})
}

func TestKeysAreDigestsUnlessShown(t *testing.T) {
	s := sketch(t, offenders.Options{})
	tell(t, s, "ip", "192.0.2.1", true, 2)
	tell(t, s, "user", "192.0.2.1", true, 1)
	tell(t, s, "ip", "", true, 1)
	top := s.Top("ip", 10)
	require.Len(t, top, 2)
	assert.Equal(t, s.Digest("192.0.2.1"), top[0].Key)
	assert.False(t, top[0].Whole)
	assert.NotContains(t, top[0].Key, "192")
	assert.Equal(t, top[0].Key, s.Top("user", 1)[0].Key, "a key is the same under all rules")
	assert.Equal(t, "", top[1].Key, "what all without a key share is nobody's secret")
	assert.True(t, top[1].Whole)
	for _, o := range top {
		assert.Len(t, o.Digest, keyfunc.DigestSize)
	}
	assert.Equal(t, s.Digest("192.0.2.1"), sketch(t, offenders.Options{}).Digest("192.0.2.1"))
	assert.NotEqual(t, s.Digest("192.0.2.1"), sketch(t, offenders.Options{Secret: []byte("0123456789abcdef")}).Digest("192.0.2.1"))
}

func TestAKeyIsFoundByItsDigestWhileItIsCounted(t *testing.T) {
	phase.Test(t, func(t *testing.T) {
		s := sketch(t, offenders.Options{Secret: []byte("0123456789abcdef"), Window: time.Minute})
		long := strings.Repeat("x", 64)
		tell(t, s, "ip", "192.0.2.1", false, 1)
		tell(t, s, "user", long, true, 1)
		key, ok := s.KeyOf(s.Digest("192.0.2.1"))
		assert.True(t, ok)
		assert.Equal(t, "192.0.2.1", key)
		for _, digest := range []string{s.Digest(long), s.Digest("192.0.2.2"), "", "192.0.2.1"} {
			_, ok := s.KeyOf(digest)
			assert.False(t, ok, digest)
		}
		assert.Equal(t, s.Digest(long), s.Top("user", 1)[0].Digest, "of all of the key, which is not kept")
		time.Sleep(2 * time.Minute)
		_, ok = s.KeyOf(s.Digest("192.0.2.1"))
		assert.False(t, ok)
	})
}

func TestLongKeysAreShownByTheirDigestsAndToldApart(t *testing.T) {
	s := sketch(t, offenders.Options{ShowKeys: true})
	fits, long, hostile := strings.Repeat("x", 63), strings.Repeat("y", 64), "</script>\x00\xff\n"
	for _, key := range []string{fits, long + "1", long + "2", hostile} {
		tell(t, s, "user", key, true, 1)
	}
	shown := map[string]bool{}
	for _, o := range s.Top("user", 10) {
		shown[o.Key] = o.Whole
	}
	assert.Equal(t, map[string]bool{fits: true, hostile: true, s.Digest(long + "1"): false, s.Digest(long + "2"): false}, shown)
}

func TestRulesAreBoundedAndOnesNobodyMeetsGiveWay(t *testing.T) {
	phase.Test(t, func(t *testing.T) {
		s := sketch(t, offenders.Options{MaxRules: 2, Window: time.Minute})
		tell(t, s, "a", "k", true, 1)
		tell(t, s, "b", "k", true, 1)
		tell(t, s, "c", "k", true, 3)
		assert.Len(t, s.Rules(), 2)
		assert.Equal(t, uint64(3), s.Unfollowed())

		time.Sleep(40 * time.Second)
		tell(t, s, "a", "k", true, 1)
		time.Sleep(40 * time.Second)
		tell(t, s, "c", "k", true, 1)
		tell(t, s, "d", "k", true, 1)
		assert.Equal(t, []offenders.Rule{{"a", 1, 1}, {"c", 1, 1}}, s.Rules())
		assert.Empty(t, s.Top("b", 1))
		assert.Equal(t, uint64(4), s.Unfollowed())
	})
}

func TestManyAtOnceAreCountedExactly(t *testing.T) {
	s := sketch(t, offenders.Options{K: 20, ShowKeys: true})
	const workers, each = 8, 2000
	var all sync.WaitGroup
	for worker := range workers {
		all.Go(func() {
			o := seen(t, "ip", true)
			for i := range each {
				o.Rules[0].Key = "hot"
				s.Observe(o)
				o.Rules[0].Key = fmt.Sprint(worker, "-", i)
				s.Observe(o)
				if i%500 == 0 {
					s.Top("ip", 5)
					s.Rules()
				}
			}
		})
	}
	all.Wait()
	const total = 2 * workers * each
	assert.Equal(t, []offenders.Rule{{"ip", total, total}}, s.Rules())
	hot := s.Top("ip", 1)[0]
	assert.Equal(t, "hot", hot.Key)
	assert.GreaterOrEqual(t, hot.Refused.N, uint64(workers*each))
	assert.LessOrEqual(t, hot.Refused.AtLeast(), uint64(workers*each))
	assert.LessOrEqual(t, hot.Refused.Error, uint64(total/20))
}

func TestNothingThatWasUndecidedIsCalledARefusal(t *testing.T) {
	s := sketch(t, offenders.Options{})
	o := seen(t, "ip", true)
	o.Outcome, o.Err = middleware.OutcomeUndecided, errors.New("no answer")
	s.Observe(o)
	assert.Equal(t, []offenders.Rule{{"ip", 0, 1}}, s.Rules())
	assert.Empty(t, s.Top("ip", 1))
}

func TestInAMiddlewareEachRuleCountsWhatItRefused(t *testing.T) {
	phase.Test(t, func(t *testing.T) {
		s := sketch(t, offenders.Options{ShowKeys: true})
		h := middleware.Must(middleware.New(middleware.Config{
			Observer: s,
			Allow:    middleware.MatchFunc(func(r *http.Request) bool { return r.URL.Path == "/healthz" }),
			Rules: []middleware.Rule{
				{Name: "global", Key: keyfunc.Global, Limit: limiter.PerHour(100)},
				{Name: "ip", Key: keyfunc.IP(), Limit: limiter.PerHour(3)},
				{Name: "tenant", Key: keyfunc.Header("X-Tenant"), NoKey: middleware.NoKeySkip, Limit: limiter.PerHour(2), Mode: middleware.Shadow},
			},
		})).Handler(noop)
		ask := func(path, from, tenant string) {
			r := httptest.NewRequest(http.MethodGet, path, nil)
			r.RemoteAddr = from + ":1"
			if tenant != "" {
				r.Header.Set("X-Tenant", tenant)
			}
			h.ServeHTTP(httptest.NewRecorder(), r)
		}
		for range 5 {
			ask("/", "192.0.2.1", "")
			ask("/healthz", "192.0.2.2", "")
		}
		for i := range 4 {
			ask("/", fmt.Sprint("192.0.3.", i), "acme")
		}
		assert.Equal(t, []offenders.Rule{{"global", 0, 9}, {"ip", 2, 9}, {"tenant", 2, 4}}, s.Rules())
		assert.Equal(t, []offenders.Offender{{Digest: s.Digest("192.0.2.1"), Key: "192.0.2.1", Whole: true, Refused: exactly(2), All: exactly(5)}}, s.Top("ip", 10))
		assert.Equal(t, "header:X-Tenant:acme", s.Top("tenant", 1)[0].Key, "in shadow, it would have been refused")
		assert.Equal(t, []offenders.Offender{{Digest: s.Digest(""), Whole: true, All: exactly(9)}}, s.Busiest("global", 10))
	})
}

func TestToObserveAllocatesNothing(t *testing.T) {
	for _, show := range []bool{false, true} {
		s := sketch(t, offenders.Options{ShowKeys: show})
		refused, passed := seen(t, "ip", true), seen(t, "user", false)
		keys := make([]string, 4000)
		for i := range keys {
			keys[i] = fmt.Sprint("key ", i)
		}
		i := 0
		assert.Zero(t, testing.AllocsPerRun(20_000, func() {
			i++
			refused.Rules[0].Key, passed.Rules[0].Key = keys[i%len(keys)], keys[i%len(keys)]
			s.Observe(refused)
			s.Observe(passed)
		}))
	}
}

func TestAKeyIsFoundWithWhenItWasLastSeen(t *testing.T) {
	phase.Test(t, func(t *testing.T) {
		s := sketch(t, offenders.Options{Latest: true})
		start, long := time.Now(), strings.Repeat("x", 200)
		see := func(rule, key string, refused bool) {
			o := seen(t, rule, refused)
			o.Rules[0].Key, o.Rules[0].Class = key, keyfunc.InDoubt
			o.Outcome = middleware.OutcomeAllowed
			if refused {
				o.Outcome = middleware.OutcomeRefused
			}
			s.Observe(o)
		}
		see("ip", "a", true)
		see("tenant", long, true)
		time.Sleep(20 * time.Minute)
		see("ip", "a", false)
		time.Sleep(20 * time.Minute)

		later := start.Add(20 * time.Minute)
		assert.Equal(t, []offenders.Sighting{{Rule: "ip", Class: keyfunc.InDoubt, Passed: later, Refused: start}}, s.Find("a"))
		assert.Equal(t, []offenders.Sighting{{Rule: "tenant", Class: keyfunc.InDoubt, Refused: start}}, s.Find(long))
		assert.Equal(t, s.Find(long), s.Find(keyfunc.NewDigester(nil).Digest(long).Key()))
		assert.Empty(t, s.Find("b"))
		assert.Empty(t, s.Find(keyfunc.NewDigester(nil).Digest("b").Key()))
		time.Sleep(2 * time.Hour)
		assert.Empty(t, s.Find("a"), "it has left the window")
		assert.Empty(t, sketch(t, offenders.Options{}).Find("a"))
	})
}
