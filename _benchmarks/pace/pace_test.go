// Package pace measures clients of a third party that has limits: three processes of a service, as
// far as they share nothing but a redis-server, with 64 callers each. Each caller asks again as soon
// as it has an answer. The third party keeps count of what arrives, whatever the callers say.
package pace

import (
	"context"
	"fmt"
	"io"
	"maps"
	"net/http"
	"os"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/weirgo/weir/internal/redistest"
	"github.com/weirgo/weir/limiter"
)

func TestMain(m *testing.M) {
	redis.SetLogger(redistest.Silent{})
	redistest.Main(m)
}

const (
	processes = 3
	callers   = 64
	limit     = 100   // requests per second
	coolLimit = 1_000 // so that a millisecond is to be seen
)

// A task is what a process is to do.
type task struct {
	URL   string
	Redis string // empty: it shares nothing
	Limit int64  // requests per second of all processes together
	Burst int64  // how many of them may leave at once; 0: they leave evenly
}

func each(b *testing.B, cases map[string]func(b *testing.B, c contestant)) {
	for _, name := range slices.Sorted(maps.Keys(cases)) {
		b.Run(name, func(b *testing.B) {
			for _, c := range contestants {
				b.Run(c.name, func(b *testing.B) {
					if os.Getenv("RACE_LIST") == "" {
						cases[name](b, c)
						b.ReportMetric(0, "ns/op")
					}
				})
			}
		})
	}
}

// slice is how long what arrives is counted, after a second that is not.
func slice() time.Duration {
	if testing.Short() {
		return time.Second
	}
	return 5 * time.Second
}

const warmUp = time.Second

// service has all processes call until the end, and says how many calls were made, and how many
// requests were sent for them.
func service(b *testing.B, c contestant, t task, d time.Duration) (made, sent int64) {
	t.Redis = redistest.Start(b).Addr
	var calls, requests atomic.Int64
	var group sync.WaitGroup
	clients := make([]*http.Client, processes)
	for i := range clients {
		transport := http.DefaultTransport.(*http.Transport).Clone()
		transport.MaxIdleConnsPerHost, transport.MaxIdleConns = callers, callers
		base := roundTripper(func(r *http.Request) (*http.Response, error) {
			requests.Add(1)
			return transport.RoundTrip(r)
		})
		client, done, err := c.client(base, t)
		if err != nil {
			b.Fatal(err)
		}
		defer transport.CloseIdleConnections()
		defer done()
		clients[i] = client
	}
	end := time.Now().Add(d)
	for _, client := range clients {
		for range callers {
			group.Go(func() {
				for time.Now().Before(end) {
					calls.Add(1)
					ask(client, t.URL)
				}
			})
		}
	}
	group.Wait()
	return calls.Load(), requests.Load()
}

func ask(client *http.Client, url string) {
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second) // waits and retries included
	defer cancel()
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		panic(err)
	}
	if response, err := client.Do(r); err == nil {
		_, _ = io.Copy(io.Discard, response.Body)
		_ = response.Body.Close()
	}
}

// BenchmarkShare is how much of a limit gets through, and how many requests are refused.
func BenchmarkShare(b *testing.B) {
	of := func(open func(ctx context.Context, limit int64) (party, error)) func(*testing.B, contestant) {
		return func(b *testing.B, c contestant) {
			for b.Loop() {
				p, err := open(b.Context(), limit)
				if err != nil {
					b.Skip(err)
				}
				began := time.Now()
				service(b, c, task{URL: p.url(), Limit: limit}, warmUp+slice())
				all, err := p.arrivals(began)
				p.close()
				if err != nil {
					b.Fatal(err)
				}
				through, refused := 0, 0
				for _, a := range all {
					since := a.at.Sub(began)
					switch {
					case a.status == http.StatusTooManyRequests:
						refused++
					case since >= warmUp && since < warmUp+slice():
						through++
					}
				}
				b.ReportMetric(100*float64(through)/(limit*slice().Seconds()), "%-got-through")
				b.ReportMetric(100*float64(refused)/float64(max(len(all), 1)), "%-refused")
			}
		}
	}
	each(b, map[string]func(*testing.B, contestant){"nginx": of(nginxParty), "weir": of(weirParty)})
}

