package demand

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"time"
)

// A Result is what the keys of a log need.
type Result struct {
	Per      time.Duration `json:"-"`
	Keys     int64         `json:"keys"`
	Requests int64         `json:"requests"`
	Peaks    Peaks         `json:"peaks"`
	Curve    []Point       `json:"curve"` // by limit, up to one that refuses nothing
	Chosen   Point         `json:"chosen"`
	Tried    *Trial        `json:"tried,omitempty"` // nil: the log is too short for it
	Buckets  []Bucket      `json:"buckets"`         // by rate, up to that of the chosen limit

	// Apart is how many clients the choice leaves out, as they ask for far more than all others, of
	// which Next asks for the most. With is the limit that would have been chosen with them; 0:
	// none of limits.
	Apart int   `json:"set_apart"`
	Next  int64 `json:"next,omitempty"`
	With  int64 `json:"limit_with_them,omitempty"`

	// Refused are the clients that the chosen limit refuses something, by what they ask for.
	Refused []Client `json:"refused"`
}

// A Client is one that a limit refuses something.
type Client struct {
	Client string    `json:"client"`
	Most   int64     `json:"most"` // that it asked for in any period
	At     time.Time `json:"at"`   // when that period ended
	Apart  bool      `json:"set_apart,omitempty"`
}

// Peaks are quantiles over keys: the most that half of them, nine of ten and so on asked for
// in any period, to a thousandth of it.
type Peaks struct {
	P50  int64 `json:"p50"`
	P90  int64 `json:"p90"`
	P99  int64 `json:"p99"`
	P999 int64 `json:"p99_9"`
	Most int64 `json:"most"`
}

// A Point is what a limit comes to.
type Point struct {
	Limit    int64 `json:"limit"`
	Keys     int64 `json:"keys_refused"`     // that would have been refused something
	Requests int64 `json:"requests_refused"` // that would have been refused
}

// A Trial says what the same choice is worth where it was not made: a limit that is chosen
// by the first part of the log, and what it does in the rest.
type Trial struct {
	Limit       int64   `json:"limit"`
	Keys        int64   `json:"keys"` // in the rest
	Refused     int64   `json:"keys_refused"`
	Requests    int64   `json:"requests"`
	ReqsRefused int64   `json:"requests_refused"`
	Spared      float64 `json:"spared"` // share of the keys

	// Low and High are the 95% confidence interval of the share that the recommendation spares of
	// as many other clients: by the whole log or by this trial, whichever is farther off.
	Low  float64 `json:"low"`
	High float64 `json:"high"`
}

// A Bucket is the smallest that refuses nothing to as many keys as are to be spared.
type Bucket struct {
	Rate  int64 `json:"rate"` // events per period
	Burst int64 `json:"burst"`
}

// Result is what was found so far, for a choice that spares that share of the keys, such as
// 0.999.
func (m *Meter) Result(spare float64) (*Result, error) {
	if !(spare > 0 && spare <= 1) {
		return nil, fmt.Errorf("to spare %v of the clients: it must be more than 0 and at most 1", spare)
	}
	if m.requests == 0 {
		return nil, fmt.Errorf("there are no requests to choose a limit by")
	}
	r := &Result{Per: m.per, Keys: int64(len(m.keys)), Requests: m.requests, Refused: []Client{}}
	all := m.refusedKeys(0, mostParts, false)
	for i, keys := range all {
		r.Curve = append(r.Curve, Point{limits[i], keys, m.refused[i]})
		if keys == 0 {
			break
		}
	}
	sorted := m.setApart(spare)
	rest := m.refusedKeys(0, mostParts, true)
	chosen, ok := choose(rest, m.keysIn(0, mostParts, true), spare)
	if !ok {
		return nil, fmt.Errorf("some %.4g%% of the clients ask for more than %d in %v: no limit up to that spares %.4g%%",
			100*float64(rest[len(rest)-1])/float64(r.Keys), limits[len(rest)-1], m.per, 100*spare)
	}
	r.Chosen = r.Curve[chosen]
	if r.Tried = m.try(spare); r.Tried != nil {
		low, high := interval(r.Keys-r.Chosen.Keys, r.Keys)
		r.Tried.Low, r.Tried.High = min(r.Tried.Low, low), max(r.Tried.High, high)
	}
	for _, name := range sorted {
		if k := m.keys[name]; k.apart || k.refusedBy(0, mostParts) > chosen {
			r.Refused = append(r.Refused, Client{name, k.peak, time.UnixMicro(k.peakAt).UTC(), k.apart})
		}
		if m.keys[name].apart {
			r.Apart++
		}
	}
	if r.Apart > 0 {
		if with, ok := choose(all, r.Keys, spare); ok {
			r.With = limits[with]
		}
		r.Next = m.keys[sorted[r.Apart]].peak
	}
	r.Peaks = m.peaks(sorted)
	m.chooseBuckets(r, spare)
	return r, nil
}

// Beyond these a client is an outlier: it asks for more than farOff times as much as the next one,
// and slack, as three is not far from one.
const (
	farOff = 3
	slack  = 3

	fewestToJudge = 10 // clients; of fewer it is unknown what is usual
	mostApart     = 50 // at most one client in so many is set apart, and at least one
)

