package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"github.com/weirgo/weir/benchmarks/race"
)

// A process of the service that calls the third party: this program, started again. It is told
// what to do in a line of JSON, says when it is ready, begins at the time that the next line
// says, and answers with an outcome.

type task struct {
	Contestant string
	URL        string
	Redis      string
	Limit      int64 // requests per second of all processes together
	Burst      int64 // how many of them may leave at once; 0: they leave evenly
	Callers    int   // goroutines, each of which asks again as soon as it has an answer
	Duration   time.Duration
}

// An outcome is what callers have seen.
type outcome struct {
	Calls  int   // requests of callers
	Sent   int64 // requests that went out for them
	Failed int   // calls that ended in an error
	Error  string
}

func (o *outcome) add(other outcome) {
	o.Calls += other.Calls
	o.Sent += other.Sent
	o.Failed += other.Failed
	if o.Error == "" {
		o.Error = other.Error
	}
}

func serveTasks(in io.Reader, out io.Writer) error {
	lines, answers := json.NewDecoder(in), json.NewEncoder(out)
	for {
		var t task
		if err := lines.Decode(&t); errors.Is(err, io.EOF) {
			return nil
		} else if err != nil {
			return err
		}
		o, err := t.perform(func() (begin time.Time, err error) {
			if err := answers.Encode("ready"); err != nil {
				return begin, err
			}
			return begin, lines.Decode(&begin)
		})
		if err != nil {
			return err
		}
		if err := answers.Encode(o); err != nil {
			return err
		}
	}
}

// perform has callers ask until the time is over, and waits for the answers of all.
func (t *task) perform(ready func() (begin time.Time, err error)) (outcome, error) {
	c, ok := named(t.Contestant)
	if !ok {
		return outcome{}, fmt.Errorf("there is no contestant %q", t.Contestant)
	}
	transport := http.DefaultTransport.(*http.Transport).Clone()
	transport.MaxIdleConnsPerHost, transport.MaxIdleConns = t.Callers, t.Callers
	defer transport.CloseIdleConnections()
	base := &counter{next: transport}
	client, done, err := c.client(base, t)
	if err != nil {
		return outcome{}, err
	}
	defer done()
	begin, err := ready()
	if err != nil {
		return outcome{}, err
	}
	end := begin.Add(t.Duration)
	time.Sleep(time.Until(begin))

	var wg sync.WaitGroup
	var mu sync.Mutex
	var total outcome
	for range t.Callers {
		wg.Go(func() {
			var o outcome
			for time.Now().Before(end) {
				o.add(ask(client, t.URL))
			}
			mu.Lock()
			defer mu.Unlock()
			total.add(o)
		})
	}
	wg.Wait()
	total.Sent = base.sent.Load()
	return total, nil
}

// longest is how long an answer may take, waits and retries included.
const longest = 30 * time.Second

func ask(client *http.Client, url string) outcome {
	ctx, cancel := context.WithTimeout(context.Background(), longest)
	defer cancel()
	failed := func(err error) outcome { return outcome{Calls: 1, Failed: 1, Error: err.Error()} }
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return failed(err)
	}
	response, err := client.Do(r)
	if err != nil {
		return failed(err)
	}
	defer response.Body.Close()
	if _, err := io.Copy(io.Discard, response.Body); err != nil {
		return failed(err)
	}
	return outcome{Calls: 1}
}

// A counter counts what goes out.
type counter struct {
	next http.RoundTripper
	sent atomic.Int64
}

func (c *counter) RoundTrip(r *http.Request) (*http.Response, error) {
	c.sent.Add(1)
	return c.next.RoundTrip(r)
}

// A service is processes that share a limit.
type service []*race.Child

// processes is how many.
const processes = 3

func startService(ctx context.Context) (s service, err error) {
	for range processes {
		child, err := race.StartChild(ctx)
		if err != nil {
			s.close()
			return nil, err
		}
		s = append(s, child)
	}
	return s, nil
}

func (s service) close() {
	for _, child := range s {
		child.Close()
	}
}

// headStart is how long processes have to get from ready to the beginning.
const headStart = 200 * time.Millisecond

// perform has all processes do a task. Began hears when they begin, before they do.
func (s service) perform(t task, began func(time.Time)) (total outcome, err error) {
	for _, child := range s {
		if err := child.Send(t); err != nil {
			return total, err
		}
	}
	for _, child := range s {
		var said string
		if err := child.Receive(&said); err != nil || said != "ready" {
			return total, fmt.Errorf("a process is not ready: %q, %w", said, err)
		}
	}
	begin := time.Now().Add(headStart)
	began(begin)
	for _, child := range s {
		if err := child.Send(begin); err != nil {
			return total, err
		}
	}
	for _, child := range s {
		var o outcome
		if err := child.Receive(&o); err != nil {
			return total, fmt.Errorf("a process gave no answer: %w", err)
		}
		total.add(o)
	}
	return total, nil
}
