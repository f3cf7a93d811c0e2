// Rules reads its limits from weir.yaml, which you can edit while it runs. The folder files
// has ten more rules files, each with the output of weir explain.
//
//	go run ./_examples/rules
//	for i in $(seq 11); do curl -i http://127.0.0.1:8080/api/v1/search; done # a burst of 10
//	sed -i.bak 's/burst: 10/burst: 20/' _examples/rules/weir.yaml            # 10 more
//	curl -i -H 'X-Api-Key: finn' http://127.0.0.1:8080/                      # the plan's limit: tier:free
//	curl -i -H 'X-Api-Key: mallory' http://127.0.0.1:8080/                   # 403: in banned.txt
//	for i in $(seq 9); do curl -i -X POST http://127.0.0.1:8080/login; done  # 5 pass; the 9th is banned
package main

import (
	"context"
	"flag"
	"io"
	"log"
	"net"
	"net/http"

	"github.com/go-chi/chi/v5"

	"github.com/weirgo/weir"
	"github.com/weirgo/weir/adapters/chilimit"
	"github.com/weirgo/weir/middleware/rules"
)

type account struct{ id, plan string }

var accounts = map[string]account{"carla": {"42", "premium"}, "finn": {"7", "free"}, "mallory": {"13", "free"}} // by API key

func authenticate(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		account := accounts[r.Header.Get("X-Api-Key")]
		ctx := weir.WithTier(weir.WithUser(r.Context(), account.id), account.plan)
		next.ServeHTTP(w, r.WithContext(ctx))
	})
}

func main() {
	addr := flag.String("addr", "127.0.0.1:8080", "address to listen on")
	file := flag.String("rules", "_examples/rules/weir.yaml", "file of limits")
	flag.Parse()

	limits, err := rules.Watch(context.Background(), *file, rules.Options{Tiers: []string{"free", "premium"}})
	if err != nil {
		log.Fatal(err)
	}
	hello := func(w http.ResponseWriter, r *http.Request) { io.WriteString(w, "hello\n") }
	r := chi.NewRouter()
	r.Use(authenticate, chilimit.New(limits.RateLimit))
	for _, path := range []string{"/", "/healthz", "/api/v1/search", "/api/v1/upload", "/login", "/beta/{feature}"} {
		r.HandleFunc(path, hello)
	}
	listener, err := net.Listen("tcp", *addr)
	if err != nil {
		log.Fatal("-addr: ", err)
	}
	log.Printf("listening on http://%s", listener.Addr())
	log.Fatal(http.Serve(listener, r))
}
