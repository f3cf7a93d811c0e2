package demand

import (
	"slices"
	"strings"

	"github.com/weirgo/weir/limiter"
)

// Trials try limits other than a rule's on what its keys ask for: each by the rule's own
// algorithm, and from the beginning of the log. They are for one goroutine.
type Trials struct {
	quotas   []*limiter.Quota
	keys     map[string]*tried
	requests int64
	refused  []int64 // by limit
}

// A tried is one key under each of the limits.
type tried struct {
	states  []limiter.State
	refused []bool // anything
}

// A Tried is what a limit comes to.
type Tried struct {
	Limit    limiter.Limit
	Keys     int64 // that it refused something
	Requests int64 // that it refused
}

// reach is how far other limits are from the rule's: a quarter to four times.
const reach = 4

// NewTrials tries a limit, and round numbers of events around it. Its period, its burst if it has
// one of its own, and its algorithm stay.
func NewTrials(l limiter.Limit) (*Trials, error) {
	events := []int64{l.Events}
	for _, n := range limits {
		if n >= l.Events/reach && n <= l.Events*reach {
			events = append(events, n)
		}
	}
	slices.Sort(events)
	t := &Trials{keys: map[string]*tried{}}
	for _, n := range slices.Compact(events) {
		other := l
		other.Events = n
		quota, err := limiter.NewQuota("trial", "", other)
		if err != nil && n != l.Events {
			continue // such as a log of more events than a log may have
		}
		if err != nil {
			return nil, err
		}
		t.quotas = append(t.quotas, quota)
	}
	t.refused = make([]int64, len(t.quotas))
	return t, nil
}

// Add notes a request of a key that costs so much, at a time that is no earlier than the last. The
// key's text is copied.
func (t *Trials) Add(key string, at, cost int64) {
	k := t.keys[key]
	if k == nil {
		k = &tried{make([]limiter.State, len(t.quotas)), make([]bool, len(t.quotas))}
		t.keys[strings.Clone(key)] = k
	}
	t.requests++
	for i, quota := range t.quotas {
		state, ok := quota.Take(k.states[i], at, cost)
		if ok {
			k.states[i] = state
		} else {
			t.refused[i]++
			k.refused[i] = true
		}
	}
}

// Result is what each limit came to, by its events, of so many keys and requests.
func (t *Trials) Result() (all []Tried, keys, requests int64) {
	for i, quota := range t.quotas {
		one := Tried{Limit: quota.Limit(), Requests: t.refused[i]}
		for _, k := range t.keys {
			if k.refused[i] {
				one.Keys++
			}
		}
		all = append(all, one)
	}
	return all, int64(len(t.keys)), t.requests
}
