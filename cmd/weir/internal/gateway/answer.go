package gateway

import (
	"maps"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/weirgo/weir/cmd/weir/internal/serving"
	"github.com/weirgo/weir/internal/response"
)

// answered keeps the limiter's header fields in the final response. Otherwise an upstream with limits of its own
// would add to them, and ReverseProxy would drop them after a response such as 103. It also bounds how long the
// client of a request that holds a slot may block a read or a write.
func (g *Gateway) answered(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		r, ok := g.billed(w, r)
		if !ok {
			return
		}
		a := &answer{ResponseWriter: w, informs: r.ProtoAtLeast(1, 1), own: maps.Clone(w.Header()), hidden: billOf(r.Context()).fields()}
		if response.HoldsSlot(r.Context()) && !g.isGRPC(r) {
			serving.BoundBody(r.Context(), g.options.ClientTimeout)
			a.bound(r, g.options.ClientTimeout)
			defer a.patience.End()
		}
		next.ServeHTTP(a, r)
	})
}

// isGRPC reports whether the request may be a call of gRPC, whose streams pause for as long as they like. With an
// upstream that speaks only HTTP/1 it cannot be one, whatever the client says.
func (g *Gateway) isGRPC(r *http.Request) bool {
	return r.ProtoMajor == 2 && (g.h2c || g.upstream.Scheme == "https") && strings.HasPrefix(r.Header.Get("Content-Type"), "application/grpc")
}

// An answer writes an upstream's response with the limiter's fields.
type answer struct {
	http.ResponseWriter
	patience serving.Patience // of writes
	informs  bool             // the client knows responses such as 103, which came with HTTP/1.1
	lost     bool             // such a response has dropped the fields
	own      http.Header      // the limiter's fields
	hidden   []string         // fields of the upstream that clients do not see
}

// lists are fields of the limiter whose values add up with the upstream's.
var lists = []string{"Ratelimit", "Ratelimit-Policy", "Connection"}

// stuckPatience is how long a stream of HTTP/2 has to end after its write has taken too long. If the client reads
// nothing of the whole connection, the reset of the stream cannot be sent.
const stuckPatience = time.Second

// bound bounds how long each write may block.
func (a *answer) bound(r *http.Request, most time.Duration) {
	ctx := r.Context()
	a.patience = serving.Patience{Most: most, Over: func() {
		_ = http.NewResponseController(a.ResponseWriter).SetWriteDeadline(serving.Past)
		if conn := serving.Conn(ctx); r.ProtoMajor == 2 && conn != nil {
			time.AfterFunc(stuckPatience, func() {
				if ctx.Err() == nil {
					_ = conn.Close()
				}
			})
		}
	}}
}

// Unwrap implements the method that http.ResponseController looks for.
func (a *answer) Unwrap() http.ResponseWriter { return a.ResponseWriter }

func (a *answer) WriteHeader(status int) {
	for _, name := range a.hidden { // of a response such as 103
		delete(a.Header(), name)
	}
	switch {
	case status >= http.StatusOK, status == http.StatusSwitchingProtocols:
		header := a.Header()
		for name, own := range a.own {
			switch there := header[name]; {
			case slices.Equal(there, own):
			case !slices.Contains(lists, name):
				header[name] = own
			case a.lost:
				header[name] = slices.Concat(own, there)
			}
		}
	default:
		a.lost = true
		if !a.informs || status == http.StatusContinue { // net/http sends a 100 itself, when the body is read
			return
		}
	}
	a.patience.Begin()
	defer a.patience.End()
	a.ResponseWriter.WriteHeader(status)
}

// mostPiece is the most that one write may wait for. The patience begins anew for each piece.
const mostPiece = 8 << 10

func (a *answer) Write(p []byte) (n int, err error) {
	if a.patience.Most == 0 {
		return a.ResponseWriter.Write(p)
	}
	for more := 0; err == nil && n < len(p); n += more {
		a.patience.Begin()
		more, err = a.ResponseWriter.Write(p[n:min(len(p), n+mostPiece)])
		a.patience.End()
	}
	return n, err
}

// FlushError is called by http.ResponseController.
func (a *answer) FlushError() error {
	a.patience.Begin()
	defer a.patience.End()
	return http.NewResponseController(a.ResponseWriter).Flush()
}
