package grpclimit_test

import (
	"context"
	"errors"
	"log/slog"
	"net/http"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/emptypb"

	"github.com/weirgo/weir/adapters/grpclimit"
	"github.com/weirgo/weir/keyfunc"
	"github.com/weirgo/weir/limiter"
	"github.com/weirgo/weir/middleware"
)

// one is a rule that admits one call in 30 seconds.
func one(change func(*middleware.Rule)) middleware.Config {
	rule := middleware.Rule{Name: "cart", Key: keyfunc.Global, Limit: limiter.Limit{Events: 1, Per: 30 * time.Second, Algorithm: limiter.TokenBucket}}
	if change != nil {
		change(&rule)
	}
	return middleware.Config{Rules: []middleware.Rule{rule}}
}

func TestARefusalSaysWhenToRetry(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		conn, _ := (&cart{}).serve(t, "{}", limited(t, one(nil)))
		trailer, err := call(t.Context(), conn, add)
		require.NoError(t, err)
		require.Equal(t, []string{"0"}, trailer["x-ratelimit-remaining"])
		require.Empty(t, trailer["grpc-retry-pushback-ms"])
		time.Sleep(10 * time.Second)
		for name, ask := range map[string]func() (metadata.MD, error){
			"unary":  func() (metadata.MD, error) { return call(t.Context(), conn, add) },
			"stream": func() (metadata.MD, error) { return receive(t.Context(), conn) },
		} {
			trailer, err := ask()
			refusal := status.Convert(err)
			assert.Equal(t, codes.ResourceExhausted, refusal.Code(), name)
			assert.Equal(t, "Too many requests. Try again in 20 seconds.", refusal.Message(), name)
			require.Len(t, refusal.Details(), 1, name)
			assert.Equal(t, 20*time.Second, refusal.Details()[0].(*errdetails.RetryInfo).RetryDelay.AsDuration(), name)
			assert.Equal(t, []string{"20000"}, trailer["grpc-retry-pushback-ms"], name)
			assert.Equal(t, []string{"20"}, trailer["retry-after"], name)
			assert.Equal(t, []string{"0"}, trailer["x-ratelimit-remaining"], name)
			assert.Empty(t, trailer["cache-control"], name)
		}
	})
}

const retries = `{"methodConfig": [{"name": [{}], "retryPolicy": {"maxAttempts": 5, "initialBackoff": "0.1s", "maxBackoff": "1s",
	"backoffMultiplier": 2, "retryableStatusCodes": ["RESOURCE_EXHAUSTED", "UNAVAILABLE"]}}]}`

func TestAClientsRetriesAreAsWithoutWeir(t *testing.T) {
	for name, limits := range map[string][]*middleware.RateLimit{
		"without": nil,
		"with":    {limited(t, middleware.Config{Rules: []middleware.Rule{{Name: "cart", Key: keyfunc.Global, Limit: limiter.PerHour(100)}}})},
	} {
		synctest.Test(t, func(t *testing.T) {
			var calls int
			fails := func() error {
				if calls++; calls%3 != 0 {
					return status.Error(codes.Unavailable, "try again")
				}
				return nil
			}
			conn, _ := (&cart{
				unary:  func(context.Context) error { return fails() },
				stream: func(grpc.ServerStream) error { return fails() },
			}).serve(t, retries, limits...)
			_, err := call(t.Context(), conn, add)
			require.NoError(t, err, name)
			require.Equal(t, 3, calls, name)
			_, err = receive(t.Context(), conn)
			require.NoError(t, err, name)
			require.Equal(t, 6, calls, name)
		})
	}
}

func TestAClientRetriesWhenItIsTold(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		conn, _ := (&cart{}).serve(t, retries, limited(t, one(nil)))
		began := time.Now()
		for range 2 {
			_, err := call(t.Context(), conn, add)
			require.NoError(t, err)
		}
		require.Equal(t, 30*time.Second, time.Since(began), "one retry, when it passes")
		conn, _ = (&cart{}).serve(t, retries, limited(t, one(func(r *middleware.Rule) { r.Refusal.StopAbove = time.Second })))
		_, err := call(t.Context(), conn, add)
		require.NoError(t, err)
		began = time.Now()
		trailer, err := call(t.Context(), conn, add)
		require.Equal(t, codes.ResourceExhausted, status.Code(err))
		require.Equal(t, []string{"-1"}, trailer["grpc-retry-pushback-ms"])
		require.Zero(t, time.Since(began), "StopAbove: no retry")
	})
}

