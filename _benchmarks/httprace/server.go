package main

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math"
	"net"
	"net/http"
	"runtime"
	"time"

	"github.com/weirgo/weir/benchmarks/race"
)

// Every contestant has a process of its own in each stage. It serves its handlers by role on
// ports of their own. It first tells their addresses, and is then asked on its standard
// input and answers on its output, a line of JSON each.

// contestantFlag is how the program knows that it is such a process.
const contestantFlag = "-contestant"

// A question asks for the CPU time that the process has used so far, or has it call a handler
// in a loop.
type question struct {
	Role role
	Loop time.Duration // 0: no loop
}

type answer struct {
	Addresses [roles]string
	CPU       float64      // µs
	Figures   race.Figures // of the loop
	Error     string
}

// perform is the whole life of a contestant's process.
func perform(name, stage string, in io.Reader, out io.Writer) error {
	slog.SetDefault(slog.New(slog.DiscardHandler)) // warnings about a limit without a proxy
	e, ok := named(name)
	if !ok {
		return fmt.Errorf("there is no contestant %q", name)
	}
	questions, answers := json.NewDecoder(in), json.NewEncoder(out)
	var a answer
	h, err := e.handlers(stage)
	if err == nil {
		a.Addresses, err = h.serve()
	}
	for {
		if err != nil {
			a.Error = err.Error()
		}
		if err := answers.Encode(a); err != nil {
			return err
		}
		var q question
		if err := questions.Decode(&q); errors.Is(err, io.EOF) {
			return nil
		} else if err != nil {
			return err
		}
		a = answer{}
		if q.Loop > 0 {
			a.Figures, err = loop(h[q.Role], e.statusOf(q.Role, stage), q.Loop)
		} else {
			a.CPU, err = race.ClientCPU.Read()
		}
	}
}

// serve answers on ports of the loopback interface until the process ends.
func (h handlers) serve() (addresses [roles]string, err error) {
	for r, handler := range h {
		l, err := net.Listen("tcp", client+":0")
		if err != nil {
			return addresses, err
		}
		addresses[r] = l.Addr().String()
		go func() { _ = (&http.Server{Handler: handler}).Serve(l) }()
	}
	return addresses, nil
}

// Metrics of a request in process. What the frame takes is subtracted.
const (
	perRequest    race.Metric = "ns above bare"
	cpuPerRequest race.Metric = "CPU ns above bare"
	allocs        race.Metric = "allocations"
)

// loop calls h with one request again and again. CPU time has the garbage collector's, which
// runs on other cores.
func loop(h http.Handler, status int, d time.Duration) (race.Figures, error) {
	const chunk = 256 // between two looks at the clock
	template, r, w := newRequest(), new(http.Request), &nowhere{header: http.Header{}}
	var before, after runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&before)
	from, err := race.ClientCPU.Read()
	if err != nil {
		return nil, err
	}
	n, start := 0, time.Now()
	for n == 0 || time.Since(start) < d {
		for range chunk {
			clear(w.header)
			w.status = 0
			*r = *template // as adapters change it
			h.ServeHTTP(w, r)
			if got := cmp.Or(w.status, http.StatusOK); got != status {
				return nil, fmt.Errorf("it answers %d where it should answer %d", got, status)
			}
		}
		n += chunk
	}
	elapsed := time.Since(start)
	to, err := race.ClientCPU.Read()
	runtime.ReadMemStats(&after)
	return race.Figures{
		perRequest:    float64(elapsed) / float64(n),
		cpuPerRequest: (to - from) * 1000 / float64(n),
		// To a hundredth, as the runtime has a few of its own.
		allocs: math.Round(100*float64(after.Mallocs-before.Mallocs)/float64(n)) / 100,
	}, err
}

// nowhere is a ResponseWriter that keeps the header and the status.
type nowhere struct {
	header http.Header
	status int
}

func (w *nowhere) Header() http.Header         { return w.header }
func (w *nowhere) Write(b []byte) (int, error) { return len(b), nil }
func (w *nowhere) WriteHeader(status int)      { w.status = status }
