package lab

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/weirgo/weir"
	"github.com/weirgo/weir/keyfunc"
	"github.com/weirgo/weir/limiter"
)

// patience is how long a client may take. A client that has not come back by then waits out an hour.
const patience = 12 * time.Second

// A situation is what a client meets: a limit whose unit somebody else has just used, or a server
// that cannot count. Later, the same request is served.
type situation struct {
	column string
	method string
	body   int  // bytes of the request
	hour   bool // the wait is an hour, not three seconds
	outage bool // 503
}

var situations = []situation{
	{column: "GET, 3 s", method: http.MethodGet},
	{column: "POST, 3 s", method: http.MethodPost, body: 2},
	{column: "an hour", method: http.MethodGet, hour: true},
	{column: "503, 1 s", method: http.MethodGet, outage: true},
	{column: "POST of 2 MB, 3 s", method: http.MethodPost, body: 2 << 20},
}

// A server refuses the first request, and records its answers.
type server struct {
	*httptest.Server
	mu       sync.Mutex
	statuses []int
}

// An outage is a store that cannot decide until shortly after the first request. The refusal asks for a second.
type outage struct {
	limiter.Store
	once sync.Once
	ends time.Time
}

func (o *outage) Decide(ctx context.Context, charges []limiter.Charge) error {
	o.once.Do(func() { o.ends = time.Now().Add(900 * time.Millisecond) })
	if time.Now().Before(o.ends) {
		return errors.New("the lab's outage")
	}
	return o.Store.Decide(ctx, charges)
}

// A recorder tells its server of a status before the client reads it.
type recorder struct {
	http.ResponseWriter
	server *server
}

func (w recorder) WriteHeader(status int) {
	w.server.mu.Lock()
	w.server.statuses = append(w.server.statuses, status)
	w.server.mu.Unlock()
	w.ResponseWriter.WriteHeader(status)
}

func (w recorder) Unwrap() http.ResponseWriter { return w.ResponseWriter }

func serve(t *testing.T, s situation) *server {
	limit := weir.Limit{Events: 1, Per: 3 * time.Second, Algorithm: limiter.TokenBucket}
	if s.hour {
		limit.Per = time.Hour
	}
	config := weir.Config{
		Rules:  []weir.Rule{{Name: "lab", Key: keyfunc.Global, Limit: limit}},
		Logger: slog.New(slog.DiscardHandler),
	}
	if s.outage {
		config.Rules[0].OnOutage = weir.FailClosed
		config.Store = &outage{Store: limiter.Must(limiter.NewMemory(limiter.MemoryOptions{}))}
	}
	limits, err := weir.New(config)
	if err != nil {
		t.Fatal(err)
	}
	served := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(http.StatusOK)
		_, _ = io.WriteString(w, answer)
	})
	limited := limits.Handler(served)
	if !s.outage {
		limited.ServeHTTP(httptest.NewRecorder(), httptest.NewRequest(http.MethodGet, "/", nil))
	}
	log := &server{}
	log.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		limited.ServeHTTP(recorder{w, log}, r)
	}))
	t.Cleanup(func() { log.CloseClientConnections(); log.Close() })
	return log
}

// answer is what the served request gets. OpenAI's, Anthropic's and Stripe's clients can read it.
const answer = `{"id":"1","object":"chat.completion","type":"message","role":"assistant","model":"m","content":[],"choices":[]}`

// A row is a client of the table. Call sends one request with the client's documented switch for
// retries on, and returns what the caller gets.
type row struct {
	name, setup string
	post        bool // it sends POST alone
	call        func(ctx context.Context, method, url string, body []byte) error
}

// clientsInCI are the clients of a short run.
var clientsInCI = []string{"net/http", "go-retryablehttp 0.7.8", "openai-go 3.99.0", "resty 3.0.0-rc.4"}

func TestClients(t *testing.T) {
	rows := goClients
	if testing.Short() {
		rows = slices.DeleteFunc(slices.Clone(rows), func(r row) bool {
			return !slices.Contains(clientsInCI, r.name)
		})
		t.Logf("left out: %d clients in Go, and all in Node; make lab runs them", len(goClients)-len(rows))
	} else {
		rows = append(slices.Clone(rows), nodeClients(t)...)
	}
	cells := make([][]string, len(rows))
	var all sync.WaitGroup
	for i, r := range rows {
		cells[i] = make([]string, len(situations))
		for j, s := range situations {
			if r.post {
				s.method = http.MethodPost
			}
			server := serve(t, s)
			all.Go(func() { cells[i][j] = run(r, s, server) })
		}
	}
	all.Wait()

	var table strings.Builder
	table.WriteString("| client | " + strings.Join(columns(), " | ") + " |\n|---|" + strings.Repeat("---|", len(situations)) + "\n")
	for i, r := range rows {
		fmt.Fprintf(&table, "| %s, %s | %s |\n", r.name, r.setup, strings.Join(cells[i], " | "))
	}
	compare(t, "clients", table.String())
}

func columns() []string {
	var names []string
	for _, s := range situations {
		names = append(names, s.column)
	}
	return names
}

// run returns the cell of a client in a situation.
func run(r row, s situation, server *server) string {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	body := bytes.Repeat([]byte("7"), s.body)
	err := r.call(ctx, s.method, server.URL, body)
	hangs := ctx.Err() != nil
	server.mu.Lock()
	defer server.mu.Unlock()
	refused := 0
	for _, status := range server.statuses {
		if status != http.StatusOK {
			refused++
		}
	}
	switch n := len(server.statuses); {
	case n == 0:
		return fmt.Sprintf("nothing came: %v", err)
	case refused > 1:
		return "comes early"
	case n > 1:
		return "waits"
	case hangs:
		return "still waits"
	case err == nil:
		return "does not ask again: no error"
	default:
		return "does not ask again"
	}
}