func TestTheCodeOfARefusalIsForItsReason(t *testing.T) {
	deny := func(code int) middleware.Config {
		return middleware.Config{Rules: []middleware.Rule{{Name: "deny", Mode: middleware.Deny, Refusal: middleware.Refusal{Status: code}}}}
	}
	answer := func(text string) middleware.Config {
		c := deny(429)
		c.Refusal.Answer = func(w http.ResponseWriter, _ *http.Request, _ middleware.Result) {
			w.Header().Set("X-Ours", "1")
			_, _ = w.Write([]byte(text))
		}
		return c
	}
	noKey := func(by middleware.NoKey) middleware.Config {
		return one(func(r *middleware.Rule) { r.Key, r.NoKey = keyfunc.APIKey("X-Key"), by })
	}
	for name, test := range map[string]struct {
		config middleware.Config
		code   codes.Code
		text   string
	}{
		"denied for now":   {deny(429), codes.ResourceExhausted, "This request is not accepted now."},
		"a ban":            {middleware.Config{Bans: middleware.Bans{Deny: middleware.Route("/shop.Cart/*")}}, codes.PermissionDenied, "Requests from this client are not accepted."},
		"denied":           {deny(403), codes.PermissionDenied, "This request is not accepted."},
		"denied as an 503": {deny(503), codes.Unavailable, "The service is temporarily unable to take this request."},
		"no credentials":   {noKey(middleware.NoKeyUnauthorized), codes.Unauthenticated, "The request lacks credentials, such as an API key or a token."},
		"no key":           {noKey(middleware.NoKeyBadRequest), codes.InvalidArgument, "The request lacks a value"},
		"a broken key": {one(func(r *middleware.Rule) {
			r.OnOutage = limiter.FailClosed
			r.Key = func(*http.Request) (string, error) { return "", errors.New("x") }
		}), codes.Unavailable, "temporarily"},
		"our own answer":     {answer(" ours \n"), codes.ResourceExhausted, "ours"},
		"an empty answer":    {answer(""), codes.ResourceExhausted, "Too Many Requests"},
		"bytes as an answer": {answer("a\xffb"), codes.ResourceExhausted, "ab"},
	} {
		t.Run(name, func(t *testing.T) {
			test.config.Logger = slog.New(slog.DiscardHandler)
			conn, _ := (&cart{}).serve(t, "{}", limited(t, test.config))
			for _, ask := range []func() (metadata.MD, error){
				func() (metadata.MD, error) { return call(t.Context(), conn, add) },
				func() (metadata.MD, error) { return receive(t.Context(), conn) },
			} {
				trailer, err := ask()
				require.Equal(t, test.code, status.Code(err), err)
				require.Contains(t, status.Convert(err).Message(), test.text)
				pushback := "-1"
				if name == "a broken key" { // it may be mended
					pushback = "1000"
				}
				require.Equal(t, []string{pushback}, trailer["grpc-retry-pushback-ms"])
			}
		})
	}
}

// remaining returns what a rule has left for a key.
func remaining(t testing.TB, l *middleware.RateLimit, rule string) int64 {
	t.Helper()
	found, err := l.Peek(context.Background(), rule, "")
	require.NoError(t, err)
	return found[0].Remaining
}

