package shed

import (
	"math"
	"time"
)

// A meter finds how many requests in flight keep the service busy. It is arithmetic alone: the gate
// passes it the time and the events, under the gate's lock.
//
// It uses Little's law: the number of requests that wait inside of the service is its rate times how
// long each waits. That time is latency minus the base, the latency when nothing waits. As in TCP
// Vegas (Brakmo and Peterson, 1995), the limit follows the number that does not wait, plus some
// headroom, so that the service never lacks work. As in BBR (Cardwell et al., 2016), the base is
// measured while the limit is lowered for a moment. So the base can rise as well as fall, and no queue
// becomes part of it.
type meter struct {
	limit   float64 // how many may be in flight
	rate    float64 // completions per second that the service can do
	rated   float64 // how long the rate was measured, in seconds, up to rateTime
	base    float64 // latency when nothing waits, in seconds; 0: not known
	latency float64 // of the last window
	fewest  float64 // the lowest mean in flight of windows with that base; before shrunk

	dip      dip
	dipTo    float64       // the limit in a dip
	dipFrom  time.Duration // when it began
	dipAfter time.Duration // when the next may begin
	dipLimit float64       // the limit before the last dip
	shrunk   bool          // whether the limit was ever too high: since then it grows in steps

	at       time.Duration // up to when area is counted
	inFlight int
	window
}

// A window is a time of measurement. Its latency is that of its cohort, the requests that came in its
// first part. The window ends when three quarters of the cohort are answered, so the fastest three
// quarters are known however long the others take. Nothing in it is from before the window.
type window struct {
	number   uint32
	from     time.Duration
	area     float64       // of in flight over time, in seconds
	answers  int           // in all
	cohort   int           // how many there are
	complete bool          // whether the cohort is complete
	since    time.Duration // when it was completed
	seen     latencies
}

// A dip is how far the limit is lowered, to measure the base.
type dip uint8

const (
	noDip    dip = iota
	draining     // more than the dip's limit are in flight
	dipped
)

const (
	initialLimit = 32

	// A cohort has so many requests, in so long, at least; or enough of them in its longest time.
	cohortSize = 64
	fewer      = 12
	shortest   = 50 * time.Millisecond
	longest    = time.Second

	// So long is waited for answers that do not come, and for a dip's limit to be reached, while
	// nothing is admitted.
	endless      = 30 * time.Second
	longestDrain = 5 * time.Second

	// The rate is a mean of so many seconds.
	rateTime = 3

	// The limit dips to this part of those that do not wait; so long after the last dip, or so
	// many times as long as that took, if no quiet time has shown the base.
	dipPart  = 0.7
	dipEvery = 10 * time.Second
	dipTimes = 40

	// Where latency is much less in a dip, and the service still completes nearly as much as
	// before, some wait in the dip too: it goes to half of that.
	muchLess  = 0.8
	stillBusy = 0.85

	// Latency is alike up to so many times the base, and so many times as many in flight are far
	// more: if they waited, it would be as many times the base.
	alikeTo = 1.15
	farMore = 1.5
)

// headroom is how many requests may wait inside of the service while busy requests are served. Their
// number varies by the order of the square root (Halfin and Whitt, 1981). The rest makes up for errors
// of measurement, and costs a sixteenth of the usual latency.
func headroom(busy float64) float64 { return 1 + math.Sqrt(busy)/2 + busy/16 }

// busyAt is how many requests are busy at a limit that includes their headroom.
func busyAt(limit float64) float64 {
	const a = 1 + 1.0/16
	root := (math.Sqrt(0.25+4*a*max(0, limit-1)) - 0.5) / (2 * a)
	return max(1, root*root)
}

// bound is how many may be in flight now.
func (m *meter) bound() int {
	if m.dip != noDip {
		return max(1, int(m.dipTo))
	}
	return max(1, int(m.limit+0.5))
}

// pass counts time up to now.
func (m *meter) pass(now time.Duration) {
	if now > m.at {
		m.area += float64(m.inFlight) * (now - m.at).Seconds()
		m.at = now
	}
}

