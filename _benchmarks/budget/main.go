// Command budget races a token budget: 64 clients call a made-up AI provider through two processes of weir serve that
// share a Redis. Half of the answers are streams, their lengths are random, and a tenth of the clients leave before the
// end. It prints how far the budget was overspent, and how much of it was used. Then it compares weir serve with a
// bare httputil.ReverseProxy: the delay of the first chunk, CPU time, and memory, also under unfinished bodies.
//
//	go -C cmd/weir build -o /tmp/weir . && go -C _benchmarks run ./budget /tmp/weir
//
// It takes five minutes and needs redis-server. All runs on one machine, so only ratios mean anything. If Redis does not
// answer in time, weir logs that, and each process allows its half: then the races are not exact.
package main

import (
	"bufio"
	"cmp"
	"errors"
	"fmt"
	"io"
	"log"
	"math/rand/v2"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"
)

const (
	clients = 64
	period  = 10 * time.Second
	periods = 4 // that are measured whole

	maximum = 256 // tokens of output
	missing = 128 // reserved where there is no maximum; the answer has up to twice as many
	weight  = 4   // of a token of output
	piece   = 16  // tokens of output in a chunk
	pause   = 20 * time.Millisecond
	ttft    = 100 * time.Millisecond // where the delay of the first chunk is measured
)

const rules = `version: 1
proxies: {}
default: {mode: deny}
endpoints:
  "POST /v1/chat/completions":
    - {name: calls, key: "apikey:Authorization", limit: %d/1m}
    - name: tokens
      key: ["apikey:Authorization", "json:model"]
      limit: %s
      cost:
        reserve: {json: [max_completion_tokens, max_tokens], missing: %d, input: {bytes_per_unit: 4}}
        settle: usage
        weights: {input: 1, cached: 0.1, output: %d}
      refusal: {body: ai, stop_above: 1m}
`

// A call is a request that the provider has seen.
type call struct {
	sent, came time.Time // the decision was between them
	used       int64     // units: what the provider did
	charged    int64     // what it costs by the rules
}

type race struct {
	reserves int64 // for an answer of the greatest length
	limit    int64
	calls    []call
	refused  []time.Time
}

var dir string // for files

func main() {
	if len(os.Args) == 3 && os.Args[1] == "bare" {
		bare(os.Args[2])
	}
	if len(os.Args) < 2 {
		log.Fatal("want the weir to measure, and races or proxies to measure that alone")
	}
	part := append(os.Args, "")[2]
	var err error
	dir, err = os.MkdirTemp("", "budget")
	check(err)
	defer os.RemoveAll(dir)
	provider, err := net.Listen("tcp", "127.0.0.1:0")
	check(err)
	go func() { check(http.Serve(provider, http.HandlerFunc(answer))) }()
	to := "http://" + provider.Addr().String()

	redis := free()
	_, port, _ := net.SplitHostPort(redis)
	defer run(redis, "redis-server", "--port", port, "--save", "", "--dir", dir)()

	if part != "proxies" {
		races(os.Args[1], redis, to)
	}
	if part != "races" {
		proxies(os.Args[1], redis, to)
	}
}

func races(weir, redis, to string) {
	fmt.Printf("%d clients, %v periods, up to %d tokens of weight %d\n", clients, period, maximum, weight)
	fmt.Println("| maximum | algorithm | limit / (clients × reservation) | overspent, of the budget: calendar period | any period | charged | used by the provider |")
	fmt.Println("|---|---|--:|--:|--:|--:|--:|")
	for _, c := range []struct {
		times   int64
		isGiven bool
		bucket  bool
	}{{10, true, false}, {10, true, true}, {2, true, false}, {10, false, false}} {
		r := &race{reserves: weight*maximum + 40}
		if !c.isGiven {
			r.reserves = weight*missing + 40
		}
		r.limit = c.times * clients * r.reserves
		text := fmt.Sprintf("%d/%v", r.limit, period)
		if c.bucket { // never more than the limit in any period
			text = fmt.Sprintf("%d/%v burst %d", r.limit/2, period, r.limit/2) // so half of it in the long run
		}
		r.run(weir, redis, to, text, c.isGiven)
		r.print(c.times, c.isGiven, c.bucket)
	}
}

// serve starts a weir serve, which counts in Redis if there is an address, and returns its address and what stops it.
func serve(weir, redis, to string, calls int, limit string) (addr string, pid int, stop func()) {
	file := filepath.Join(dir, strconv.Itoa(rand.Int())+".yaml")
	check(os.WriteFile(file, fmt.Appendf(nil, rules, calls, limit, missing, weight), 0o600))
	addr = free()
	args := []string{"serve", file, "--proxy", addr + "=" + to}
	if redis != "" {
		args = append(args, "--redis", "redis://"+redis, "--replicas", "2")
	}
	pid, stop = start(addr, weir, args...)
	return addr, pid, stop
}

