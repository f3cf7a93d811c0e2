// Tiers gives every user the limit of their plan, and shows them how much of it is left.
//
//	go run ./_examples/tiers
//	curl -i -H 'X-Api-Key: carla' http://127.0.0.1:8080/                               # 10,000 an hour
//	for i in $(seq 101); do curl -si -H 'X-Api-Key: finn' http://127.0.0.1:8080/; done # 100 an hour
//	curl -H 'X-Api-Key: finn' http://127.0.0.1:8080/usage                              # costs nothing
package main

import (
	"flag"
	"io"
	"log"
	"net"
	"net/http"

	"github.com/weirgo/weir"
	"github.com/weirgo/weir/keyfunc"
)

type account struct{ id, plan string }

var accounts = map[string]account{"carla": {"42", "premium"}, "finn": {"7", "free"}} // by API key

// authenticate wraps the limiter, and sets the user and the plan.
func authenticate(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		ctx := r.Context()
		if account, ok := accounts[r.Header.Get("X-Api-Key")]; ok {
			ctx = weir.WithTier(ctx, account.plan)
			ctx = weir.WithUser(ctx, account.id)
		}
		next.ServeHTTP(w, r.WithContext(ctx))
	})
}

func main() {
	addr := flag.String("addr", "127.0.0.1:8080", "address to listen on")
	flag.Parse()

	limits := weir.Must(weir.New(weir.Config{
		Rules: []weir.Rule{
			{Name: "plan", Key: keyfunc.First(keyfunc.User, keyfunc.IP()),
				Limit: weir.PerHour(20), // without an account
				Tiers: weir.Tiers{"free": weir.PerHour(100), "premium": weir.PerHour(10_000)}},
		},
	}))
	hello := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { io.WriteString(w, "hello\n") })
	mux := http.NewServeMux()
	mux.Handle("/", limits.Handler(hello))
	mux.Handle("GET /usage", limits.Usage())

	listener, err := net.Listen("tcp", *addr)
	if err != nil {
		log.Fatal("-addr: ", err)
	}
	log.Printf("listening on http://%s", listener.Addr())
	log.Fatal(http.Serve(listener, authenticate(mux)))
}
