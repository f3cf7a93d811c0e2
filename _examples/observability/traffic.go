package main

import (
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"strings"
	"time"

	"github.com/weirgo/weir"
	"github.com/weirgo/weir/observe/promlimit"
	"github.com/weirgo/weir/pace"
)

// A client sends requests at a rate, per second.
type client struct {
	rate   int
	from   string
	tenant func() string
}

var connections = http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: 100}}

// play sends the requests of all kinds of clients to url until the program ends.
func play(url string) {
	for i := range 20 {
		tenant := fmt.Sprint("good-", i%5)
		go client{2, fmt.Sprint("192.0.2.", i+1), func() string { return tenant }}.ask(url)
	}
	for i := range 3 { // the attacker's addresses; each new key has a whole limit
		go client{150, fmt.Sprint("198.51.100.", i+1), func() string { return fmt.Sprintf("%016x", rand.Uint64()) }}.ask(url)
	}
	for i := range 4 { // a tenant with a loop in its script
		go client{20, fmt.Sprint("203.0.113.", i+1), func() string { return "noisy" }}.ask(url)
	}
}

func (c client) ask(url string) { c.askBy(&connections, url) }

func (c client) askBy(by *http.Client, url string) {
	for range time.Tick(time.Second / time.Duration(c.rate)) {
		r, err := http.NewRequest(http.MethodGet, url+"/", nil)
		if err != nil {
			panic(err) // the address is this program's own
		}
		r.Header.Set("X-Forwarded-For", c.from)
		r.Header.Set("X-Tenant", c.tenant())
		response, err := by.Do(r)
		if err != nil {
			continue // the service logs why
		}
		io.Copy(io.Discard, response.Body)
		response.Body.Close()
	}
}

// partner plays a client that keeps to its limit: its five callers wait in a queue.
func partner(url string, metrics *promlimit.Metrics) {
	transport := must(pace.NewTransport(connections.Transport, pace.Options{
		Rules:    []pace.Rule{{Name: "partner", Host: strings.TrimPrefix(url, "http://"), Limit: weir.PerSecond(15)}},
		Observer: metrics,
	}))
	metrics.FollowTransport(transport)
	paced := &http.Client{Transport: transport}
	for range 5 {
		go client{1000, "192.0.2.100", func() string { return "partner" }}.askBy(paced, url)
	}
}
