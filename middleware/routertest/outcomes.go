package routertest

import (
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"

	"github.com/weirgo/weir/keyfunc"
	"github.com/weirgo/weir/middleware"
)

// outcomes counts each kind of answer once by a rule that counts its status alone, and once by a rule that counts all
// others.
func outcomes(s *suite) {
	send := func(w http.ResponseWriter, statuses ...int) {
		for _, status := range statuses {
			w.WriteHeader(status)
		}
	}
	flush := func(w http.ResponseWriter) { _ = http.NewResponseController(w).Flush() }
	for how, test := range map[string]struct {
		status int // 0: routers differ
		answer func(w http.ResponseWriter)
	}{
		"nothing":      {200, func(http.ResponseWriter) {}},
		"body":         {200, func(w http.ResponseWriter) { _, _ = io.WriteString(w, "200") }},
		"copied":       {200, func(w http.ResponseWriter) { _, _ = io.Copy(w, strings.NewReader("200")) }},
		"flushed":      {200, flush},
		"early status": {0, func(w http.ResponseWriter) { send(w, 102, 103, 401, 418) }},
		"early body": {0, func(w http.ResponseWriter) {
			send(w, 103)
			_, _ = io.WriteString(w, "200")
		}},
		"early and flushed": {0, func(w http.ResponseWriter) {
			send(w, 103)
			flush(w)
			send(w, 401)
		}},
		"early alone": {0, func(w http.ResponseWriter) { send(w, 103) }},
		"panic":       {500, func(http.ResponseWriter) { panic("on purpose") }},
		"abort":       {500, func(http.ResponseWriter) { panic(http.ErrAbortHandler) }},
		"sent and abort": {201, func(w http.ResponseWriter) {
			send(w, 201)
			flush(w)
			panic(http.ErrAbortHandler)
		}},
		"gRPC's trailer": {401, func(w http.ResponseWriter) {
			w.Header().Set("Content-Type", "application/grpc")
			w.Header().Set("Trailer", "Grpc-Status")
			_, _ = io.WriteString(w, "message")
			flush(w)
			w.Header().Set("Grpc-Status", "16")
		}},
		"gRPC without a message": {404, func(w http.ResponseWriter) {
			w.Header().Set("Content-Type", "application/grpc")
			w.Header().Set("Grpc-Status", "5")
			send(w, 200)
		}},
		"hijack": {101, func(w http.ResponseWriter) {
			conn, _, err := http.NewResponseController(w).Hijack()
			if err != nil {
				panic(err)
			}
			_ = conn.Close()
		}},
	} {
		if how == "hijack" && s.protocol != http1 {
			continue
		}
		route := Route{Path: "/", Handler: func(w http.ResponseWriter, _ *http.Request) { test.answer(w) }}
		status := test.status
		if status == 0 {
			status = s.serve(app(nil, route)).ask("POST /").StatusCode
		}
		for left, counts := range map[int64]middleware.Counts{
			9: middleware.Statuses(status), 10: middleware.Not(middleware.Statuses(status)),
		} {
			limit := s.stored(middleware.Rule{Name: "some", Key: keyfunc.Global, Limit: perHour(10), Counts: counts})
			server := s.serve(app([]Limit{limit}, route))
			_, _ = server.try(server.request("POST /")) // fails if the connection ends
			found, err := limit.Rules.Peek(s.Context(), "some", "")
			must(s, err, how)
			equal(s, left, found[0].Remaining, fmt.Sprintf("%s is status %d, and %v counts: remaining", how, status, counts))
		}
	}
}

// concurrentLogins has five wrong logins in progress while others come.
func concurrentLogins(s *suite) {
	refused, release := make(chan bool, 20), make(chan bool)
	once := sync.OnceFunc(func() { close(release) })
	var all sync.WaitGroup
	defer all.Wait()
	defer once()
	server := s.serve(app([]Limit{s.stored(login(5))}, Route{Path: "/login", Handler: func(w http.ResponseWriter, _ *http.Request) {
		<-release
		w.WriteHeader(http.StatusUnauthorized)
	}}))
	for range 20 {
		r := server.request("POST /login")
		all.Go(func() {
			a, err := server.try(r)
			if err != nil || a.StatusCode != 401 && a.StatusCode != 429 {
				s.Errorf("answered %v, with the error %v", a.Response, err)
			}
			if err == nil && a.StatusCode == 429 {
				refused <- true
			}
		})
	}
	for range 15 {
		receive(s, refused, "15 of 20 logins to be refused: five are in progress")
	}
	once()
	all.Wait()
	equal(s, 0, len(refused), "further refusals: five may fail")
	server.wantStatus(429, "five have failed", "POST /login")
}
