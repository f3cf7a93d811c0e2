package failover_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weirgo/weir/internal/leak"
	"github.com/weirgo/weir/limiter"
	"github.com/weirgo/weir/limiter/failover"
)

func TestMain(m *testing.M) {
	slog.SetDefault(slog.New(slog.DiscardHandler))
	leak.VerifyMain(m)
}

var errDown = errors.New("connection refused")

// A server is a store whose counters could be elsewhere. What it does besides counting
// is up to its mood.
type server struct {
	*limiter.Memory
	mood  atomic.Pointer[mood]
	calls atomic.Int64
}

// A mood sees each call, whose kind is decide, settle or reset, and fails it or not.
type mood func(ctx context.Context, kind string, charges []limiter.Charge) error

func fine(context.Context, string, []limiter.Charge) error { return nil }
func dead(context.Context, string, []limiter.Charge) error { return errDown }
func hung(ctx context.Context, _ string, _ []limiter.Charge) error {
	<-ctx.Done()
	return ctx.Err()
}

func newServer(t testing.TB, m mood) *server {
	t.Helper()
	memory, err := limiter.NewMemory(limiter.MemoryOptions{})
	require.NoError(t, err)
	s := &server{Memory: memory}
	s.is(m)
	return s
}

func (s *server) is(m mood) { s.mood.Store(&m) }

func (s *server) called(ctx context.Context, kind string, charges []limiter.Charge) error {
	s.calls.Add(1)
	return (*s.mood.Load())(ctx, kind, charges)
}

func (s *server) Decide(ctx context.Context, charges []limiter.Charge) error {
	if err := s.called(ctx, "decide", charges); err != nil {
		return err
	}
	return s.Memory.Decide(ctx, charges)
}

func (s *server) Settle(ctx context.Context, settlements []limiter.Settlement) error {
	if err := s.called(ctx, "settle", chargesOf(settlements)); err != nil {
		return err
	}
	return s.Memory.Settle(ctx, settlements)
}

func (s *server) Reset(ctx context.Context, charges []limiter.Charge) error {
	if err := s.called(ctx, "reset", charges); err != nil {
		return err
	}
	return s.Memory.Reset(ctx, charges)
}

func chargesOf(settlements []limiter.Settlement) (charges []limiter.Charge) {
	for _, c := range settlements {
		charges = append(charges, c.Charge)
	}
	return charges
}

// used is how many units of a key the server has counted, whatever its mood.
func (s *server) used(t testing.TB, q *limiter.Quota, key string) int64 {
	t.Helper()
	d := decide(t, s.Memory, limiter.Charge{Quota: q, Key: key})[0]
	return d.Limit - d.Remaining
}

// A cluster is a server whose charges are on parts, by the number their key begins with.
type cluster struct{ *server }

func (c cluster) Part(charge *limiter.Charge) int { return int(charge.Key[0] - '0') }
func (c cluster) Diagnose(part int, err error) (string, error) {
	return fmt.Sprint("server ", part), err
}
func (c cluster) TryWrite(ctx context.Context, charges []limiter.Charge) error {
	return c.called(ctx, "try to write", charges)
}

// downFor is the mood of a cluster some of whose parts give no answer.
func downFor(parts ...string) mood {
	return func(_ context.Context, _ string, charges []limiter.Charge) error {
		for _, c := range charges {
			for _, part := range parts {
				if c.Key[:1] == part {
					return errDown
				}
			}
		}
		return nil
	}
}

// punctual is a server that keeps deadlines by itself.
type punctual struct {
	*server
	deadline time.Duration
}

func (p punctual) Within(deadline time.Duration) limiter.Store { return punctual{p.server, deadline} }

// A writable is a cluster of one server.
type writable struct{ cluster }

func (writable) Part(*limiter.Charge) int { return 0 }

// unusable is an error by which the server cannot do what the store needs.
type unusable string

func (u unusable) Error() string { return string(u) }
func (unusable) Unusable() bool  { return true }

