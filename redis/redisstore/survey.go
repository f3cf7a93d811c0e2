package redisstore

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/weirgo/weir/keyfunc"
	"github.com/weirgo/weir/redis/internal/counters"
	"github.com/weirgo/weir/redis/internal/wire"
)

// A Survey goes through the keys of a Redis, pass after pass and no faster than it may, and
// keeps in mind which counters have used the largest share of their limit. It is for one
// goroutine, and the client stays the caller's to close.
//
// Redis gives its keys in an order that has nothing to do with them: what was looked at of a
// pass is a random sample of the keys.
type Survey struct {
	client       redis.UniversalClient
	n            int
	prefix, rule string        // the prefix with the version of the format
	every        time.Duration // for a page
	most         int64         // keys to look at in a pass; 0: all

	nodes []*node // of the pass under way; none: it has not begun
	begun time.Time
	last  *Pass

	mu   sync.Mutex // nodes are asked at the same time
	pass Pass
	top  []counted // the first of all that were seen, more than n: of these some will be free again
}

// A node is a server and how far a pass has come there.
type node struct {
	client   redis.UniversalClient
	together bool      // it can be asked about any keys in one command
	knows    bool      // the script, by its hash
	next     time.Time // of a page
	cursor   uint64
	done     bool
}

// A counted is a usage, and where it is.
type counted struct {
	Usage
	name string
}

// A Pass is a walk through all keys.
type Pass struct {
	Looked   int64         // keys that were looked at, of whatever kind
	Keys     int64         // that there were when it began, of whatever kind
	Counters int64         // of those looked at: have used something of their limit
	Full     int64         // of these: have used all of it
	Took     time.Duration // so far
}

// Surveyed is what is known.
type Surveyed struct {
	Top   []Usage // as it is now, the largest share first
	Pass  Pass    // under way
	Last  *Pass   // the last that was complete; nil: there is none yet
	Ended bool    // Pass has ended: the next Look begins another
}

// NewSurvey returns a Survey for the n counters that have used most, up to 10,000.
func NewSurvey(client redis.UniversalClient, n int, o TopOptions) (*Survey, error) {
	var errs []error
	if wire.IsNil(client) {
		errs = append(errs, errors.New("redisstore: Top needs a client"))
	}
	if n < 1 || n > 10_000 {
		errs = append(errs, fmt.Errorf("redisstore: Top of %d: it must be from 1 to 10000", n))
	}
	if o.MaxKeys < 0 {
		errs = append(errs, fmt.Errorf("redisstore: MaxKeys is %d: it must not be negative", o.MaxKeys))
	}
	if o.Rate < 0 || o.Rate > 1_000_000 {
		errs = append(errs, fmt.Errorf("redisstore: Rate is %d: it must be from 1 to 1000000, or 0 for %d", o.Rate, defaultScanRate))
	}
	if err := errors.Join(append(errs, (Options{Prefix: o.Prefix}).Validate())...); err != nil {
		return nil, err
	}
	return &Survey{
		client: client, n: n, prefix: counters.New(o.Prefix, nil, counters.Format).Prefix, rule: o.Rule,
		every: topPage * time.Second / time.Duration(cmp.Or(o.Rate, defaultScanRate)),
	}, nil
}

// Look goes on with a pass for as long as that, or until it ends, looks again at what it knows,
// and tells what it has found.
// After an error the next Look begins a new pass; what was found stays known.
func (s *Survey) Look(ctx context.Context, d time.Duration) (Surveyed, error) {
	found, err := s.look(ctx, d)
	if err != nil {
		s.nodes = nil
		err = wire.NewTransport(s.client).Failed("redisstore", err, 0)
	}
	return found, err
}

func (s *Survey) look(ctx context.Context, d time.Duration) (Surveyed, error) {
	ends := time.Now().Add(d)
	if s.nodes == nil {
		if err := s.begin(ctx); err != nil {
			return s.surveyed(), err
		}
	}
	errs := make([]error, len(s.nodes))
	var all sync.WaitGroup
	for i, n := range s.nodes {
		all.Go(func() { errs[i] = s.scan(ctx, n, ends) })
	}
	all.Wait()
	err := errors.Join(errs...)
	if err == nil {
		err = s.refresh(ctx)
	}
	s.pass.Took = time.Since(s.begun)
	found := s.surveyed()
	if err != nil {
		return found, err
	}
	done := !slices.ContainsFunc(s.nodes, func(n *node) bool { return !n.done })
	if found.Ended = done || s.isEnough(); found.Ended {
		if done {
			ended := s.pass
			s.last = &ended
			found.Last = s.last
		}
		s.nodes = nil
	}
	return found, nil
}

func (s *Survey) surveyed() Surveyed {
	found := Surveyed{Top: []Usage{}, Pass: s.pass, Last: s.last}
	for _, c := range s.top[:min(s.n, len(s.top))] {
		found.Top = append(found.Top, c.Usage)
	}
	return found
}

// begin finds the servers, and how many keys they have.
func (s *Survey) begin(ctx context.Context) error {
	var mu sync.Mutex
	var nodes []*node
	var keys int64
	each := func(together bool) func(context.Context, redis.UniversalClient) error {
		return func(ctx context.Context, client redis.UniversalClient) error {
			n, err := client.DBSize(ctx).Result()
			mu.Lock()
			defer mu.Unlock()
			nodes, keys = append(nodes, &node{client: client, together: together}), keys+n
			return err
		}
	}
	var err error
	switch c := s.client.(type) {
	case *redis.ClusterClient:
		err = c.ForEachMaster(ctx, func(ctx context.Context, node *redis.Client) error { return each(false)(ctx, node) })
	case *redis.Ring:
		err = c.ForEachShard(ctx, func(ctx context.Context, node *redis.Client) error { return each(true)(ctx, node) })
	case *redis.Client:
		err = each(true)(ctx, c)
	default:
		err = each(false)(ctx, c)
	}
	if err == nil {
		s.nodes, s.pass, s.begun = nodes, Pass{Keys: keys}, time.Now()
	}
	return err
}

