package pace_test

import (
	"context"
	"io"
	"net/http"
	"slices"
	"strconv"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/weirgo/weir/limiter"
	"github.com/weirgo/weir/middleware/bans"
	"github.com/weirgo/weir/pace"
)

// Whatever the server does and whenever callers leave: nothing is sent in a cooldown, there are
// never more requests than there are slots, the rate is kept to, and nothing is left behind.
func TestWhateverHappens(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		rate := rapid.Int64Range(1, 50).Draw(rt, "rate")
		burst := rapid.Int64Range(1, 20).Draw(rt, "burst")
		slots := rapid.Int64Range(0, 5).Draw(rt, "slots")
		attempts := rapid.IntRange(1, 4).Draw(rt, "attempts")
		leave := rapid.Bool().Draw(rt, "callers leave")
		slowStore, slowList := rapid.Bool().Draw(rt, "the store is slow"), rapid.Bool().Draw(rt, "the list is slow")
		type script struct {
			after, patience, took time.Duration
			fate                  int
		}
		ms := func(most int) *rapid.Generator[time.Duration] {
			return rapid.Custom(func(t *rapid.T) time.Duration {
				return time.Duration(rapid.IntRange(0, most).Draw(t, "ms")) * time.Millisecond
			})
		}
		var calls []script
		for range rapid.IntRange(1, 60).Draw(rt, "calls") {
			calls = append(calls, script{
				after: ms(4000).Draw(rt, "after"), patience: ms(5000).Draw(rt, "patience"), took: ms(300).Draw(rt, "took"),
				fate: rapid.IntRange(0, 12).Draw(rt, "fate"),
			})
		}
		synctest.Test(t, func(t *testing.T) {
			zero := time.Now()
			s := &thirdParty{}
			rule := pace.Rule{Host: "api.example.org", Limit: limiter.All(limiter.PerSecond(rate).WithBurst(burst), limiter.AtOnce(slots))}
			if slots == 0 {
				rule.Limit = limiter.PerSecond(rate).WithBurst(burst)
			}
			memory := limiter.Must(limiter.NewMemory(limiter.MemoryOptions{}))
			var store limiter.Store = memory
			if slowStore {
				store = lagging{memory}
			}
			var list bans.List = newBans(t)
			if slowList {
				list = uneven{list}
			}
			options := pace.Options{Rules: []pace.Rule{rule}, Store: store, Cooldowns: list, MaxWait: 10 * time.Second, Retry: pace.Retry{Attempts: attempts, Budget: 100}}
			if attempts == 1 {
				options.Retry.Budget = 0
			}
			all := []*pace.Transport{newTransport(t, s, options)}
			if slots == 0 && !slowList { // slots are of a process, and the other one learns later
				all = append(all, newTransport(t, s, options))
			}
			var group sync.WaitGroup
			for i, c := range calls {
				group.Go(func() {
					time.Sleep(c.after)
					ctx := context.WithValue(context.Background(), fateKey{}, [2]int64{int64(c.fate), int64(c.took)})
					if leave {
						limited, cancel := context.WithCancel(ctx)
						defer cancel()
						time.AfterFunc(c.patience, cancel)
						ctx = limited
					}
					_, _ = do(all[i%len(all)], request(t, "GET", api).WithContext(ctx))
				})
			}
			group.Wait()
			if slots > 0 {
				require.LessOrEqual(t, s.most, slots)
			}
			require.Zero(t, s.now)
			for _, transport := range all {
				require.Zero(t, transport.Stats()[0].InFlight)
				require.Zero(t, transport.Stats()[0].Waiting)
			}
			for _, at := range s.sent {
				for _, r := range s.refusals {
					if at.After(r.at) {
						require.False(t, at.Before(r.until.Add(-10*time.Millisecond)), "sent at %v, where at %v there was a cooldown until %v", at.Sub(zero), r.at.Sub(zero), r.until.Sub(zero))
					}
				}
			}
			slices.SortFunc(s.sent, time.Time.Compare)
			interval := time.Second / time.Duration(rate)
			waited := int64(0) // requests that wait for a slot after their turn leave together
			if slots > 0 {
				waited = int64(len(calls))
			}
			for i := range s.sent {
				for j := i + 1; j < len(s.sent); j++ {
					least := time.Duration(int64(j-i)-burst-waited) * interval
					require.GreaterOrEqual(t, s.sent[j].Sub(s.sent[i]), least-time.Microsecond*time.Duration(j))
				}
			}
		})
	})
}

// A lagging store takes its time to decide.
type lagging struct{ *limiter.Memory }

func (s lagging) Decide(ctx context.Context, charges []limiter.Charge) error {
	time.Sleep(50 * time.Millisecond)
	return s.Memory.Decide(ctx, charges)
}

// An uneven list is slower to write a short ban than a long one.
type uneven struct{ bans.List }

func (l uneven) Ban(ctx context.Context, key string, d time.Duration, notes ...bans.Note) error {
	if d < 3*time.Second {
		time.Sleep(50 * time.Millisecond)
	}
	return l.List.Ban(ctx, key, d, notes...)
}

type fateKey struct{}

// A thirdParty does with a request what is in its context.
type thirdParty struct {
	mu        sync.Mutex
	now, most int64
	sent      []time.Time
	refusals  []struct{ at, until time.Time }
}

func (s *thirdParty) RoundTrip(r *http.Request) (*http.Response, error) {
	script := r.Context().Value(fateKey{}).([2]int64)
	fate := int(script[0])
	s.mu.Lock()
	s.sent = append(s.sent, time.Now())
	s.now++
	s.most = max(s.most, s.now)
	s.mu.Unlock()
	leave := func() {
		s.mu.Lock()
		s.now--
		s.mu.Unlock()
	}
	select {
	case <-time.After(time.Duration(script[1])):
	case <-r.Context().Done():
		leave()
		return nil, r.Context().Err()
	}
	var resp *http.Response
	switch fate {
	case 0:
		leave()
		return nil, io.ErrUnexpectedEOF
	case 1, 2, 3:
		seconds := fate
		s.mu.Lock()
		s.refusals = append(s.refusals, struct{ at, until time.Time }{time.Now(), time.Now().Add(time.Duration(seconds) * time.Second)})
		s.mu.Unlock()
		resp = respond(429, "Retry-After", strconv.Itoa(seconds))
	case 4:
		resp = respond(503)
	default:
		resp = respond(200)
	}
	resp.Body = &leaving{resp.Body, leave, sync.Once{}}
	return resp, nil
}

// A leaving body is under way until it is closed or has ended.
type leaving struct {
	io.ReadCloser
	leave func()
	once  sync.Once
}

func (b *leaving) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	if err != nil {
		b.once.Do(b.leave)
	}
	return n, err
}

func (b *leaving) Close() error {
	b.once.Do(b.leave)
	return b.ReadCloser.Close()
}
