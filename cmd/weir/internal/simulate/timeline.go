package simulate

import "time"

// mostBins is how many a timeline has at most: an even number.
const mostBins = 240

const second = 1_000_000 // in microseconds

// A timeline counts requests by time. It takes a log of any length: when it is full, its bins
// become twice as wide.
type timeline struct {
	begin, width int64 // in microseconds
	bins         [mostBins]bin
	used         int
}

type bin struct{ passed, stopped int64 }

func (t *timeline) add(at int64, stopped bool) {
	if t.width == 0 {
		t.begin, t.width = at-at%second, second
	}
	for (at-t.begin)/t.width >= mostBins {
		for i := range mostBins / 2 {
			a, b := t.bins[2*i], t.bins[2*i+1]
			t.bins[i] = bin{a.passed + b.passed, a.stopped + b.stopped}
		}
		clear(t.bins[mostBins/2:])
		t.width, t.used = 2*t.width, (t.used+1)/2
	}
	i := int((at - t.begin) / t.width)
	t.used = max(t.used, i+1)
	if stopped {
		t.bins[i].stopped++
	} else {
		t.bins[i].passed++
	}
}

// A Timeline is how many requests passed and were stopped, in parts of equal length.
type Timeline struct {
	Begin   time.Time `json:"begin"`
	Seconds int64     `json:"seconds"` // that each part has
	Passed  []int64   `json:"passed"`
	Stopped []int64   `json:"stopped"`
}

func (t *timeline) shown() Timeline {
	shown := Timeline{Begin: time.UnixMicro(t.begin).UTC(), Seconds: t.width / second, Passed: []int64{}, Stopped: []int64{}}
	for _, b := range t.bins[:t.used] {
		shown.Passed, shown.Stopped = append(shown.Passed, b.passed), append(shown.Stopped, b.stopped)
	}
	return shown
}
