// Concurrency bounds how many exports of one client run at once. A rate would not help: each
// export takes a while. Two more wait in a queue.
//
//	go run ./_examples/concurrency
//	for i in $(seq 6); do curl -si -X POST http://127.0.0.1:8080/exports & done; wait # 4 times 200, 2 times 429
//	for i in $(seq 11); do curl -si http://127.0.0.1:8080/; done # 429: the limit on the rate
package main

import (
	"flag"
	"io"
	"log"
	"net"
	"net/http"
	"time"

	"github.com/weirgo/weir"
	"github.com/weirgo/weir/keyfunc"
)

func main() {
	addr := flag.String("addr", "127.0.0.1:8080", "address to listen on")
	takes := flag.Duration("takes", 2*time.Second, "how long an export takes")
	flag.Parse()

	limits := weir.Must(weir.New(weir.Config{Rules: []weir.Rule{
		{Name: "home", Key: keyfunc.IP(), Limit: weir.PerMinute(10), Match: weir.Route("GET /{$}")},
		{Name: "exports", Key: keyfunc.IP(), Match: weir.Route("POST /exports"),
			Limit: weir.AtOnce(2).Queue(2, 10*time.Second)},
	}}))
	mux := http.NewServeMux()
	mux.HandleFunc("GET /{$}", func(w http.ResponseWriter, r *http.Request) { io.WriteString(w, "hello\n") })
	mux.HandleFunc("GET /healthz", func(http.ResponseWriter, *http.Request) {})
	mux.HandleFunc("POST /exports", func(w http.ResponseWriter, r *http.Request) {
		time.Sleep(*takes) // the work goes on even if the client has left
		io.WriteString(w, "exported\n")
	})

	listener, err := net.Listen("tcp", *addr)
	if err != nil {
		log.Fatal("-addr: ", err)
	}
	log.Printf("listening on http://%s", listener.Addr())
	log.Fatal(http.Serve(listener, limits.Handler(mux)))
}