func TestACallCountsByItsCode(t *testing.T) {
	var end error
	var panics bool
	ends := func() error {
		if panics {
			panic("on purpose")
		}
		return end
	}
	recovers := func(f func() error) (err error) {
		defer func() {
			if recover() != nil {
				err = status.Error(codes.Internal, "a panic")
			}
		}()
		return f()
	}
	var options []grpc.ServerOption
	options = append(options,
		grpc.ChainUnaryInterceptor(func(ctx context.Context, m any, _ *grpc.UnaryServerInfo, h grpc.UnaryHandler) (answer any, err error) {
			err = recovers(func() (err error) { answer, err = h(ctx, m); return err })
			return answer, err
		}),
		grpc.ChainStreamInterceptor(func(srv any, s grpc.ServerStream, _ *grpc.StreamServerInfo, h grpc.StreamHandler) error {
			return recovers(func() error { return h(srv, s) })
		}))
	type step struct {
		end    error
		panics bool
		status int
	}
	steps := map[string]step{"a panic": {nil, true, 500}, "an error": {errors.New("x"), false, 500},
		"the context's end": {context.Canceled, false, 499}, "its deadline": {context.DeadlineExceeded, false, 504}}
	for code, status200 := range []int{200, 499, 500, 400, 504, 404, 409, 403, 429, 400, 409, 400, 501, 500, 503, 500, 401} {
		steps[codes.Code(code).String()] = step{status.Error(codes.Code(code), "x"), false, status200}
	}
	for name, s := range steps {
		for left, counts := range map[int64]middleware.Counts{
			8: middleware.Statuses(s.status), 10: middleware.Not(middleware.Statuses(s.status)),
		} {
			t.Run(name+", "+counts.String(), func(t *testing.T) {
				l := limited(t, middleware.Config{Rules: []middleware.Rule{{Name: "some", Key: keyfunc.Global, Limit: limiter.PerHour(10).With(limiter.SlidingLog), Counts: counts}}})
				conn, _ := (&cart{
					unary:  func(context.Context) error { return ends() },
					stream: func(grpc.ServerStream) error { return ends() },
				}).serveWith(t, "{}", append(options, grpc.ChainUnaryInterceptor(grpclimit.Unary(l)), grpc.ChainStreamInterceptor(grpclimit.Stream(l)))...)
				end, panics = s.end, s.panics
				trailer, err := call(context.Background(), conn, add)
				assert.Equal(t, s.status == 200, err == nil)
				assert.NotEmpty(t, trailer["x-ratelimit-limit"])
				_, err = receive(context.Background(), conn)
				assert.Equal(t, s.status == 200, err == nil)
				assert.Equal(t, left, remaining(t, l, "some"))
			})
		}
	}
}

func TestAClientsDeadlineDoesNotMakeACallFree(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := limited(t, middleware.Config{Rules: []middleware.Rule{{Name: "some", Key: keyfunc.Global, Limit: limiter.PerHour(10), Counts: middleware.Not(middleware.StatusClass(4, 5))}}})
		conn, _ := (&cart{unary: func(ctx context.Context) error { <-ctx.Done(); return ctx.Err() }}).serve(t, "{}", l)
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		_, err := call(ctx, conn, add)
		require.Equal(t, codes.DeadlineExceeded, status.Code(err))
		synctest.Wait()
		require.EqualValues(t, 9, remaining(t, l, "some"), "the deadline is over")
		ctx, cancel = context.WithCancel(t.Context())
		go func() { time.Sleep(time.Second); cancel() }()
		_, err = call(ctx, conn, add)
		require.Equal(t, codes.Canceled, status.Code(err))
		synctest.Wait()
		require.EqualValues(t, 8, remaining(t, l, "some"), "the client has left")
	})
}

func TestAStreamHoldsItsSlotUntilItEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := limited(t, middleware.Config{Rules: []middleware.Rule{{Name: "slots", Key: keyfunc.Header("User-Agent"), Limit: limiter.AtOnce(1)}}})
		how := make(chan string)
		c := &cart{stream: func(s grpc.ServerStream) error {
			for {
				switch <-how {
				case "panic":
					panic("on purpose")
				case "early":
					return nil
				case "receive":
					if err := s.RecvMsg(&emptypb.Empty{}); err != nil {
						return err
					}
				}
			}
		}}
		recovering := grpc.ChainStreamInterceptor(func(srv any, s grpc.ServerStream, _ *grpc.StreamServerInfo, h grpc.StreamHandler) (err error) {
			defer func() {
				if recover() != nil {
					err = status.Error(codes.Internal, "a panic")
				}
			}()
			return h(srv, s)
		})
		conn, _ := c.serveWith(t, "{}", recovering, grpc.ChainStreamInterceptor(grpclimit.Stream(l)))
		for _, end := range []string{"early", "panic", "receive"} {
			ctx, cancel := context.WithCancel(t.Context())
			ended := make(chan error, 1)
			go func() {
				_, err := receive(ctx, conn)
				ended <- err
			}()
			synctest.Wait()
			require.EqualValues(t, 1, l.InProgress()[0].Requests, end)
			_, err := receive(t.Context(), conn)
			require.Equal(t, codes.ResourceExhausted, status.Code(err), end)
			how <- end
			if end == "receive" {
				synctest.Wait()
				require.EqualValues(t, 1, l.InProgress()[0].Requests, "the handler waits for the client")
				cancel()
			}
			<-ended
			synctest.Wait()
			require.Zero(t, l.InProgress()[0].Requests, end)
			cancel()
		}
	})
}