// scan looks at the pages of a node until then.
func (s *Survey) scan(ctx context.Context, n *node, ends time.Time) error {
	pattern := escapeGlob(s.prefix) + ":{*}:*"
	for !n.done && !s.isEnough() {
		pause := n.next
		if ends.Before(pause) {
			pause = ends
		}
		select {
		case <-time.After(time.Until(pause)):
		case <-ctx.Done():
			return context.Cause(ctx)
		}
		if n.next.After(ends) {
			return nil
		}
		n.next = time.Now().Add(s.every) // it does not catch up
		names, cursor, err := n.client.Scan(ctx, n.cursor, pattern, topPage).Result()
		if err != nil {
			return err
		}
		names = slices.DeleteFunc(names, func(name string) bool { _, ok := s.parse(name); return !ok })
		found, err := s.ask(ctx, n, names)
		if err != nil {
			return err
		}
		s.note(found)
		n.cursor, n.done = cursor, cursor == 0
	}
	return nil
}

// isEnough reports whether no more keys may be looked at in this pass.
func (s *Survey) isEnough() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.most > 0 && s.pass.Looked >= s.most
}

// escapeGlob is text as a pattern of Redis that matches it alone.
func escapeGlob(text string) string {
	return strings.NewReplacer(`\`, `\\`, `*`, `\*`, `?`, `\?`, `[`, `\[`, `]`, `\]`, `^`, `\^`).Replace(text)
}

// ask tells what these counters have used, which may be in different slots of a node. One that
// is free, or none, has used nothing.
func (s *Survey) ask(ctx context.Context, n *node, names []string) (found []counted, err error) {
	size := 1
	if n.together {
		size = topPage
	}
	var requests []*wire.Request
	for part := range slices.Chunk(names, size) {
		r := wire.NewRequest(topScript, part, counters.PlacesSuffix)
		r.WithSource = len(requests) == 0 && !n.knows
		requests = append(requests, r)
	}
	if len(requests) == 0 {
		return nil, nil
	}
	wire.NewTransport(n.client).Run(ctx, requests...)
	n.knows = true
	for i, r := range requests {
		part := names[i*size : min((i+1)*size, len(names))]
		numbers, err := r.Numbers()
		if err != nil {
			return nil, err
		}
		if len(numbers) != 3*len(part) {
			return nil, fmt.Errorf("redisstore: the script of top answers %d numbers about %d keys", len(numbers), len(part))
		}
		for j, name := range part {
			u, _ := s.parse(name)
			u.Used, u.Limit, u.ResetAfter = numbers[3*j], numbers[3*j+1], time.Duration(numbers[3*j+2])*time.Microsecond
			if u.Limit <= 0 {
				u.Used = 0
			}
			found = append(found, counted{u, name})
		}
	}
	return found, nil
}

// parse reads the name of a counter.
func (s *Survey) parse(name string) (u Usage, ok bool) {
	rest, ok := strings.CutPrefix(name, s.prefix+":{")
	if !ok {
		return u, false
	}
	digest, names, ok := strings.Cut(rest, "}:")
	if !ok {
		return u, false
	}
	names, inFlight := strings.CutSuffix(names, counters.PlacesSuffix)
	if _, ok := keyfunc.ParseDigest(digest); !ok {
		return u, false
	}
	rule, tier, _ := strings.Cut(names, ":")
	unescape := strings.NewReplacer("%3A", ":", "%25", "%").Replace
	u = Usage{Digest: digest, Rule: unescape(rule), Tier: unescape(tier), InFlight: inFlight}
	return u, s.rule == "" || s.rule == u.Rule
}

// note adds a page to what is known of the pass.
func (s *Survey) note(page []counted) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.pass.Looked += topPage // SCAN's COUNT is of keys that it looks at
	for _, c := range page {
		if c.Used > 0 {
			s.pass.Counters++
		}
		if c.Used > 0 && c.Used >= c.Limit {
			s.pass.Full++
		}
		s.keep(c)
	}
}

// keep puts a counter among the first, if it is one of them.
func (s *Survey) keep(c counted) {
	most := max(2*s.n, 100)
	at, _ := slices.BinarySearchFunc(s.top, c, func(a, b counted) int { return a.compare(&b.Usage) })
	if c.Used > 0 && at == most {
		return
	}
	if i := slices.IndexFunc(s.top, func(known counted) bool { return known.name == c.name }); i >= 0 {
		s.top = slices.Delete(s.top, i, i+1) // SCAN may give a key twice, and does in the next pass
		if i < at {
			at--
		}
	}
	if c.Used > 0 {
		s.top = slices.Insert(s.top, at, c)
		s.top = s.top[:min(len(s.top), most)]
	}
}

// refresh looks at those again that are known.
func (s *Survey) refresh(ctx context.Context) error {
	var names []string
	for _, c := range s.top {
		names = append(names, c.name)
	}
	_, together := s.client.(*redis.Client)
	n := &node{client: s.client, together: together, knows: true} // or it says that it does not
	var found []counted
	for page := range slices.Chunk(names, topPage) {
		select {
		case <-time.After(s.every):
		case <-ctx.Done():
			return context.Cause(ctx)
		}
		some, err := s.ask(ctx, n, page)
		if err != nil {
			return err
		}
		found = append(found, some...)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.top = nil
	for _, c := range found {
		s.keep(c)
	}
	return nil
}