// run has the clients call for several periods.
func (r *race) run(weir, redis, to, limit string, isGiven bool) {
	first, _, stop := serve(weir, redis, to, 1_000_000, limit)
	defer stop()
	second, _, stop := serve(weir, redis, to, 1_000_000, limit)
	defer stop()
	gateways := []string{first, second}
	client := &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: clients, DisableCompression: true}}
	defer client.CloseIdleConnections()
	end := time.Now().Truncate(period).Add((periods + 1) * period)
	key := strconv.Itoa(rand.Int()) // with a counter of its own
	var mu sync.Mutex
	var all sync.WaitGroup
	for range clients {
		all.Go(func() {
			for time.Now().Before(end) {
				q := newRequest(key, isGiven)
				sent := time.Now()
				answered, seen := q.send(client, gateways[rand.N(len(gateways))])
				mu.Lock()
				if answered == http.StatusTooManyRequests {
					r.refused = append(r.refused, sent)
				} else {
					r.calls = append(r.calls, q.call(sent, seen, r.reserves))
				}
				mu.Unlock()
				if answered == http.StatusTooManyRequests {
					time.Sleep(100*time.Millisecond + rand.N(200*time.Millisecond))
				}
			}
		})
	}
	all.Wait()
}

// print prints the line of a race.
func (r *race) print(times int64, isGiven, isBucket bool) {
	inside := func(begin time.Time) (used int64) {
		for _, c := range r.calls {
			if !c.sent.Before(begin) && c.came.Before(begin.Add(period)) {
				used += c.used
			}
		}
		return used
	}
	over := func(used int64) int64 { return max(0, used-r.limit) }
	slices.SortFunc(r.calls, func(a, b call) int { return a.came.Compare(b.came) })
	began := r.calls[0].sent.Truncate(period).Add(period)
	var calendar, anywhere int64
	var charged, used []float64
	for begin := began; begin.Before(began.Add(periods * period)); begin = begin.Add(period) {
		calendar = max(calendar, over(inside(begin)))
		if slices.ContainsFunc(r.refused, func(t time.Time) bool { return t.Truncate(period).Equal(begin) }) {
			var c, u int64
			for _, call := range r.calls {
				if call.came.Truncate(period).Equal(begin) {
					c, u = c+call.charged, u+call.used
				}
			}
			charged, used = append(charged, float64(c)/float64(r.limit)), append(used, float64(u)/float64(r.limit))
		}
	}
	for i := 0; i < len(r.calls); i += 8 {
		anywhere = max(anywhere, over(inside(r.calls[i].sent)))
	}
	percent := func(n int64) string { return fmt.Sprintf("%.1f%%", 100*float64(n)/float64(r.limit)) }
	least := func(of []float64) string {
		if len(of) == 0 {
			return "nobody was refused"
		}
		return fmt.Sprintf("%.0f%%", 100*slices.Min(of))
	}
	given := "given"
	if !isGiven {
		given = fmt.Sprintf("missing (at most %s: %d × (real − reserved))", percent(clients*weight*(maximum-missing)), clients)
	}
	algorithm := "sliding window"
	if isBucket {
		algorithm = "bucket"
	}
	fmt.Printf("| %s | %s | %d | %s | %s | %s | %s |\n", given, algorithm, times, percent(calendar), percent(anywhere), least(charged), least(used))
}