// enter counts a request, and returns the window whose cohort it is in; 0: none.
func (m *meter) enter(now time.Duration) (cohort uint32) {
	m.pass(now)
	m.inFlight++
	if m.complete || m.dip == draining {
		return 0
	}
	m.cohort++
	elapsed := now - m.from
	if elapsed >= shortest && m.cohort >= cohortSize || elapsed >= longest && m.cohort >= fewer {
		m.complete, m.since = true, now
	}
	return m.number
}

// leave counts an answer to a request of that cohort, and how long it took.
func (m *meter) leave(now, took time.Duration, cohort uint32) {
	m.pass(now)
	m.inFlight--
	m.answers++
	if cohort == m.number {
		m.seen.add(took)
	}
	m.proceed(now)
}

// forget counts a request that leaves the flight without an answer.
func (m *meter) forget(now time.Duration, cohort uint32) {
	m.pass(now)
	m.inFlight--
	if cohort == m.number {
		m.cohort--
	}
	m.proceed(now)
}

// proceed begins the next window if this one has ended.
func (m *meter) proceed(now time.Duration) {
	switch {
	case m.dip == draining && m.inFlight <= m.bound():
		m.dip = dipped
		m.open(now)
	case m.dip == draining && now-m.from > longestDrain:
		m.endDip(now)
		m.open(now)
	case m.dip == draining || !m.complete:
	case 4*m.seen.n >= 3*m.cohort:
		m.close(now)
	case now-m.since > endless:
		m.open(now)
	}
}

// open begins a window.
func (m *meter) open(now time.Duration) {
	m.window = window{number: m.number + 1, from: now}
	if m.number == 0 {
		m.number = 1
	}
}

// alike reports whether latency equals that with far fewer requests in flight. Then none of them waits,
// which shows the base as a dip would. It is used only before the limit was ever too high.
func (m *meter) alike(latency, mean float64) bool {
	if m.shrunk || latency > alikeTo*m.base {
		return false
	}
	if m.fewest == 0 || mean < m.fewest {
		m.fewest = mean
	}
	return mean >= farMore*m.fewest
}

func (m *meter) endDip(now time.Duration) {
	m.dip, m.dipAfter = noDip, now+max(dipEvery, dipTimes*(now-m.dipFrom))
}

// close ends a window and sets the limit by it.
func (m *meter) close(now time.Duration) {
	elapsed := (now - m.from).Seconds()
	latency := m.seen.lower(m.cohort)
	rate, mean := float64(m.answers)/elapsed, m.area/elapsed
	defer m.open(now)
	if m.dip == dipped {
		if latency < muchLess*m.latency && rate > stillBusy*m.rate && m.dipTo > 1 {
			m.dip, m.dipTo, m.latency = draining, max(1, m.dipTo/2), latency
			return
		}
		m.base = latency
		m.endDip(now)
		return
	}
	m.latency = latency
	full := mean >= 0.8*m.limit
	if full || rate > m.rate {
		m.rated = min(rateTime, m.rated+elapsed)
		m.rate += (rate - m.rate) * min(1, elapsed/m.rated)
	}
	quiet := mean <= dipPart*busyAt(m.limit) // hardly anything waits, if the limit is right
	switch {
	case m.base == 0:
		m.base = latency
	case quiet || latency < m.base:
		m.base += 0.2 * (latency - m.base)
	}
	if quiet && m.shrunk || m.alike(latency, mean) {
		m.dipAfter = now + dipEvery // it was as good as one
	}
	waiting := rate * max(0, latency-m.base)
	busy := max(1, mean-waiting)
	switch room := headroom(busy); {
	case full && (now >= m.dipAfter || m.limit < m.dipLimit/2):
		m.dip, m.dipFrom, m.dipTo, m.dipLimit = draining, now, dipPart*min(busy, busyAt(m.limit)), m.limit
	case waiting > room && busy+room < m.limit:
		m.limit += 0.5 * (busy + room - m.limit)
		m.shrunk = true
	case full && waiting < room && m.shrunk:
		m.limit += min(room-waiting, m.limit/2)
	case full && waiting < room/2:
		m.limit *= 2
	}
}
