package pace_test

import (
	"context"
	"errors"
	"math/rand/v2"
	"net/http"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weirgo/weir/limiter"
	"github.com/weirgo/weir/pace"
)

const api = "https://api.example.org/things"

func rules(l limiter.Limit) []pace.Rule { return []pace.Rule{{Host: "api.example.org", Limit: l}} }

// together has n callers send a GET at once, and returns their errors.
func together(t *testing.T, n int, transport http.RoundTripper, url string) []error {
	t.Helper()
	errs := make([]error, n)
	var group sync.WaitGroup
	for i := range n {
		r := request(t, "GET", url)
		group.Go(func() { _, errs[i] = do(transport, r) })
	}
	group.Wait()
	return errs
}

func TestRequestsLeaveEvenlyAfterABurst(t *testing.T) {
	for _, burst := range []int64{1, 5} {
		synctest.Test(t, func(t *testing.T) {
			s := newServer(nil)
			transport := newTransport(t, s, pace.Options{Rules: rules(limiter.PerSecond(10).WithBurst(burst))})
			require.NoError(t, errors.Join(together(t, 20, transport, api)...))
			for i, at := range s.times() {
				require.Equal(t, time.Duration(max(0, i-max(0, int(burst)-2)))*100*time.Millisecond, at, "one of the burst is kept back")
			}
		})
	}
}

// A server that allows just what the limit says refuses nothing, though some requests take longer
// to arrive than others.
func TestAtTheServersOwnLimitNothingIsRefused(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		limit := limiter.PerSecond(50).WithBurst(10)
		bucket := limiter.Must(limiter.New(limiter.Config{Name: "server", Limit: limit}))
		random := rand.New(rand.NewPCG(1, 2))
		var mu sync.Mutex
		refused := 0
		s := round(func(r *http.Request) (*http.Response, error) {
			mu.Lock()
			transit := time.Duration(random.Int64N(int64(10 * time.Millisecond)))
			mu.Unlock()
			time.Sleep(transit)
			d, err := bucket.Allow(r.Context(), "")
			if err != nil || d.Allowed {
				return respond(200), err
			}
			mu.Lock()
			refused++
			mu.Unlock()
			return respond(429, "Retry-After", "1"), nil
		})
		transport := newTransport(t, s, pace.Options{Rules: rules(limit)})
		require.NoError(t, errors.Join(together(t, 464, transport, api)...))
		require.Zero(t, refused)
		require.LessOrEqual(t, time.Since(bubbleStart), 9200*time.Millisecond, "all of the throughput")
	})
}

// bubbleStart is when time begins in a bubble.
var bubbleStart = time.Date(2000, 1, 1, 0, 0, 0, 0, time.UTC)

func TestProcessesThatShareAStoreArePacedTogether(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newServer(nil)
		store := limiter.Must(limiter.NewMemory(limiter.MemoryOptions{}))
		var group sync.WaitGroup
		for range 3 {
			process := newTransport(t, s, pace.Options{Rules: rules(limiter.PerSecond(10)), Store: store})
			group.Go(func() { require.NoError(t, errors.Join(together(t, 20, process, api)...)) })
		}
		group.Wait()
		sent := s.times()
		slices.Sort(sent)
		for i, at := range sent {
			require.Equal(t, time.Duration(i)*100*time.Millisecond, at)
		}
	})
}

func TestAWaitThatDoesNotFitFailsAtOnceAndTakesNothing(t *testing.T) {
	for name, c := range map[string]struct {
		maxWait time.Duration
		timeout time.Duration
	}{
		"MaxWait":     {maxWait: time.Second},
		"the context": {timeout: 1001 * time.Millisecond},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := newServer(nil)
				transport := newTransport(t, s, pace.Options{Rules: rules(limiter.PerSecond(10)), MaxWait: c.maxWait})
				client := http.Client{Transport: transport, Timeout: c.timeout}
				var group sync.WaitGroup
				var mu sync.Mutex
				var failed []*pace.WaitError
				for range 50 {
					group.Go(func() {
						began := time.Now()
						resp, err := client.Get(api)
						if err == nil {
							require.NoError(t, resp.Body.Close())
							return
						}
						var tooLong *pace.WaitError
						require.ErrorAs(t, err, &tooLong)
						var says interface{ RetryAfter() time.Duration }
						require.ErrorAs(t, err, &says)
						require.Equal(t, tooLong.Wait, says.RetryAfter())
						require.Zero(t, time.Since(began), "at once")
						mu.Lock()
						failed = append(failed, tooLong)
						mu.Unlock()
					})
				}
				group.Wait()
				require.Len(t, failed, 39)
				for _, e := range failed {
					require.GreaterOrEqual(t, e.Wait, 1100*time.Millisecond)
					require.False(t, e.Cooldown)
				}
				require.Len(t, s.times(), 11)
				require.Equal(t, time.Second, slices.Max(s.times()))
				mustGet(t, transport)
				require.Equal(t, 1100*time.Millisecond, slices.Max(s.times()), "those that failed have left nothing behind")
			})
		})
	}
}

