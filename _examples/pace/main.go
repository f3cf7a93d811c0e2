// Pace runs three workers that call a server with a limit of five requests a second for each
// account. A page shows how long each worker waits, and that the server refuses none.
//
//	go run ./_examples/pace
//	# then look at http://127.0.0.1:8080/
//	for i in $(seq 9); do curl -si http://127.0.0.1:8080/api; done # 429: curl does not wait
package main

import (
	"flag"
	"fmt"
	"io"
	"log"
	"math/rand/v2"
	"net"
	"net/http"
	"sync"
	"time"

	"github.com/weirgo/weir"
	"github.com/weirgo/weir/keyfunc"
	"github.com/weirgo/weir/limiter"
	"github.com/weirgo/weir/pace"
)

// server returns the third party's handler.
func server() http.Handler {
	limits := weir.Must(weir.New(weir.Config{Rules: []weir.Rule{{
		Name: "account", Key: keyfunc.First(keyfunc.APIKey("Authorization"), keyfunc.IP()), Limit: weir.PerSecond(5).With(weir.TokenBucket),
	}}}))
	return limits.Handler(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { io.WriteString(w, "done\n") }))
}

// A worker calls the server. Workers share a store, here in memory. With a redisstore they could
// run on several machines.
type worker struct {
	name      string
	transport *pace.Transport

	mu            sync.Mutex
	sent, refused int
	last, longest time.Duration
}

func newWorker(name, host string, store limiter.Store) *worker {
	w := &worker{name: name}
	w.transport = pace.Must(pace.NewTransport(http.DefaultTransport, pace.Options{
		Store:    store,
		Rules:    []pace.Rule{{Host: host, Key: pace.Token, Limit: weir.PerSecond(5)}},
		Retry:    pace.Retry{Attempts: 3},
		Observer: w,
	}))
	return w
}

// ObserveAttempt counts each request and its wait.
func (w *worker) ObserveAttempt(o *pace.Observation) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if o.Outcome == pace.OutcomeRefused {
		w.refused++
	}
	w.sent++
	w.last, w.longest = o.Waited, max(w.longest, o.Waited)
}

// work sends one request after another, as if there were no limit.
func (w *worker) work(url string) {
	client := &http.Client{Transport: w.transport}
	for ; ; time.Sleep(rand.N(200 * time.Millisecond)) {
		r, err := http.NewRequest(http.MethodGet, url, nil)
		if err != nil {
			log.Fatal(err)
		}
		r.Header.Set("Authorization", "Bearer s3cret")
		response, err := client.Do(r)
		if err != nil {
			log.Print(err)
			continue
		}
		response.Body.Close()
	}
}

// screen returns a handler that shows the workers.
func screen(workers []*worker) http.HandlerFunc {
	return func(to http.ResponseWriter, r *http.Request) {
		to.Header().Set("Refresh", "1")
		fmt.Fprintf(to, "%-8s %8s %8s %8s %14s %14s\n", "worker", "sent", "refused", "waiting", "waited last", "at most")
		for _, w := range workers {
			waiting := w.transport.Stats()[0].Waiting
			w.mu.Lock()
			fmt.Fprintf(to, "%-8s %8d %8d %8d %14v %14v\n", w.name, w.sent, w.refused, waiting,
				w.last.Round(time.Millisecond), w.longest.Round(time.Millisecond))
			w.mu.Unlock()
		}
	}
}

func main() {
	addr := flag.String("addr", "127.0.0.1:8080", "address to listen on")
	flag.Parse()
	listener, err := net.Listen("tcp", *addr)
	if err != nil {
		log.Fatal("-addr: ", err)
	}
	host := listener.Addr().String()
	store := limiter.Must(limiter.NewMemory(limiter.MemoryOptions{}))
	var workers []*worker
	for _, name := range []string{"mail", "invoice", "report"} {
		w := newWorker(name, host, store)
		workers = append(workers, w)
		go w.work("http://" + host + "/api")
	}
	mux := http.NewServeMux()
	mux.Handle("GET /api", server())
	mux.Handle("GET /{$}", screen(workers))
	log.Printf("listening on http://%s", host)
	log.Fatal(http.Serve(listener, mux))
}