// wrap is New for tests.
func wrap(inner limiter.Store, o failover.Options) *failover.Store {
	return failover.Must(failover.New(inner, o))
}

func ignore(failover.Event) {}

func quota(t testing.TB, rule string, l limiter.Limit, o limiter.Outage) *limiter.Quota {
	t.Helper()
	if l.Algorithm == limiter.SlidingWindow && l.Events <= 10_000 {
		l.Algorithm = limiter.SlidingLog // of which no window begins during a test
	}
	q, err := limiter.NewQuota(rule, "", l)
	require.NoError(t, err)
	q.OnOutage = o
	return q
}

func charge(q *limiter.Quota, key string) limiter.Charge {
	return limiter.Charge{Quota: q, Key: key, Cost: 1}
}

// decide is the answers to a batch.
func decide(t testing.TB, s limiter.Store, charges ...limiter.Charge) []limiter.Decision {
	t.Helper()
	charges = slices.Clone(charges) // which keep no decision, and so no Receipt
	require.NoError(t, s.Decide(t.Context(), charges))
	return decisionsOf(charges)
}

func decisionsOf(charges []limiter.Charge) []limiter.Decision {
	decisions := make([]limiter.Decision, len(charges))
	for i, c := range charges {
		decisions[i] = c.Decision
	}
	return decisions
}

// comeBack makes the server well, and has a decision on c find that out.
func (s *server) comeBack(t testing.TB, store *failover.Store, c limiter.Charge) {
	t.Helper()
	s.is(fine)
	time.Sleep(2 * time.Second)
	decide(t, store, c)
	synctest.Wait()
}

// endOutage lets a minute without a failed call pass, and has a decision on c find that out.
func endOutage(t testing.TB, store *failover.Store, c limiter.Charge) {
	t.Helper()
	time.Sleep(time.Minute)
	decide(t, store, c)
	synctest.Wait()
}

// breakDown makes so many decisions on charges that the policies come into force.
func breakDown(t testing.TB, s *failover.Store, charges ...limiter.Charge) {
	t.Helper()
	for range s.Options().Failures {
		_ = s.Decide(t.Context(), charges)
	}
	require.True(t, s.IsDown(charges), "the policies are in force")
}

// counted returns a store's Stats without events and options.
func counted(s *failover.Store) failover.Stats {
	stats := s.Health()
	stats.Events, stats.Replicas = nil, 0
	return stats
}

// at is c as a refund of what d took.
func at(c limiter.Charge, d limiter.Decision) limiter.Charge {
	c.Decision = d
	return c
}

func look(c limiter.Charge) limiter.Charge {
	c.Cost = 0
	return c
}

// A trial is a Store around a server in a bubble, with a charge of a FailLocal rule.
type trial struct {
	*testing.T
	*failover.Store
	inner *server
	diary *diary
	c     limiter.Charge
}

func try(t *testing.T, m mood, o failover.Options, do func(*trial)) {
	t.Helper()
	tryAround(t, m, o, func(inner *server) limiter.Store { return inner }, do)
}

func tryAround(t *testing.T, m mood, o failover.Options, around func(*server) limiter.Store, do func(*trial)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		w := &trial{T: t, inner: newServer(t, m), diary: &diary{}, c: charge(quota(t, "api", limiter.PerHour(100).With(limiter.SlidingLog), limiter.FailLocal), "key")}
		heard := w.diary.options(true)
		o.Logger, o.OnDegraded = heard.Logger, heard.OnDegraded
		w.Store = wrap(around(w.inner), o)
		do(w)
	})
}

func (w *trial) ask() limiter.Decision { w.Helper(); return decide(w, w.Store, w.c)[0] }
func (w *trial) breakDown()            { w.Helper(); breakDown(w, w.Store, w.c) }
func (w *trial) comeBack()             { w.Helper(); w.inner.comeBack(w, w.Store, w.c) }
func (w *trial) endOutage()            { w.Helper(); endOutage(w, w.Store, w.c) }
