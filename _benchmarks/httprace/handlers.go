package main

import (
	"bufio"
	"cmp"
	"fmt"
	"maps"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"

	"github.com/weirgo/weir/benchmarks/peers"
)

// A role is one of the handlers that are compared.
type role int

const (
	limited  role = iota // the contestant
	frame                // the same without the limiter: what it takes is net/http's, or a router's
	constant             // the frame around a handler that writes the response of limited as a constant
	roles
)

// handlers are by role.
type handlers [roles]http.Handler

// The stages of a limit.
const (
	allowed = "allowed" // it is never used up
	refused = "refused" // it is used up
)

// request is what every client sends.
const request = "GET / HTTP/1.1\r\nHost: race.example\r\nUser-Agent: httprace\r\nAccept: */*\r\n\r\n"

// client is the address that requests come from.
const client = "127.0.0.1"

func newRequest() *http.Request {
	r, err := http.ReadRequest(bufio.NewReader(strings.NewReader(request)))
	if err != nil {
		panic(err)
	}
	r.RemoteAddr = client + ":51234"
	return r
}

// status is what a contestant answers in a stage, as far as that is a role's to answer.
func (e contestant) statusOf(r role, stage string) int {
	if r == frame || stage == allowed {
		return http.StatusOK
	}
	return cmp.Or(e.status, http.StatusTooManyRequests)
}

func (e contestant) takesPart(stage string) bool { return e.only == "" || e.only == stage }

// mostUntilRefused is how many requests a limit of one may let pass, as algorithms differ.
const mostUntilRefused = 100

// handlers makes those of e, its limit used up where the stage is refused.
func (e contestant) handlers(stage string) (h handlers, err error) {
	quota := peers.Plenty
	if stage == refused {
		quota = peers.Single
	}
	framed := func(next http.Handler) http.Handler {
		if e.Frame == nil {
			return next
		}
		return e.Frame(next)
	}
	nothing := http.HandlerFunc(func(http.ResponseWriter, *http.Request) {})
	if h[limited], err = e.Wrap(quota, nothing); err != nil {
		return h, err
	}
	want := e.statusOf(limited, stage)
	answer := record(h[limited])
	for i := 0; answer.Code != want && i < mostUntilRefused; i++ {
		answer = record(h[limited])
	}
	if answer.Code != want {
		return h, fmt.Errorf("it answers %d where it should answer %d", answer.Code, want)
	}
	h[frame], h[constant] = framed(nothing), framed(constantOf(answer))
	return h, nil
}

func record(h http.Handler) *httptest.ResponseRecorder {
	w := httptest.NewRecorder()
	h.ServeHTTP(w, newRequest())
	return w
}

// constantOf writes this response again and again, as a plain handler would.
func constantOf(response *httptest.ResponseRecorder) http.Handler {
	type field struct{ name, value string }
	var fields []field
	for _, name := range slices.Sorted(maps.Keys(response.Header())) {
		for _, value := range response.Header()[name] {
			fields = append(fields, field{name, value})
		}
	}
	status, body := response.Code, response.Body.Bytes()
	return http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		for _, f := range fields {
			w.Header().Set(f.name, f.value)
		}
		if status != http.StatusOK {
			w.WriteHeader(status)
		}
		if len(body) > 0 {
			_, _ = w.Write(body)
		}
	})
}
