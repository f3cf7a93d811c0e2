// Quickstart gives every client address 5 requests in 10 seconds.
//
//	go run ./_examples/quickstart
//	for i in 1 2 3 4 5 6 7; do curl -si http://127.0.0.1:8080/; done
//
// The first five answer 200, the others 429 and when to try again.
package main

import (
	"flag"
	"io"
	"log"
	"net"
	"net/http"
	"time"

	"github.com/weirgo/weir"
)

func main() {
	addr := flag.String("addr", "127.0.0.1:8080", "address to listen on")
	flag.Parse()

	hello := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		io.WriteString(w, "hello\n")
	})

	handler := weir.PerIP(weir.Limit{Events: 5, Per: 10 * time.Second})(hello)

	listener, err := net.Listen("tcp", *addr)
	if err != nil {
		log.Fatal("-addr: ", err)
	}
	log.Printf("listening on http://%s", listener.Addr())
	log.Fatal(http.Serve(listener, handler))
}