// proxies compares a weir serve with a ReverseProxy.
func proxies(weir, redis, to string) {
	bareAddr := free()
	barePID, stop := start(bareAddr, os.Args[0], "bare", bareAddr+"="+to)
	defer stop()
	weirAddr, weirPID, stop := serve(weir, redis, to, 500_000_000, "500_000_000/1m")
	defer stop()
	const turns = 7
	var first, cost []float64
	var delays, costs [2][]float64
	for turn := range turns + 1 {
		var delay [2]time.Duration
		var cpu [2]float64
		for i, p := range []struct {
			addr string
			pid  int
		}{{bareAddr, barePID}, {weirAddr, weirPID}} {
			delay[i], _ = load(p.addr, p.pid, ttft, 64, 4)
			_, cpu[i] = load(p.addr, p.pid, time.Millisecond, 2, 20)
			if turn > 0 { // the first one warms up
				delays[i], costs[i] = append(delays[i], float64(delay[i].Microseconds())), append(costs[i], cpu[i])
			}
		}
		if turn > 0 {
			first, cost = append(first, float64(delay[1])/float64(delay[0])), append(cost, cpu[1]/cpu[0])
		}
	}
	fmt.Printf("\nfirst chunk (the provider's comes after %v): %.2f of a ReverseProxy's (%.0f and %.0f us, medians)\n", ttft, median(first), median(delays[1]), median(delays[0]))
	fmt.Printf("CPU a stream of 64 chunks, at full load: %.2f of a ReverseProxy's (%.0f and %.0f us)\n", median(cost), median(costs[1]), median(costs[0]))

	const streams = 500
	var grew [2][]float64
	for range 3 {
		grew[0] = append(grew[0], memory(bareAddr, barePID, streams))
		grew[1] = append(grew[1], memory(weirAddr, weirPID, streams))
	}
	fmt.Printf("memory a stream, above a ReverseProxy's %.1f KiB: %.1f KiB\n", median(grew[0]), median(grew[1])-median(grew[0]))

	fullAddr, fullPID, stop := serve(weir, "", to, 1, "1_000_000/1m")
	defer stop()
	newRequest("full", true).send(http.DefaultClient, fullAddr)
	answers, mib := unfinished(fullAddr, fullPID, 1_000)
	fmt.Printf("1,000 connections with unfinished bodies of 8 MiB, over their limit: %v, %.1f MiB\n", answers, mib)
}

// load has streams of 128 tokens on a few connections. It returns the median delay of their first chunks, and the CPU
// time of the proxy for each.
func load(addr string, pid int, pause time.Duration, piece, each int) (time.Duration, float64) {
	client := &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: 16, DisableCompression: true}}
	defer client.CloseIdleConnections()
	var mu sync.Mutex
	var delays []time.Duration
	var all sync.WaitGroup
	before := cpu(pid)
	for range 16 {
		all.Go(func() {
			for range each {
				q := newRequest("load", true)
				q.stream, q.leaves, q.length, q.pause, q.piece = true, false, maximum/2, pause, piece
				sent := time.Now()
				res, err := client.Do(q.http(addr))
				check(err)
				_, err = res.Body.Read(make([]byte, 1))
				check(err)
				delay := time.Since(sent)
				_, _ = io.Copy(io.Discard, res.Body)
				check(res.Body.Close())
				mu.Lock()
				delays = append(delays, delay)
				mu.Unlock()
			}
		})
	}
	all.Wait()
	slices.Sort(delays)
	return delays[len(delays)/2], float64((cpu(pid) - before).Microseconds()) / float64(len(delays))
}

// memory returns by how many KiB a proxy grows for each of n streams.
func memory(addr string, pid, n int) float64 {
	client := &http.Client{Transport: &http.Transport{DisableCompression: true}}
	defer client.CloseIdleConnections()
	before := rss(pid)
	var all sync.WaitGroup
	bodies := make([]io.ReadCloser, n)
	for i := range n {
		all.Go(func() {
			q := newRequest("memory", true)
			q.stream, q.leaves, q.length = true, false, -1 // without end
			res, err := client.Do(q.http(addr))
			check(err)
			_, err = bufio.NewReader(res.Body).ReadString('\n')
			check(err)
			bodies[i] = res.Body
		})
		if i%50 == 49 {
			all.Wait()
		}
	}
	all.Wait()
	time.Sleep(time.Second)
	grown := rss(pid) - before
	for _, body := range bodies {
		_ = body.Close()
	}
	time.Sleep(time.Second)
	return grown / float64(n)
}

// unfinished opens n connections that send half of their bodies, and returns the first lines of the answers, and by
// how many MiB the proxy grew at most.
func unfinished(addr string, pid, n int) (answers map[string]int, mib float64) {
	check(os.WriteFile(fmt.Sprintf("/proc/%d/clear_refs", pid), []byte("5"), 0)) // the peak begins anew
	before := rss(pid)
	answers = make(map[string]int)
	var mu sync.Mutex
	var all sync.WaitGroup
	body := make([]byte, 4<<20)
	for range n {
		all.Go(func() {
			conn, err := net.Dial("tcp", addr)
			check(err)
			defer conn.Close()
			check(conn.SetDeadline(time.Now().Add(time.Minute)))
			_, err = fmt.Fprintf(conn, "POST /v1/chat/completions HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer full\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n", 8<<20)
			check(err)
			go conn.Write(body) //nolint:errcheck // it may be closed
			line, err := bufio.NewReader(conn).ReadString('\n')
			if err != nil {
				line = errors.Unwrap(err).Error()
			}
			mu.Lock()
			answers[strings.TrimSpace(line)]++
			mu.Unlock()
		})
	}
	all.Wait()
	return answers, (peak(pid) - before) / 1024
}

func median(of []float64) float64 {
	slices.SortFunc(of, cmp.Compare)
	return of[len(of)/2]
}
