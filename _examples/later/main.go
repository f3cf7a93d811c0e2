// Later queues the requests that a limit refuses, and runs them later. A report beyond the limit is
// answered 202 with its address and the time when it is likely to run. Later needs a Redis.
//
//	GOWORK=off go run -C _examples/later .
//	for i in $(seq 5); do curl -si -X POST http://127.0.0.1:8080/reports; done # twice 200, then 202
//	curl -si http://127.0.0.1:8080/reports/ID # from the Location of a 202
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"slices"
	"time"

	"github.com/hibiken/asynq"
	"github.com/redis/go-redis/v9"

	"github.com/weirgo/weir"
	"github.com/weirgo/weir/keyfunc"
	"github.com/weirgo/weir/limiter"
	"github.com/weirgo/weir/redis/redisstore"
)

var (
	addr  = flag.String("addr", "127.0.0.1:8080", "address to listen on")
	at    = flag.String("redis", "127.0.0.1:6379", "address of a Redis")
	most  = flag.Int("most", 100, "how many reports wait at most")
	limit = weir.PerMinute(2).WithBurst(2)
)

func main() {
	flag.TextVar(&limit, "limit", limit, "reports of a client")
	flag.Parse()
	store := redisstore.New(redis.NewClient(&redis.Options{Addr: *at}), redisstore.Options{})
	queue := asynq.RedisClientOpt{Addr: *at}
	l := later{asynq.NewClient(queue), asynq.NewInspector(queue)}

	limits := weir.Must(weir.New(weir.Config{Store: store, Rules: []weir.Rule{
		{Name: "reports", Match: weir.Route("POST /reports"), Key: keyfunc.IP(), Limit: limit, Refusal: weir.Refusal{Answer: l.enqueue}},
	}}))
	mux := http.NewServeMux()
	mux.HandleFunc("GET /healthz", func(http.ResponseWriter, *http.Request) {})
	mux.HandleFunc("POST /reports", func(w http.ResponseWriter, _ *http.Request) { io.WriteString(w, report()) })
	mux.HandleFunc("GET /reports/{id}", l.show)

	// The workers of all processes together run reports no faster than the limit.
	pace := limiter.Must(limiter.New(limiter.Config{Name: "later", Limit: limit, Store: store}))
	workers := asynq.NewServer(queue, asynq.Config{Concurrency: 2, LogLevel: asynq.WarnLevel})
	err := workers.Start(asynq.HandlerFunc(func(ctx context.Context, task *asynq.Task) error {
		if err := pace.Wait(ctx, "", 1); err != nil {
			return err // asynq tries again
		}
		_, err := io.WriteString(task.ResultWriter(), report())
		return err
	}))
	if err != nil {
		log.Fatal(err)
	}
	listener, err := net.Listen("tcp", *addr)
	if err != nil {
		log.Fatal("-addr: ", err)
	}
	log.Printf("listening on http://%s", listener.Addr())
	log.Fatal(http.Serve(listener, limits.Handler(mux)))
}

func report() string { return "a report of " + time.Now().Format(time.TimeOnly) + "\n" }

// later is a queue of reports.
type later struct {
	client    *asynq.Client
	inspector *asynq.Inspector
}

// enqueue answers a refusal: 202 if the report will run, or 429 if too many reports wait. Concurrent
// requests may exceed the number, each by one.
func (l later) enqueue(w http.ResponseWriter, r *http.Request, _ weir.Result) {
	waiting, err := l.waiting()
	if err != nil {
		http.Error(w, "the queue does not answer", http.StatusServiceUnavailable)
		return
	}
	if waiting >= *most {
		http.Error(w, "too many reports wait", http.StatusTooManyRequests) // keeps the refusal's Retry-After
		return
	}
	task, err := l.client.EnqueueContext(r.Context(), asynq.NewTask("report", nil), asynq.Retention(time.Hour))
	if err != nil {
		http.Error(w, "the queue does not answer", http.StatusServiceUnavailable)
		return
	}
	w.Header().Del("Retry-After") // the client need not repeat this request
	w.Header().Set("Location", "/reports/"+task.ID)
	w.WriteHeader(http.StatusAccepted)
	wait := time.Duration(max(0, int64(waiting)+1-limit.Burst)) * limit.Per / time.Duration(limit.Events) // an idle worker has a burst
	fmt.Fprintf(w, "likely to run at %s\n", time.Now().Add(wait).Format(time.TimeOnly))
}

// waiting returns the number of reports in the queue.
func (l later) waiting() (int, error) {
	queues, err := l.inspector.Queues()
	if err != nil || !slices.Contains(queues, "default") { // the first report creates the queue
		return 0, err
	}
	queue, err := l.inspector.GetQueueInfo("default")
	if err != nil {
		return 0, err
	}
	return queue.Size, nil
}

// show answers with the report, or 202 while the report waits.
func (l later) show(w http.ResponseWriter, r *http.Request) {
	switch task, err := l.inspector.GetTaskInfo("default", r.PathValue("id")); {
	case errors.Is(err, asynq.ErrQueueNotFound), errors.Is(err, asynq.ErrTaskNotFound):
		http.NotFound(w, r)
	case err != nil:
		http.Error(w, "the queue does not answer", http.StatusServiceUnavailable)
	case task.State == asynq.TaskStateCompleted:
		w.Write(task.Result)
	default:
		w.WriteHeader(http.StatusAccepted)
		io.WriteString(w, "it waits\n")
	}
}
