package routertest

import (
	"errors"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/weirgo/weir/keyfunc"
	"github.com/weirgo/weir/limiter"
	"github.com/weirgo/weir/middleware"
)

// login is a rule for failed logins.
func login(events int64) middleware.Rule {
	return middleware.Rule{
		Name: "login", Key: keyfunc.Global, Limit: perHour(events), Counts: middleware.Statuses(401, 403),
	}
}

// rules is rules on the router's Store.
func (s *suite) rules(rule middleware.Rule) Limit {
	c := middleware.Config{Rules: []middleware.Rule{rule}}
	if s.router.Store != nil {
		c.Store = s.router.Store(s.T)
	}
	return limits(c)
}

// answerAsAsked answers with the status that the request asks for.
func answerAsAsked(w http.ResponseWriter, r *http.Request) {
	status, _ := strconv.Atoi(r.Header.Get("X-Status"))
	w.WriteHeader(status)
}

// serveToTheEnd serves app. Ended waits for the end of a request, which may come after its answer.
func (s *suite) serveToTheEnd(app App) (_ *server, ended func()) {
	ends := make(chan struct{}, 1000)
	handler := s.build(app)
	server := s.serveHandler(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		defer func() { ends <- struct{}{} }()
		handler.ServeHTTP(w, r)
	}))
	return server, func() { s.Helper(); receive(s, ends, "the end of a request") }
}

func failedLogins(s *suite) {
	for i := range 4 {
		rule := login(5)
		if i%2 == 1 {
			rule.Counts = rule.Counts.Afterwards()
		}
		if i >= 2 { // whatever counts, slots are released
			rule.Limit = limiter.All(rule.Limit, limiter.AtOnce(2))
		}
		server, ended := s.serveToTheEnd(app([]Limit{s.rules(rule)}, Route{Path: "/login", Handler: answerAsAsked}))
		ask := func(want int, why string, status int) {
			s.Helper()
			server.wantStatus(want, why, "POST /login", fmt.Sprint("X-Status: ", status))
			ended()
		}
		for i := range 5 {
			for range 7 {
				ask(200, "right ones do not count", 200)
			}
			wrong := 401 + 2*(i%2)
			ask(wrong, "five wrong ones pass", wrong)
		}
		ask(429, "five wrong ones are all", 200)
		ask(429, "whatever its answer would be", 401)
	}
}

func distinctValues(s *suite) {
	rule := login(2)
	rule.Key, rule.Distinct = keyfunc.IP(), keyfunc.Header("X-User")
	server, ended := s.serveToTheEnd(app([]Limit{s.rules(rule)}, Route{Path: "/login", Handler: answerAsAsked}))
	for i, test := range []struct {
		user         string
		answer, want int
	}{
		{"ann", 200, 200}, {"ann", 401, 401}, {"ann", 401, 401}, {"bob", 200, 200}, {"bob", 403, 403},
		{"eve", 401, 429}, {"ann", 401, 401}, {"bob", 200, 200}, {"eve", 200, 429},
	} {
		server.wantStatus(test.want, fmt.Sprint("request ", i, " of ", test.user),
			"POST /login", fmt.Sprint("X-Status: ", test.answer), "X-User: "+test.user)
		ended()
	}
}

// inParallel sends n logins at once, all in progress together, and returns how many passed.
func (s *suite) inParallel(rule middleware.Rule, n, status int) (passed int) {
	var decided, passes atomic.Int32
	allDecided := make(chan struct{})
	decide := func() {
		if decided.Add(1) == int32(n) {
			close(allDecided)
		}
	}
	handler := func(w http.ResponseWriter, r *http.Request) {
		passes.Add(1)
		decide()
		<-allDecided
		answerAsAsked(w, r)
	}
	server := s.serve(app([]Limit{s.rules(rule)}, Route{Path: "/login", Handler: handler}))
	var all sync.WaitGroup
	for range n {
		r := server.request(s.Context(), "POST /login", fmt.Sprint("X-Status: ", status))
		all.Go(func() {
			a, err := server.try(r)
			if err != nil || a.StatusCode != status {
				decide()
			}
			if err != nil || a.StatusCode != status && a.StatusCode != 429 {
				s.Errorf("answered %v, with the error %v", a.Response, err)
			}
		})
	}
	all.Wait()
	return int(passes.Load())
}

