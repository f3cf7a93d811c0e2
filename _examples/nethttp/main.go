// Nethttp limits a whole http.ServeMux, and one of its routes more strictly.
//
//	go run ./_examples/nethttp
//	for i in 1 2 3 4 5 6; do curl -si -X POST http://127.0.0.1:8080/login; done
//	curl -i http://127.0.0.1:8080/
//
// The sixth login answers 429; the rest of the site goes on.
package main

import (
	"flag"
	"io"
	"log"
	"net"
	"net/http"

	"github.com/weirgo/weir"
)

func main() {
	addr := flag.String("addr", "127.0.0.1:8080", "address to listen on")
	flag.Parse()

	login := func(w http.ResponseWriter, r *http.Request) {
		io.WriteString(w, "welcome\n")
	}
	mux := http.NewServeMux()
	mux.HandleFunc("GET /", func(w http.ResponseWriter, r *http.Request) { io.WriteString(w, "hello\n") })

	mux.Handle("POST /login", weir.PerIP(weir.PerMinute(5))(http.HandlerFunc(login)))
	handler := weir.PerIP(weir.PerMinute(100))(mux)

	listener, err := net.Listen("tcp", *addr)
	if err != nil {
		log.Fatal("-addr: ", err)
	}
	log.Printf("listening on http://%s", listener.Addr())
	log.Fatal(http.Serve(listener, handler))
}
