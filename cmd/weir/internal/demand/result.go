package demand

import (
	"cmp"
	"fmt"
	"maps"
	"math"
	"slices"
	"time"

	"github.com/weirgo/weir/internal/operate"
)

// A Result is the demand of a log's keys, and the limit that they need.
type Result struct {
	Per      time.Duration `json:"-"`
	Keys     int64         `json:"keys"`
	Requests int64         `json:"requests"`
	Peaks    Peaks         `json:"peaks"`
	Curve    []Point       `json:"curve"` // by limit, up to a limit that refuses nothing
	Chosen   Point         `json:"chosen"`

	// Refused are the clients that the chosen limit would refuse, the highest demand first.
	Refused []Client `json:"refused"`
}

// A Client is a client that the limit would refuse.
type Client struct {
	Client string    `json:"client"`
	Most   int64     `json:"most"` // its demand in its busiest period
	At     time.Time `json:"at"`   // the end of this period
}

// Peaks are quantiles of the keys' demand in their busiest periods, measured to a thousandth of a period.
type Peaks struct {
	P50  int64 `json:"p50"`
	P90  int64 `json:"p90"`
	P99  int64 `json:"p99"`
	P999 int64 `json:"p99_9"`
	Most int64 `json:"most"`
}

// A Point is the effect of a limit.
type Point struct {
	Limit int64 `json:"limit"`
	Keys  int64 `json:"keys_refused"` // how many keys it would have refused
}

// Result returns the result so far. The chosen limit spares at least that share of the keys, such as 0.999.
func (m *Meter) Result(spare float64) (*Result, error) {
	if !(spare > 0 && spare <= 1) {
		return nil, fmt.Errorf("to spare %v of the clients: it must be more than 0 and at most 1", spare)
	}
	if m.requests == 0 {
		return nil, fmt.Errorf("there are no requests to choose a limit by")
	}
	r := &Result{Per: m.per, Keys: int64(len(m.keys)), Requests: m.requests, Refused: []Client{}}
	sorted := m.byPeak()
	all := m.refusedKeys()
	for i, keys := range all {
		r.Curve = append(r.Curve, Point{limits[i], keys})
		if keys == 0 {
			break
		}
	}
	chosen := slices.IndexFunc(all, func(n int64) bool { return n <= mayRefuse(r.Keys, spare) })
	if chosen < 0 {
		return nil, fmt.Errorf("some %s of the clients ask for more than %s in %s: no limit up to that spares %s",
			operate.Share(all[len(all)-1], r.Keys), operate.Number(limits[len(all)-1]), operate.Duration(m.per), operate.Percent(spare))
	}
	r.Chosen = r.Curve[chosen]
	for _, name := range sorted {
		if k := m.keys[name]; m.need(k) > r.Chosen.Limit {
			r.Refused = append(r.Refused, Client{name, k.peak, time.UnixMicro(k.peakAt).UTC()})
		}
	}
	r.Peaks = m.peaks(sorted)
	return r, nil
}

// byPeak returns the keys by their peaks, the highest first.
func (m *Meter) byPeak() []string {
	return slices.SortedFunc(maps.Keys(m.keys), func(a, b string) int {
		return cmp.Or(cmp.Compare(m.keys[b].peak, m.keys[a].peak), cmp.Compare(a, b))
	})
}

// refusedKeys returns how many keys each limit would refuse.
func (m *Meter) refusedKeys() []int64 {
	refused := make([]int64, len(limits))
	for _, k := range m.keys {
		need := m.need(k)
		for i := 0; i < len(limits) && limits[i] < need; i++ {
			refused[i]++
		}
	}
	return refused
}

// mayRefuse returns how many keys the limit may refuse. A share such as 0.999 is inexact as a float64,
// which must not turn one of a thousand keys into none.
func mayRefuse(keys int64, spare float64) int64 {
	return int64(math.Floor(float64(keys)*(1-spare) + 1e-9*float64(keys)))
}

// peaks returns the quantiles over all keys.
func (m *Meter) peaks(sorted []string) Peaks {
	all := make([]int64, 0, len(sorted))
	for _, name := range slices.Backward(sorted) {
		all = append(all, m.keys[name].peak)
	}
	return Peaks{quantile(all, .5), quantile(all, .9), quantile(all, .99), quantile(all, .999), all[len(all)-1]}
}

// quantile returns the smallest element of a sorted list that a share of the list does not exceed.
func quantile(sorted []int64, share float64) int64 {
	return sorted[len(sorted)-1-int(min(mayRefuse(int64(len(sorted)), share), int64(len(sorted)-1)))]
}
