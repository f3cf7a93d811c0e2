// Chi limits a whole chi router, and one of its routes more strictly.
//
//	go run ./_examples/chi
//	for i in 1 2 3; do curl -si http://127.0.0.1:8080/search; done
//	curl -i http://127.0.0.1:8080/
//
// The third search within a second answers 429; the rest of the site goes on.
package main

import (
	"flag"
	"io"
	"log"
	"net"
	"net/http"

	"github.com/go-chi/chi/v5"

	"github.com/weirgo/weir"
)

func main() {
	addr := flag.String("addr", "127.0.0.1:8080", "address to listen on")
	flag.Parse()

	home := func(w http.ResponseWriter, r *http.Request) { io.WriteString(w, "hello\n") }
	search := func(w http.ResponseWriter, r *http.Request) { io.WriteString(w, "found\n") }

	r := chi.NewRouter()
	r.Use(weir.PerIP(weir.PerMinute(100)))
	r.Get("/", home)
	r.With(weir.PerIP(weir.PerSecond(2))).Get("/search", search)

	listener, err := net.Listen("tcp", *addr)
	if err != nil {
		log.Fatal("-addr: ", err)
	}
	log.Printf("listening on http://%s", listener.Addr())
	log.Fatal(http.Serve(listener, r))
}