func concurrentLogins(s *suite) {
	rule := login(5)
	equal(s, 5, s.inParallel(rule, 40, 401), "wrong ones that pass")
	equal(s, 5, s.inParallel(rule, 40, 200), "right ones pass; five can be in progress")
	rule.Counts = rule.Counts.Afterwards()
	equal(s, 40, s.inParallel(rule, 40, 200), "right ones that pass if they are charged afterwards")
}

func outcomes(s *suite) {
	send := func(w http.ResponseWriter, statuses ...int) {
		for _, status := range statuses {
			w.WriteHeader(status)
		}
	}
	flush := func(w http.ResponseWriter) { _ = http.NewResponseController(w).Flush() }
	const unknown = -1 // counts, whatever counts
	rpc := func(media, body, field, code string) func(http.ResponseWriter) {
		return func(w http.ResponseWriter) {
			w.Header().Set("Content-Type", media)
			w.Header().Set("Trailer", "Grpc-Status")
			_, _ = io.WriteString(w, body)
			flush(w)
			if code != "" {
				w.Header().Set(field, code)
			}
		}
	}
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
		"gRPC, a trailer":           {401, rpc("application/grpc", "message", "Grpc-Status", "16")},
		"gRPC, a trailer unsaid":    {403, rpc("application/grpc+proto", "message", http.TrailerPrefix+"Grpc-Status", "7")},
		"gRPC, in another spelling": {429, rpc("Application/gRPC; x=y", "message", http.TrailerPrefix+"grpc-status", "8")},
		"gRPC, a success":           {200, rpc("application/grpc", "message", "Grpc-Status", "0")},
		"gRPC, no message": {404, func(w http.ResponseWriter) {
			w.Header().Set("Content-Type", "application/grpc-web+proto")
			w.Header().Set("Grpc-Status", "5")
			w.WriteHeader(200)
		}},
		"gRPC, broken off":           {unknown, rpc("application/grpc", "message", "", "")},
		"gRPC, no code":              {unknown, rpc("application/grpc", "message", "Grpc-Status", "x")},
		"gRPC-Web, in the body":      {unknown, rpc("application/grpc-web", "\x80\x00\x00\x00\x0egrpc-status:16", "", "")},
		"a stream of Connect":        {unknown, rpc("application/connect+json", "a message", "", "")},
		"no gRPC, whatever it says":  {200, rpc("text/plain", "message", "Grpc-Status", "16")},
		"an error that comes as one": {502, func(w http.ResponseWriter) { w.Header().Set("Content-Type", "application/grpc"); send(w, 502) }},
		"hijack": {101, func(w http.ResponseWriter) {
			conn, _, err := http.NewResponseController(w).Hijack()
			if err != nil {
				panic(err)
			}
			_ = conn.Close()
		}},
	} {
		if how == "hijack" && s.protocol != "HTTP/1.1" {
			continue
		}
		route := Route{Path: "/", Handler: func(w http.ResponseWriter, _ *http.Request) { test.answer(w) }}
		status := test.status
		if status == 0 {
			status = s.serve(app(nil, route)).ask("POST /").StatusCode
		}
		for left, counts := range map[int64]middleware.Counts{
			9: middleware.Statuses(max(status, 100)), 10: middleware.Not(middleware.Statuses(max(status, 100))),
		} {
			if status == unknown {
				left = 9
			}
			limit := s.rules(middleware.Rule{Name: "some", Key: keyfunc.Global, Limit: perHour(10), Counts: counts})
			server, ended := s.serveToTheEnd(app([]Limit{limit}, route))
			_, _ = server.try(server.request(s.Context(), "POST /")) // fails if the connection ends
			ended()
			found, err := limit.Rules.Peek(s.Context(), "some", "")
			must(s, err, how)
			why := fmt.Sprintf("%s is status %d, and %v counts: remaining", how, status, counts)
			equal(s, left, found[0].Remaining, why)
		}
	}
}

