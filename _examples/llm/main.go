// LLM gives each API key a budget of tokens at a model, which holds for requests at the same time: the most that a
// request can cost is reserved when it comes, and what the model's answer says is charged when it ends.
//
//	go run ./_examples/llm
//	curl -i -H 'Authorization: Bearer finn' http://127.0.0.1:8080/v1/chat/completions \
//		-d '{"model": "fake", "max_tokens": 50, "messages": [{"role": "user", "content": "Hi"}], "stream": true}'
//	curl -H 'Authorization: Bearer finn' http://127.0.0.1:8080/usage   # what it has cost
//
// A made-up provider answers, also at http://127.0.0.1:3000.
package main

import (
	"bytes"
	"context"
	"encoding/json"
	"flag"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httputil"
	"net/url"

	"github.com/weirgo/weir"
	"github.com/weirgo/weir/keyfunc"
	"github.com/weirgo/weir/middleware/tokens"
)

const mostBody = 8 << 20

var weights = tokens.Weights{Input: 1, Cached: 0.1, Written: 1.25, Output: 4}

// reservation returns the most that a request may cost.
func reservation(r *http.Request) int64 {
	var request struct {
		Max    int64 `json:"max_completion_tokens"`
		OldMax int64 `json:"max_tokens"`
	}
	body, err := keyfunc.Body(r, mostBody)
	if err != nil || json.Unmarshal(body, &request) != nil {
		return 0 // the provider answers 400
	}
	output := max(request.Max, request.OldMax)
	if output <= 0 {
		output = 1_000
	}
	return weights.Units(tokens.Usage{Input: int64(len(body)+3) / 4, Output: min(output, 100_000)})
}

// A call is what is known of a request to the provider before its answer.
type call struct {
	reserved int64
	asked    bool // for a usage that the client did not ask for
}

type callKey struct{}

func complete(proxy http.Handler) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		body, err := keyfunc.Body(r, mostBody)
		if err != nil {
			http.Error(w, "the body is too large, or incomplete", http.StatusRequestEntityTooLarge)
			return
		}
		c := call{reserved: reservation(r)}
		body, c.asked = tokens.Ask(body)
		r = r.WithContext(context.WithValue(r.Context(), callKey{}, c))
		r.Body, r.ContentLength = io.NopCloser(bytes.NewReader(body)), int64(len(body))
		proxy.ServeHTTP(w, r)
	}
}

// settle charges what the answer used.
func settle(res *http.Response) error {
	ctx := res.Request.Context()
	c := ctx.Value(callKey{}).(call)
	tokens.Watch(res, tokens.Options{Asked: c.asked}, func(report tokens.Report) {
		if err := weir.Settle(ctx, "tokens", report.Units(weights, c.reserved)); err != nil {
			log.Print(err)
		}
	})
	return nil
}

func main() {
	addr := flag.String("addr", "127.0.0.1:8080", "address to listen on")
	providerAddr := flag.String("provider", "127.0.0.1:3000", "address of the provider")
	flag.Parse()

	provider, err := net.Listen("tcp", *providerAddr)
	if err != nil {
		log.Fatal("-provider: ", err)
	}
	go func() { log.Fatal(http.Serve(provider, http.HandlerFunc(answer))) }()

	proxy := &httputil.ReverseProxy{
		Rewrite: func(r *httputil.ProxyRequest) {
			r.SetURL(&url.URL{Scheme: "http", Host: provider.Addr().String()})
			r.Out.Header.Set("Accept-Encoding", "identity") // or the usage could not be read
		},
		ModifyResponse: settle,
	}
	limits := weir.Must(weir.New(weir.Config{Rules: []weir.Rule{
		{Name: "calls", Match: weir.Route("POST /v1/chat/completions"), Key: keyfunc.Bearer, Limit: weir.PerMinute(60)},
		{Name: "tokens", Match: weir.Route("POST /v1/chat/completions"), Key: keyfunc.Bearer,
			Limit: weir.PerMinute(100_000), Cost: weir.Reserve(reservation)},
	}}))
	mux := http.NewServeMux()
	mux.Handle("POST /v1/chat/completions", complete(proxy))
	mux.Handle("GET /usage", limits.Usage())

	listener, err := net.Listen("tcp", *addr)
	if err != nil {
		log.Fatal("-addr: ", err)
	}
	log.Printf("listening on http://%s", listener.Addr())
	log.Fatal(http.Serve(listener, limits.Handler(mux)))
}
