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
	Limit int64 `json:"limit"`
	Keys  int64 `json:"keys_refused"` // that would have been refused something
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
	all := m.refusedKeys(false)
	for i, keys := range all {
		r.Curve = append(r.Curve, Point{limits[i], keys})
		if keys == 0 {
			break
		}
	}
	var sorted []string
	sorted, r.Apart = m.setApart(spare)
	rest := m.refusedKeys(true)
	chosen, ok := choose(rest, r.Keys-int64(r.Apart), spare)
	if !ok {
		return nil, fmt.Errorf("some %.4g%% of the clients ask for more than %d in %v: no limit up to that spares %.4g%%",
			100*float64(rest[len(rest)-1])/float64(r.Keys), limits[len(rest)-1], m.per, 100*spare)
	}
	r.Chosen = r.Curve[chosen]
	for _, name := range sorted {
		if k := m.keys[name]; k.apart || m.need(k) > r.Chosen.Limit {
			r.Refused = append(r.Refused, Client{name, k.peak, time.UnixMicro(k.peakAt).UTC(), k.apart})
		}
	}
	if r.Apart > 0 {
		if with, ok := choose(all, r.Keys, spare); ok {
			r.With = limits[with]
		}
		r.Next = m.keys[sorted[r.Apart]].peak
	}
	r.Peaks = m.peaks(sorted)
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
// first, and how many of them are set apart.
func (m *Meter) setApart(spare float64) (sorted []string, apart int) {
	for name, k := range m.keys {
		k.apart = false
		sorted = append(sorted, name)
	}
	slices.SortFunc(sorted, func(a, b string) int {
		return cmp.Or(cmp.Compare(m.keys[b].peak, m.keys[a].peak), cmp.Compare(a, b))
	})
	if len(sorted) < fewestToJudge || spare == 1 {
		return sorted, 0
	}
	for n := max(1, len(sorted)/mostApart); n > int(mayRefuse(int64(len(sorted)), spare)); n-- {
		if m.keys[sorted[n-1]].peak > farOff*(m.keys[sorted[n]].peak+slack) {
			for _, name := range sorted[:n] {
				m.keys[name].apart = true
			}
			return sorted, n
		}
	}
	return sorted, 0
}

// refusedKeys is how many keys each limit refused something. Those set apart are left out, if they
// are to be.
func (m *Meter) refusedKeys(without bool) []int64 {
	refused := make([]int64, len(limits))
	for _, k := range m.keys {
		if !(without && k.apart) {
			need := m.need(k)
			for i := 0; i < len(limits) && limits[i] < need; i++ {
				refused[i]++
			}
		}
	}
	return refused
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