func errorsAreAnswered(s *suite) {
	if !s.router.ReturnsErrors {
		s.Skip("its handlers return no errors")
	}
	failing := get("/", func(http.ResponseWriter, *http.Request) {})
	failing.Err = errors.New("a wrong password")
	with := app([]Limit{s.rules(login(2))}, failing)
	with.OnError = func(w http.ResponseWriter, err error) {
		if errors.Is(err, failing.Err) {
			w.WriteHeader(http.StatusUnauthorized)
		}
	}
	server := s.serve(with)
	for range 2 {
		server.wantStatus(401, "the router's error handling answers", "GET /")
	}
	server.wantStatus(429, "its status counts", "GET /")
}

// heldBack has clients cause a 5xx, which does not count, by sending only a part of a body.
func heldBack(s *suite) {
	for how, left := range map[string]int64{"whole": 10, "not asked for": 10, "in part": 9, "broken off": 9} {
		rule := middleware.Rule{
			Name: "some", Key: keyfunc.Global, Limit: perHour(10), Counts: middleware.Not(middleware.StatusClass(5)),
		}
		limit, began := s.rules(rule), make(chan bool, 1)
		handler := func(w http.ResponseWriter, r *http.Request) {
			began <- true
			switch how {
			case "whole", "in part":
				_, _ = io.ReadFull(r.Body, make([]byte, 4))
			case "broken off":
				_, _ = io.ReadAll(r.Body)
			}
			w.WriteHeader(http.StatusServiceUnavailable)
		}
		server, ended := s.serveToTheEnd(app([]Limit{limit}, Route{Method: "POST", Path: "/", Handler: handler}))
		body, send := io.Pipe()
		r := server.request(s.Context(), "POST /")
		r.Body, r.ContentLength = body, 8
		if how == "whole" {
			r.ContentLength = 4 // so the handler need not read on to reach the end
		}
		answered := make(chan struct{})
		go func() {
			defer close(answered)
			_, _ = server.try(r) // fails if the client does
		}()
		go func() {
			_, _ = send.Write([]byte("four"))
			switch how {
			case "whole":
				_ = send.Close()
			case "broken off":
				<-began
				_ = send.CloseWithError(errors.New("the client's program ends"))
			}
		}()
		ended()
		_ = send.Close() // HTTP/1 answers when it has read what is left
		<-answered
		found, err := limit.Rules.Peek(s.Context(), "some", "")
		must(s, err, how)
		equal(s, left, found[0].Remaining, how+": remaining")
	}
}

// unseenReservations has limiters refuse requests for which one further out has reserved units.
func unseenReservations(s *suite) {
	for how, refuses := range map[string]middleware.Rule{
		"limit":       {Limit: perHour(1)},
		"cost":        {Limit: perHour(3), Cost: middleware.Units(2)},
		"a slot":      {Limit: limiter.All(perHour(1), limiter.AtOnce(1))},
		"deny":        {Mode: middleware.Deny},
		"no key":      {Key: keyfunc.APIKey("X-Api-Key"), Limit: perHour(9), NoKey: middleware.NoKeyUnauthorized},
		"reservation": {Limit: perHour(3), Cost: middleware.Reserve(func(*http.Request) int64 { return 3 })},
	} {
		outer := s.rules(middleware.Rule{
			Name: "tokens", Key: keyfunc.Global, Limit: perHour(100), Cost: middleware.Reserve(func(*http.Request) int64 { return 30 }),
		})
		refuses.Name = "narrow"
		if refuses.Key == nil {
			refuses.Key = keyfunc.Global
		}
		between := s.rules(middleware.Rule{Name: "between", Key: keyfunc.Global, Limit: perHour(100), Counts: middleware.Statuses(200)})
		handled := int64(0)
		route := Route{Path: "/", Limits: []Limit{s.rules(refuses)}, Handler: func(_ http.ResponseWriter, r *http.Request) {
			handled++
			if err := middleware.Settle(r.Context(), "tokens", 10); err != nil {
				s.Error(err)
			}
		}}
		server, ended := s.serveToTheEnd(app([]Limit{outer, between}, route))
		for _, accept := range []string{"application/json", "text/plain", "application/problem+json"} {
			server.ask("GET /", "Accept: "+accept)
			ended()
		}
		server.ask("POST /", "Content-Type: application/grpc")
		ended()
		found, err := outer.Rules.Peek(s.Context(), "tokens", "")
		must(s, err, how)
		equal(s, 100-10*handled, found[0].Remaining, how+": remaining")
	}
}