func TestACallInAQueueEndsWithItsContextOrServer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := limited(t, middleware.Config{Rules: []middleware.Rule{{Name: "slots", Key: keyfunc.Global, Limit: limiter.AtOnce(1).Queue(10, time.Hour)}}})
		leave := make(chan bool)
		conn, server := (&cart{unary: func(context.Context) error { <-leave; return nil }}).serve(t, "{}", l)
		ended := make(chan error, 10)
		ask := func(ctx context.Context) {
			go func() {
				_, err := call(ctx, conn, add)
				ended <- err
			}()
			synctest.Wait()
		}
		state := func(requests, waiting int64) {
			t.Helper()
			synctest.Wait()
			in := l.InProgress()[0]
			require.Equal(t, [2]int64{requests, waiting}, [2]int64{in.Requests, in.Waiting})
		}
		ask(t.Context())
		late, cancelLate := context.WithTimeout(t.Context(), time.Second)
		defer cancelLate()
		ask(late)
		gone, cancel := context.WithCancel(t.Context())
		ask(gone)
		ask(t.Context())
		state(1, 3)
		require.Equal(t, codes.DeadlineExceeded, status.Code(<-ended))
		state(1, 2)
		cancel()
		require.Equal(t, codes.Canceled, status.Code(<-ended))
		state(1, 1)
		stopped := make(chan bool)
		go func() { server.GracefulStop(); close(stopped) }()
		state(1, 1)
		for range 2 { // both are answered before the server stops
			leave <- true
			require.NoError(t, <-ended)
		}
		<-stopped
		state(0, 0)
	})
}

func TestWhatACallCostsIsSettled(t *testing.T) {
	reserve := middleware.Reserve(func(*http.Request) int64 { return 30 })
	l := limited(t, middleware.Config{Results: true, Rules: []middleware.Rule{{Name: "tokens", Key: keyfunc.Global, Limit: limiter.PerHour(100), Cost: reserve}}})
	narrow := limited(t, middleware.Config{Rules: []middleware.Rule{{Name: "narrow", Key: keyfunc.Global, Limit: limiter.PerHour(1), Match: middleware.Route("POST " + add)}}})
	conn, _ := (&cart{
		unary: func(ctx context.Context) error {
			result, ok := middleware.FromContext(ctx)
			if !ok || result.Rule != "tokens" {
				return status.Error(codes.Internal, "no result")
			}
			return middleware.Settle(ctx, "tokens", 10)
		},
		stream: func(s grpc.ServerStream) error { return middleware.Settle(s.Context(), "tokens", 7) },
	}).serve(t, "{}", l, narrow)
	_, err := call(t.Context(), conn, add)
	require.NoError(t, err)
	require.EqualValues(t, 90, remaining(t, l, "tokens"))
	trailer, err := call(t.Context(), conn, add)
	require.Equal(t, codes.ResourceExhausted, status.Code(err))
	require.EqualValues(t, 90, remaining(t, l, "tokens"), "the interceptor further in refused it, so it cost nothing")
	require.Equal(t, []string{"0"}, trailer["x-ratelimit-remaining"], "the interceptors agree on one set of fields")
	trailer, err = receive(t.Context(), conn)
	require.NoError(t, err)
	require.EqualValues(t, 83, remaining(t, l, "tokens"))
	require.Len(t, trailer["x-ratelimit-remaining"], 1)
}
