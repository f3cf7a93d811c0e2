// Package traffic generates the requests of a website, for tests.
package traffic

import (
	"cmp"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"time"
)

// A Request is one line of a log.
type Request struct {
	At        int64  // microseconds since 1970
	Client    string // the address of the connection's other end
	Method    string
	Target    string // path and query
	UserAgent string
}

// Time returns At as a time.Time.
func (r *Request) Time() time.Time { return time.UnixMicro(r.At) }

const (
	day  = 24 * time.Hour
	days = 4
)

// Generate returns n requests to a website within four days. The same seed and n return the same
// requests. As on a real website, few clients send most of them. There are
//
//   - visits: a page and its images, a pause, the next page; more by day than by night
//   - crawls: a robot's requests at an exact interval, from the beginning of an hour
//   - bursts: requests of one client, up to 20 ms apart
//
// Times are whole microseconds, and many are on the boundary of a second, minute, hour or day.
func Generate(seed uint64, n int) []Request {
	g := &generator{Rand: rand.New(rand.NewPCG(seed, 0))}
	visitors := rand.NewZipf(g.Rand, 1.3, 8, 2_000)
	for len(g.requests) < n {
		switch g.IntN(60) {
		case 0:
			g.burst(int(visitors.Uint64()))
		case 1:
			g.crawl()
		default:
			g.visit(int(visitors.Uint64()))
		}
	}
	g.requests = g.requests[:n]
	slices.SortStableFunc(g.requests, func(a, b Request) int { return cmp.Compare(a.At, b.At) })
	return g.requests
}

type generator struct {
	*rand.Rand
	requests []Request
}

// begin is a midnight, where a window of every length up to a day begins.
var begin = time.Date(2024, time.February, 28, 0, 0, 0, 0, time.UTC)

func (g *generator) add(at time.Duration, client, method, target, agent string) {
	g.requests = append(g.requests, Request{
		At: begin.Add(at).UnixMicro(), Client: client, Method: method, Target: target, UserAgent: agent,
	})
}

// address returns a visitor's address. Each IPv6 visitor has its own /64, as IPv6 is limited by /64.
func address(visitor int) string {
	if visitor%4 == 3 {
		return fmt.Sprintf("2001:db8:0:%x::1", visitor)
	}
	return fmt.Sprintf("198.18.%d.%d", visitor/250, 1+visitor%250)
}

func (g *generator) visit(visitor int) {
	const agent = `Mozilla/5.0 (X11; Linux x86_64) "made up"`
	at := g.daytime()
	for range 1 + int(g.ExpFloat64()*2) {
		g.add(at, address(visitor), "GET", fmt.Sprintf("/articles/%d?page=%d", g.IntN(300), 1+g.IntN(3)), agent)
		for range g.IntN(6) {
			at += time.Duration(g.ExpFloat64() * float64(80*time.Millisecond))
			g.add(at, address(visitor), "GET", fmt.Sprintf("/static/%d.png", g.IntN(50)), agent)
		}
		if g.IntN(8) == 0 {
			g.add(at, address(visitor), "POST", "/search", agent)
		}
		at += time.Duration(math.Exp(g.NormFloat64()*1.5) * float64(12*time.Second)) // a pause, sometimes of minutes
	}
}

// daytime draws a time within the days. Noon is three times as likely as midnight.
func (g *generator) daytime() time.Duration {
	for {
		at := time.Duration(g.Int64N(int64(days * day)))
		if noon := (1 - math.Cos(2*math.Pi*at.Hours()/24)) / 2; g.Float64() < (1+2*noon)/3 {
			return at
		}
	}
}

func (g *generator) crawl() {
	robot := g.IntN(6)
	every := []time.Duration{time.Second, 5 * time.Second, 10 * time.Second, time.Minute, 15 * time.Minute, time.Hour}[robot]
	at := time.Duration(g.IntN(days*24)) * time.Hour
	for range 20 + g.IntN(60) {
		g.add(at, fmt.Sprintf("203.0.113.%d", 1+robot), "GET", fmt.Sprintf("/articles/%d", g.IntN(300)), "robot/1.0 (+https://robot.example/)")
		at += every
	}
}

func (g *generator) burst(visitor int) {
	at := g.daytime()
	for range 30 + g.IntN(120) {
		g.add(at, address(visitor), "POST", "/login", "curl/8.5.0")
		at += time.Duration(g.IntN(20_000)) * time.Microsecond
	}
}