// setApart marks the outliers: the most clients that are far off from the rest. Else they choose the
// limit, unless spare leaves so many out in any case. It returns the keys by their peaks, the highest
// first.
func (m *Meter) setApart(spare float64) (sorted []string) {
	for name, k := range m.keys {
		k.apart = false
		sorted = append(sorted, name)
	}
	slices.SortFunc(sorted, func(a, b string) int {
		return cmp.Or(cmp.Compare(m.keys[b].peak, m.keys[a].peak), cmp.Compare(a, b))
	})
	if len(sorted) < fewestToJudge || spare == 1 {
		return sorted
	}
	for n := max(1, len(sorted)/mostApart); n > int(mayRefuse(int64(len(sorted)), spare)); n-- {
		if m.keys[sorted[n-1]].peak > farOff*(m.keys[sorted[n]].peak+slack) {
			for _, name := range sorted[:n] {
				m.keys[name].apart = true
			}
			break
		}
	}
	return sorted
}

// refusedBy is how many of limits refused a key something in these parts of the log, and -1 if it
// did not come.
func (k *key) refusedBy(from, to int) int { return int(slices.Max(k.demand[from:to])) - 1 }

// refusedKeys is how many keys each limit refused something in these parts of the log. Those set
// apart are left out, if they are to be.
func (m *Meter) refusedKeys(from, to int, without bool) []int64 {
	counts := make([]int64, len(m.quotas)+1)
	for _, k := range m.keys {
		if n := k.refusedBy(from, to); n >= 0 && !(without && k.apart) {
			counts[n]++
		}
	}
	refused := make([]int64, len(m.quotas))
	above := int64(0)
	for i := len(m.quotas) - 1; i >= 0; i-- {
		above += counts[i+1]
		refused[i] = above
	}
	return refused
}

// keysIn is how many keys came in these parts of the log.
func (m *Meter) keysIn(from, to int, without bool) (n int64) {
	for _, k := range m.keys {
		if k.refusedBy(from, to) >= 0 && !(without && k.apart) {
			n++
		}
	}
	return n
}

// choose is the lowest limit that spares so many keys.
func choose(refused []int64, keys int64, spare float64) (limit int, ok bool) {
	for i, n := range refused {
		if n <= mayRefuse(keys, spare) {
			return i, true
		}
	}
	return 0, false
}

// mayRefuse is how many of the keys need not be spared. A share such as 0.999 is a little off
// as a float64, which must not make one of a thousand keys none.
func mayRefuse(keys int64, spare float64) int64 {
	return int64(math.Floor(float64(keys)*(1-spare) + 1e-9*float64(keys)))
}

// fewestKeys is how many have to be in a part of the log for it to say something.
const fewestKeys = 20

// try chooses by the first half of the requests, and looks at what that does in the rest.
func (m *Meter) try(spare float64) *Trial {
	cut, first := 0, int64(0)
	for cut < mostParts && first < m.requests/2 {
		first += m.parts[cut].requests
		cut++
	}
	if cut == 0 || cut == mostParts {
		return nil
	}
	before, after := m.keysIn(0, cut, true), m.keysIn(cut, mostParts, false)
	chosen, ok := choose(m.refusedKeys(0, cut, true), before, spare)
	if !ok || before < fewestKeys || after < fewestKeys {
		return nil
	}
	t := &Trial{Limit: limits[chosen], Keys: after, Refused: m.refusedKeys(cut, mostParts, false)[chosen]}
	for i := cut; i < mostParts; i++ {
		t.Requests += m.parts[i].requests
		t.ReqsRefused += m.parts[i].refused[chosen]
	}
	t.Spared = float64(after-t.Refused) / float64(after)
	t.Low, t.High = interval(after-t.Refused, after)
	return t
}

// interval is Wilson's, at 95%, for the share among as many others as there are here: it is
// off by what both are, so n counts half.
func interval(good, n int64) (low, high float64) {
	const z = 1.96
	p, count := float64(good)/float64(n), float64(n)/2
	middle := p + z*z/(2*count)
	off := z * math.Sqrt(p*(1-p)/count+z*z/(4*count*count))
	return max(0, (middle-off)/(1+z*z/count)), min(1, (middle+off)/(1+z*z/count))
}

// peaks are of all keys, those set apart included.
func (m *Meter) peaks(sorted []string) Peaks {
	all := make([]int64, 0, len(sorted))
	for _, name := range slices.Backward(sorted) {
		all = append(all, m.keys[name].peak)
	}
	return Peaks{quantile(all, .5), quantile(all, .9), quantile(all, .99), quantile(all, .999), all[len(all)-1]}
}

// quantile is the smallest of a sorted list that so great a share of it does not exceed.
func quantile(sorted []int64, share float64) int64 {
	return sorted[len(sorted)-1-int(min(mayRefuse(int64(len(sorted)), share), int64(len(sorted)-1)))]
}

// chooseBuckets finds the burst that each rate needs.
func (m *Meter) chooseBuckets(r *Result, spare float64) {
	bursts := make([]int64, 0, len(m.keys))
	for i, rate := range rates {
		if rate > r.Chosen.Limit {
			return
		}
		bursts = bursts[:0]
		for _, k := range m.keys {
			if !k.apart {
				bursts = append(bursts, m.burst(k, i))
			}
		}
		slices.Sort(bursts)
		r.Buckets = append(r.Buckets, Bucket{rate, quantile(bursts, spare)})
	}
}
