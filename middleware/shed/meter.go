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
	limit   float64 // the most requests in flight
	rate    float64 // completions per second that the service is capable of
	rated   float64 // for how many seconds the rate was measured, up to rateTime
	base    float64 // latency in seconds if no request waits; 0: unknown
	latency float64 // of the last window, in seconds
	fewest  float64 // the fewest requests in flight, on average, in a window with latency base; used until shrunk

	dip      dip
	dipTo    float64       // the limit in the dip
	dipFrom  time.Duration // start of the dip
	dipAfter time.Duration // earliest start of the next dip
	dipLimit float64       // the limit before the last dip
	shrunk   bool          // the limit was too high once; since then it grows in steps

	at       time.Duration // end of the time that area covers
	inFlight int
	window
}

// A window is a period of measurement. Its cohort is the requests that arrive in its first part. The window
// ends when three quarters of the cohort are answered, so slow requests do not prolong it. Its latency is
// the mean of these answers.
type window struct {
	number   uint32
	from     time.Duration
	area     float64       // integral of inFlight over time, in seconds
	answers  int           // to all requests
	cohort   int           // requests in the cohort
	complete bool          // the cohort is complete
	since    time.Duration // when the cohort was completed
	seen     latencies
}

// A dip is the state of a dip: the limit is lowered for a moment, to measure the base.
type dip uint8

const (
	noDip    dip = iota
	draining     // more requests than dipTo are in flight
	dipped
)

const (
	initialLimit = 32

	// A cohort is complete with cohortSize requests after the time shortest, or with fewer requests
	// after the time longest.
	cohortSize = 64
	fewer      = 12
	shortest   = 50 * time.Millisecond
	longest    = time.Second

	// A window without answers ends after endless. If a dip has not drained after longestDrain, it ends:
	// nothing is admitted meanwhile.
	endless      = 30 * time.Second
	longestDrain = 5 * time.Second

	// The rate is a mean over this many seconds.
	rateTime = 3

	// The limit dips to dipPart of the busy requests. The next dip begins after dipEvery, or after
	// dipTimes the length of the last dip, unless a quiet time shows the base.
	dipPart  = 0.7
	dipEvery = 10 * time.Second
	dipTimes = 40

	// If latency in a dip is below muchLess of the latency before, and the rate is above stillBusy of the
	// rate before, requests still wait. Then the limit dips to half.
	muchLess  = 0.8
	stillBusy = 0.85

	// Latency up to alikeTo times the base, with farMore times as many requests in flight, shows that none
	// waits: otherwise latency would be farMore times the base.
	alikeTo = 1.15
	farMore = 1.5
)

// headroom returns how many requests may wait inside the service while busy requests are served. Their
// number varies by about the square root of busy (Halfin and Whitt, 1981). The last term allows for errors
// of measurement, and raises latency by a sixteenth.
func headroom(busy float64) float64 { return 1 + math.Sqrt(busy)/2 + busy/16 }

// busyAt returns how many requests are busy at a limit that includes their headroom.
func busyAt(limit float64) float64 {
	const a = 1 + 1.0/16
	root := (math.Sqrt(0.25+4*a*max(0, limit-1)) - 0.5) / (2 * a)
	return max(1, root*root)
}

// bound returns how many requests may be in flight now.
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

// forget counts a request that ends without an answer.
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

// alike reports whether latency is about the same as with far fewer requests in flight. Then no request
// waits, so latency is the base, and no dip is needed. It is used until the limit was too high once.
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

// close ends a window, and sets the limit.
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
	quiet := mean <= dipPart*busyAt(m.limit) // hardly any request waits, if the limit is right
	switch {
	case m.base == 0:
		m.base = latency
	case quiet || latency < m.base:
		m.base += 0.2 * (latency - m.base)
	}
	if quiet && m.shrunk || m.alike(latency, mean) {
		m.dipAfter = now + dipEvery // the base is known without a dip
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
