// Costs limits by what is known only after a request: its real cost, and its status.
//
//	go run ./_examples/costs
//	curl -i -d 'a prompt' 'http://127.0.0.1:8080/complete?max_tokens=500'                        # 500 are reserved
//	for i in $(seq 6); do curl -si -d password=correct-horse http://127.0.0.1:8080/login; done   # right ones without end
//	for i in $(seq 6); do curl -si -d password=wrong http://127.0.0.1:8080/login; done           # five wrong ones a minute
package main

import (
	"flag"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"strconv"

	"github.com/weirgo/weir"
	"github.com/weirgo/weir/keyfunc"
)

// maxTokens returns the most that a request may cost: max_tokens, or else 100.
func maxTokens(r *http.Request) int64 {
	n, err := strconv.ParseInt(r.URL.Query().Get("max_tokens"), 10, 64)
	if err != nil {
		return 100
	}
	return n
}

func complete(w http.ResponseWriter, r *http.Request) {
	prompt, _ := io.ReadAll(io.LimitReader(r.Body, 1<<20))
	used := int64(len(prompt)) // a model would report its tokens
	if err := weir.Settle(r.Context(), "tokens", used); err != nil {
		log.Print(err)
	}
	fmt.Fprintf(w, "%d tokens\n", used)
}

func login(w http.ResponseWriter, r *http.Request) {
	if r.FormValue("password") != "correct-horse" {
		http.Error(w, "wrong", http.StatusUnauthorized)
	}
}

func main() {
	addr := flag.String("addr", "127.0.0.1:8080", "address to listen on")
	flag.Parse()

	limits := weir.Must(weir.New(weir.Config{Rules: []weir.Rule{
		{Name: "tokens", Match: weir.Route("POST /complete"), Key: keyfunc.IP(), Limit: weir.PerMinute(1_000),
			Cost: weir.Reserve(maxTokens)}, // reserved when the request comes
		{Name: "login", Match: weir.Route("POST /login"), Key: keyfunc.IP(), Limit: weir.PerMinute(5),
			Counts: weir.Statuses(401, 403)}, // any other answer is refunded
	}}))
	mux := http.NewServeMux()
	mux.HandleFunc("POST /complete", complete)
	mux.HandleFunc("POST /login", login)

	listener, err := net.Listen("tcp", *addr)
	if err != nil {
		log.Fatal("-addr: ", err)
	}
	log.Printf("listening on http://%s", listener.Addr())
	log.Fatal(http.Serve(listener, limits.Handler(mux)))
}
