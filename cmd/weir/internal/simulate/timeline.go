package simulate

import (
	"maps"
	"slices"
	"strings"
	"time"
)

// mostBins is how many a timeline has at most: an even number.
const mostBins = 240

// widths are those of bins, in seconds. Each is a multiple of the one before it, and so are
// those beyond the last, which double.
var widths = []int64{1, 2, 10, 30, 60, 120, 600, 1800, 3600, 7200, 21600, 43200, 86400}

// A timeline counts requests by time and by what stopped them. It takes a log of any length:
// when it is full, its bins become wider.
type timeline struct {
	begin, width int64 // in microseconds; a begin is a multiple of the width
	bins         []bin
}

type bin struct {
	passed  int64
	stopped map[string]int64 // by what; nil: none
}

func (t *timeline) add(at int64, by string) {
	if t.width == 0 {
		t.begin, t.width = at-at%second, second
	}
	for (at-t.begin)/t.width >= mostBins {
		t.widen()
	}
	i := int((at - t.begin) / t.width)
	for len(t.bins) <= i {
		t.bins = append(t.bins, bin{})
	}
	b := &t.bins[i]
	if by == "" {
		b.passed++
		return
	}
	if b.stopped == nil {
		b.stopped = map[string]int64{}
	}
	b.stopped[by]++
}

const second = 1_000_000

// widen makes bins of the next width.
func (t *timeline) widen() {
	width := 2 * t.width
	if i := slices.Index(widths, t.width/second); i >= 0 && i+1 < len(widths) {
		width = widths[i+1] * second
	}
	wider := timeline{begin: t.begin - t.begin%width, width: width}
	for i := range t.bins {
		into := int((t.begin + int64(i)*t.width - wider.begin) / width)
		for len(wider.bins) <= into {
			wider.bins = append(wider.bins, bin{})
		}
		wider.bins[into].add(&t.bins[i])
	}
	*t = wider
}

func (b *bin) add(other *bin) {
	b.passed += other.passed
	if b.stopped == nil {
		b.stopped = other.stopped
		return
	}
	for by, n := range other.stopped {
		b.stopped[by] += n
	}
}

// A Timeline is how many requests passed and were stopped, in parts of equal length.
type Timeline struct {
	Begin   time.Time          `json:"begin"`
	Seconds int64              `json:"seconds"` // that each part has
	Passed  []int64            `json:"passed"`
	Stopped map[string][]int64 `json:"stopped"` // by rule, "ban" or "no key"
}

func (t *timeline) shown() Timeline {
	names := map[string]bool{}
	for i := range t.bins {
		for by := range t.bins[i].stopped {
			names[by] = true
		}
	}
	shown := Timeline{
		Begin: time.UnixMicro(t.begin).UTC(), Seconds: t.width / second,
		Passed: make([]int64, len(t.bins)), Stopped: map[string][]int64{},
	}
	for _, by := range slices.Sorted(maps.Keys(names)) {
		shown.Stopped[strings.TrimSpace(by)] = make([]int64, len(t.bins))
	}
	for i := range t.bins {
		shown.Passed[i] = t.bins[i].passed
		for by, n := range t.bins[i].stopped {
			shown.Stopped[strings.TrimSpace(by)][i] += n
		}
	}
	return shown
}
