package routertest

import (
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"

	"github.com/weirgo/weir/keyfunc"
	"github.com/weirgo/weir/middleware"
)

// act answers by the steps in the field X-Do.
func act(w http.ResponseWriter, r *http.Request) {
	for step := range strings.FieldsSeq(r.Header.Get("X-Do")) {
		switch step {
		case "body":
			_, _ = io.WriteString(w, "200")
		case "copy":
			_, _ = io.Copy(w, strings.NewReader("200"))
		case "flush":
			_ = http.NewResponseController(w).Flush()
		case "panic":
			panic("on purpose")
		case "abort":
			panic(http.ErrAbortHandler)
		case "hijack":
			if conn, _, err := http.NewResponseController(w).Hijack(); err == nil {
				_ = conn.Close()
			}
		default:
			if name, value, isField := strings.Cut(step, ":"); isField {
				w.Header().Set(name, value)
			} else {
				status, _ := strconv.Atoi(step)
				w.WriteHeader(status)
			}
		}
	}
}

// outcomes counts each kind of answer by a rule that counts its status alone, and by a rule that counts all others.
func outcomes(s *suite) {
	for does, status := range map[string]int{ // 0: routers differ
		"": 200, "body": 200, "copy": 200, "flush": 200, "panic": 500, "abort": 500, "201 flush abort": 201, "hijack": 101,
		"102 103 401 418": 0, "103 body": 0, "103 flush 401": 0, "103": 0,
		"Content-Type:application/grpc Trailer:Grpc-Status body flush Grpc-Status:16": 401,
		"Content-Type:application/grpc Grpc-Status:5 200":                             404,
	} {
		if does == "hijack" && s.protocol != http1 {
			continue
		}
		route := Route{Path: "/", Handler: act}
		if status == 0 {
			status = s.serve(app(nil, route)).ask("POST /", "X-Do: "+does).StatusCode
		}
		for left, counts := range map[int64]middleware.Counts{
			9: middleware.Statuses(status), 10: middleware.Not(middleware.Statuses(status)),
		} {
			limit := s.stored(middleware.Rule{Name: "some", Key: keyfunc.Global, Limit: perHour(10), Counts: counts})
			server := s.serve(app([]Limit{limit}, route))
			_, _ = server.try(server.request("POST /", "X-Do: "+does)) // fails if the connection ends
			found, err := limit.Rules.Peek(s.Context(), "some", "")
			must(s, err, does)
			equal(s, left, found[0].Remaining, fmt.Sprintf("%q is status %d, and %v counts: remaining", does, status, counts))
		}
	}
}