// BenchmarkCooldown is what becomes of one refusal that one caller is told of, with a Retry-After.
func BenchmarkCooldown(b *testing.B) {
	each(b, map[string]func(*testing.B, contestant){"one-refusal": func(b *testing.B, c contestant) {
		for b.Loop() {
			p, err := newCoolParty()
			if err != nil {
				b.Fatal(err)
			}
			began := time.Now()
			p.refuseAt(began.Add(warmUp))
			service(b, c, task{URL: p.url(), Limit: coolLimit}, warmUp+cooldown+1500*time.Millisecond)
			refusal, err := p.refusal()
			if err != nil {
				b.Fatal(err)
			}
			all, err := p.arrivals(began)
			p.close()
			if err != nil {
				b.Fatal(err)
			}
			stopped, after := time.Duration(0), 0
			for _, a := range all {
				switch since := a.at.Sub(refusal); {
				case since < 0: // the one that was refused, too
				case since < cooldown:
					stopped = max(stopped, since)
				case since < cooldown+time.Second:
					after++
				}
			}
			b.ReportMetric(stopped.Seconds()*1000, "ms-until-all-stopped")
			b.ReportMetric(100*float64(after)/coolLimit, "%-of-limit-in-the-second-after")
		}
	}})
}

// BenchmarkDead is how many requests a server gets that gives no answer of use.
func BenchmarkDead(b *testing.B) {
	of := func(open func(context.Context, int64) (party, error)) func(*testing.B, contestant) {
		return func(b *testing.B, c contestant) {
			for b.Loop() {
				p, err := open(b.Context(), limit)
				if err != nil {
					b.Fatal(err)
				}
				calls, sent := service(b, c, task{URL: p.url(), Limit: limit}, slice())
				p.close()
				b.ReportMetric(float64(sent)/float64(max(calls, 1)), "requests/call")
			}
		}
	}
	each(b, map[string]func(*testing.B, contestant){"503": of(deadParty), "closed-port": of(closedParty)})
}

// BenchmarkCost is what a request that does not wait takes, where the answer has no fields and where
// it has GitHub's; beside the bare transport, and a decision of the store in memory.
func BenchmarkCost(b *testing.B) {
	t := task{URL: "http://127.0.0.1:1/", Limit: 1_000_000, Burst: 1_000_000}
	for name, fields := range map[string]http.Header{
		"silent": {"Date": {time.Now().UTC().Format(http.TimeFormat)}, "Content-Type": {"application/json"}, "Vary": {"Accept"}},
		"fields": {
			"X-Ratelimit-Limit": {"5000"}, "X-Ratelimit-Remaining": {"4999"}, "X-Ratelimit-Used": {"1"}, "X-Ratelimit-Resource": {"core"},
			"X-Ratelimit-Reset": {fmt.Sprint(time.Now().Add(time.Hour).Unix())}, "Date": {time.Now().UTC().Format(http.TimeFormat)},
		},
	} {
		base := roundTripper(func(r *http.Request) (*http.Response, error) {
			return &http.Response{StatusCode: http.StatusOK, Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1, Header: fields, Body: http.NoBody, Request: r}, nil
		})
		client, done, err := weirClient(base, t)
		if err != nil {
			b.Fatal(err)
		}
		defer done()
		r, err := http.NewRequest(http.MethodGet, t.URL, nil)
		if err != nil {
			b.Fatal(err)
		}
		r.Header.Set("Authorization", "Bearer "+strings.Repeat("x", 40))
		b.Run(name, func(b *testing.B) {
			for contestant, transport := range map[string]http.RoundTripper{"weir": client.Transport, "floor-bare": base} {
				b.Run(contestant, func(b *testing.B) {
					for b.Loop() {
						if _, err := transport.RoundTrip(r); err != nil {
							b.Fatal(err)
						}
					}
				})
			}
			b.Run("floor-decision", func(b *testing.B) {
				l := limiter.Must(limiter.New(limiter.Config{Name: "race", Limit: limiter.PerSecond(1_000_000).WithBurst(1_000_000)}))
				for b.Loop() {
					if _, err := l.Allow(b.Context(), "key"); err != nil {
						b.Fatal(err)
					}
				}
			})
		})
	}
}