func TestARequestThatIsCanceledWhileItWaitsGivesItsTurnBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newServer(nil)
		transport := newTransport(t, s, pace.Options{Rules: rules(limiter.PerMinute(6))})
		mustGet(t, transport)
		ctx, cancel := context.WithCancelCause(context.Background())
		gone := errors.New("the caller is gone")
		time.AfterFunc(3*time.Second, func() { cancel(gone) })
		_, err := do(transport, request(t, "GET", api).WithContext(ctx))
		require.ErrorIs(t, err, gone)
		require.Equal(t, 3*time.Second, time.Since(s.zero))
		mustGet(t, transport)
		require.Equal(t, []time.Duration{0, 10 * time.Second}, s.times())
	})
}

// Callers that leave the queue make no room for a burst: turns behind theirs are given already.
func TestRequestsLeaveEvenlyWhoeverLeavesTheQueue(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newServer(nil)
		transport := newTransport(t, s, pace.Options{Rules: rules(limiter.PerSecond(20)), MaxWait: time.Hour})
		var meant sync.WaitGroup
		for round := range 36 {
			ctx, cancel := context.WithCancel(t.Context())
			var given sync.WaitGroup
			for range 36 - round { // so that the turn of each that is meant would be the same
				r := request(t, "GET", api).WithContext(ctx)
				given.Go(func() { _, _ = do(transport, r) })
			}
			synctest.Wait()
			r := request(t, "GET", api)
			meant.Go(func() { _, _ = do(transport, r) })
			synctest.Wait()
			cancel()
			given.Wait()
		}
		meant.Wait()
		sent := s.times()
		require.GreaterOrEqual(t, len(sent), 36)
		for i := 1; i < len(sent); i++ {
			require.GreaterOrEqual(t, sent[i]-sent[i-1], 50*time.Millisecond-time.Microsecond, "request %d", i)
		}
	})
}

// However many requests cannot wait, and at how many moments, those that can leave as if the others
// had never been.
func TestRequestsThatCannotWaitDoNotLengthenTheQueue(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newServer(nil)
		transport := newTransport(t, s, pace.Options{Rules: rules(limiter.PerSecond(10)), MaxWait: time.Minute})
		for range 50 {
			for range 40 {
				ctx, cancel := context.WithTimeout(t.Context(), time.Second)
				r := request(t, "GET", api).WithContext(ctx)
				go func() {
					defer cancel()
					_, _ = do(transport, r)
				}()
			}
			time.Sleep(100 * time.Millisecond)
		}
		time.Sleep(2 * time.Second)
		sent := s.times()
		require.GreaterOrEqual(t, len(sent), 58, "of 60 that the limit allows in six seconds")
		for i := 1; i < len(sent); i++ {
			require.GreaterOrEqual(t, sent[i]-sent[i-1], 100*time.Millisecond-time.Microsecond, "request %d", i)
		}
	})
}

// A slow store decides at once, and takes its time to say so where something was taken.
type slowStore struct{ limiter.Store }

func (s slowStore) Decide(ctx context.Context, charges []limiter.Charge) error {
	if charges[0].Cost > 0 {
		defer time.Sleep(50 * time.Millisecond)
	}
	return s.Store.Decide(ctx, charges)
}

// Callers that have left make the queue look longer than it is, until the store is asked.
func TestARequestThatJustFitsIsSentWhoeverLeftBefore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newServer(nil)
		store := slowStore{limiter.Must(limiter.NewMemory(limiter.MemoryOptions{}))}
		transport := newTransport(t, s, pace.Options{Rules: rules(limiter.PerSecond(10)), Store: store, MaxWait: time.Second})
		mustGet(t, transport)
		var leave []func()
		var group sync.WaitGroup
		for range 3 {
			ctx, cancel := context.WithCancel(t.Context())
			leave = append(leave, cancel)
			r := request(t, "GET", api).WithContext(ctx)
			group.Go(func() { _, _ = do(transport, r) })
			synctest.Wait()
		}
		time.Sleep(51 * time.Millisecond)
		for _, last := range slices.Backward(leave) {
			last()
			synctest.Wait()
		}
		group.Wait()
		require.NoError(t, errors.Join(together(t, 10, transport, api)...))
	})
}
