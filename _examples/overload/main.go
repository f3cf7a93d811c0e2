// Overload keeps a service useful when it gets more requests than it can answer. Paying
// customers come first. A breaker protects the database that the service depends on.
//
//	go run ./_examples/overload
//	curl -i http://127.0.0.1:8080/report
//	for i in $(seq 11); do curl -si http://127.0.0.1:8080/; done # 429: this client's limit
package main

import (
	"errors"
	"flag"
	"io"
	"log"
	"math/rand/v2"
	"net"
	"net/http"
	"sync"
	"time"

	"github.com/weirgo/weir"
	"github.com/weirgo/weir/keyfunc"
	"github.com/weirgo/weir/middleware/shed"
)

// warehouse is a database that answers every second query with an error.
func warehouse() (string, error) {
	time.Sleep(10 * time.Millisecond)
	if rand.IntN(2) == 0 {
		return "", errors.New("warehouse: out of connections")
	}
	return "report\n", nil
}

// A breaker blocks calls for ten seconds after five failures in a row.
type breaker struct {
	mu     sync.Mutex
	failed int
	until  time.Time
}

var errOpen = errors.New("the breaker is open")

func (b *breaker) Execute(f func() (string, error)) (string, error) {
	b.mu.Lock()
	isOpen := time.Now().Before(b.until)
	b.mu.Unlock()
	if isOpen {
		return "", errOpen
	}
	text, err := f()
	b.mu.Lock()
	defer b.mu.Unlock()
	if err == nil {
		b.failed = 0
	} else if b.failed++; b.failed >= 5 {
		b.until = time.Now().Add(10 * time.Second)
	}
	return text, err
}

// report queries the warehouse. After five failed queries in a row, report answers at once for
// ten seconds, without a query.
func report() http.Handler {
	breaker := &breaker{}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		text, err := breaker.Execute(warehouse)
		if err != nil {
			w.Header().Set("Retry-After", "10") // the service's fault, so 503: 429 is the client's
			http.Error(w, "The report is not available.", http.StatusServiceUnavailable)
			return
		}
		io.WriteString(w, text)
	})
}

func main() {
	addr := flag.String("addr", "127.0.0.1:8080", "address to listen on")
	flag.Parse()

	limits := weir.Must(weir.New(weir.Config{
		Rules:    []weir.Rule{{Name: "client", Key: keyfunc.IP(), Limit: weir.PerMinute(10), Match: weir.Route("GET /{$}")}},
		Overload: shed.Must(shed.New(shed.Options{Priority: []string{"premium", "free"}})),
	}))
	mux := http.NewServeMux()
	mux.HandleFunc("GET /{$}", func(w http.ResponseWriter, r *http.Request) { io.WriteString(w, "hello\n") })
	mux.HandleFunc("GET /healthz", func(http.ResponseWriter, *http.Request) {})
	mux.Handle("GET /report", report())

	listener, err := net.Listen("tcp", *addr)
	if err != nil {
		log.Fatal("-addr: ", err)
	}
	log.Printf("listening on http://%s", listener.Addr())
	log.Fatal(http.Serve(listener, limits.Handler(mux)))
}
