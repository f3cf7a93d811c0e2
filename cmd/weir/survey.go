package main

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/weirgo/weir/redis/redisstore"
)

// A survey scans the keys of a Redis at a bounded rate, and keeps the counters that have used the largest
// share of their limit.
type survey struct {
	client       redis.UniversalClient
	n            int
	prefix, rule string
	every        time.Duration            // from one page of a server to the next
	progress     func(looked, keys int64) // called every ten seconds

	mu              sync.Mutex
	begun, reported time.Time
	looked, keys    int64                       // keys of any kind: visited so far, and all at the beginning
	top             map[string]redisstore.Usage // by name; more than n, as some become free meanwhile
}

// page is how many keys Redis visits for one SCAN.
const page = 50

// run scans all keys.
func (s *survey) run(ctx context.Context) error {
	s.begun = time.Now()
	s.reported, s.top = s.begun, map[string]redisstore.Usage{}
	nodes, keys, err := s.nodes(ctx)
	if err != nil {
		return err
	}
	s.keys = keys
	errs := make([]error, len(nodes))
	var all sync.WaitGroup
	for i, node := range nodes {
		all.Go(func() { errs[i] = s.scan(ctx, node) })
	}
	all.Wait()
	return errors.Join(errs...)
}

// nodes returns the servers, and the number of their keys.
func (s *survey) nodes(ctx context.Context) (nodes []*redis.Client, keys int64, err error) {
	var mu sync.Mutex
	add := func(ctx context.Context, node *redis.Client) error {
		n, err := node.DBSize(ctx).Result()
		mu.Lock()
		defer mu.Unlock()
		nodes, keys = append(nodes, node), keys+n
		return err
	}
	if cluster, ok := s.client.(*redis.ClusterClient); ok {
		err = cluster.ForEachMaster(ctx, add)
	} else {
		err = add(ctx, s.client.(*redis.Client)) // the type that connect returns
	}
	return nodes, keys, err
}

func (s *survey) scan(ctx context.Context, node *redis.Client) error {
	for cursor := uint64(0); ; {
		next := time.Now().Add(s.every) // a late scan does not catch up
		names, following, err := node.Scan(ctx, cursor, redisstore.CounterNames(s.prefix), page).Result()
		if err != nil {
			return err
		}
		found, err := redisstore.Usages(ctx, node, s.prefix, names)
		if err != nil {
			return err
		}
		s.mu.Lock()
		s.looked += page
		if time.Since(s.reported) >= 10*time.Second {
			s.reported = time.Now()
			s.progress(min(s.looked, s.keys), s.keys)
		}
		s.keep(found)
		s.mu.Unlock()
		if cursor = following; cursor == 0 {
			return nil
		}
		select {
		case <-time.After(time.Until(next)):
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// keep adds usages to top. If top becomes too long, keep drops the smallest shares.
func (s *survey) keep(found []redisstore.Usage) {
	for _, u := range found {
		if s.rule == "" || s.rule == u.Rule {
			s.top[u.Name] = u
		}
	}
	if most := max(2*s.n, 100); len(s.top) > 2*most {
		for _, u := range s.sorted()[most:] {
			delete(s.top, u.Name)
		}
	}
}

// sorted returns top by share of the limit, then by units, the largest first.
func (s *survey) sorted() []redisstore.Usage {
	all := make([]redisstore.Usage, 0, len(s.top))
	for _, u := range s.top {
		all = append(all, u)
	}
	slices.SortFunc(all, func(a, b redisstore.Usage) int {
		return cmp.Or(
			cmp.Compare(shareOfLimit(b), shareOfLimit(a)),
			cmp.Compare(b.Used, a.Used),
			strings.Compare(a.Rule+a.Tier+a.Digest, b.Rule+b.Tier+b.Digest),
		)
	})
	return all
}

func shareOfLimit(u redisstore.Usage) float64 { return float64(u.Used) / float64(u.Limit) }

// found reads the counters in top again, because a survey may take minutes. It returns the first n.
func (s *survey) found(ctx context.Context) ([]redisstore.Usage, error) {
	var names []string
	for _, u := range s.sorted() {
		names = append(names, u.Name)
	}
	clear(s.top)
	for part := range slices.Chunk(names, page) {
		found, err := redisstore.Usages(ctx, s.client, s.prefix, part)
		if err != nil {
			return nil, err
		}
		s.keep(found)
	}
	top := s.sorted()
	return top[:min(s.n, len(top))], nil
}
