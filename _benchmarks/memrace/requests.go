package main

import (
	"context"
	"errors"
	"net"
	"net/http"
	"net/http/httptest"
	"time"

	"github.com/weirgo/weir/benchmarks/race"
)

// measureRequests is about whole requests, of one client, to a handler that does nothing.
func measureRequests(e contestant, _ int) (measurement, error) {
	limited, bare, err := e.wrap(&environment{quota: plenty, keys: 1}, http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	if err != nil {
		return nil, err
	}
	of := func(h http.Handler) (measurement, error) {
		return measureDecisions(func(*environment) (func() race.Call, error) { return serving(h), nil }, plenty, 1)
	}
	whole, err := of(limited)
	if err != nil || bare == nil {
		return whole, err
	}
	framework, err := of(bare)
	return func(goroutines int, slice time.Duration) (race.Figures, error) {
		// By turns, as the difference is small beside them.
		net := race.Figures{}
		const turns = 4
		for range turns {
			with, err := whole(goroutines, slice/turns)
			if err != nil {
				return nil, err
			}
			without, err := framework(goroutines, slice/turns)
			if err != nil {
				return nil, err
			}
			for metric := range with {
				net[metric] += (with[metric] - without[metric]) / turns
			}
		}
		return net, nil
	}, err
}

// serving has each goroutine send its one request again and again.
func serving(h http.Handler) func() race.Call {
	return func() race.Call {
		w, r := newNowhere(), httptest.NewRequest(http.MethodGet, "/", nil)
		r.RemoteAddr = "203.0.113.7:51234"
		return func(context.Context, string) (bool, error) {
			clear(w.header)
			h.ServeHTTP(w, r)
			if w.status != 0 && w.status != http.StatusOK {
				return false, errors.New("it answered " + http.StatusText(w.status))
			}
			return true, nil
		}
	}
}

// nowhere is a ResponseWriter that keeps the header and the status.
type nowhere struct {
	header http.Header
	status int
}

func newNowhere() *nowhere { return &nowhere{header: http.Header{}} }

func (w *nowhere) Header() http.Header         { return w.header }
func (w *nowhere) Write(b []byte) (int, error) { return len(b), nil }
func (w *nowhere) WriteHeader(status int)      { w.status = status }

// address is the peer's.
func address(r *http.Request) string {
	host, _, err := net.SplitHostPort(r.RemoteAddr)
	if err != nil {
		return r.RemoteAddr
	}
	return host
}
