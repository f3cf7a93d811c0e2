package otellimit

import (
	"errors"
	"reflect"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"

	"github.com/weirgo/weir/middleware"
	"github.com/weirgo/weir/middleware/shed"
)

// Attributes of the overload limit, beside those of all metrics.
const (
	routeKey = attribute.Key("http.route")
	levelKey = attribute.Key("rate_limit.overload.level")
)

// A Watcher keeps rules at what is written, as that of package rules does. A RateLimit is one
// too, whose rules change in another way.
type Watcher interface {
	// Overload is what is in force. Nil: nothing.
	Overload() middleware.Overload
}

// Follow adds the overload limit of a rules file, if Options.Overload is nil. Of several
// watchers the last one is told of.
func (t *Observer) Follow(w Watcher) error {
	if v := reflect.ValueOf(w); w == nil || v.Kind() == reflect.Pointer && v.IsNil() {
		return errors.New("otellimit: Follow needs a Watcher")
	}
	t.watcher.Store(&w)
	return nil
}

// overload is the limit in force, or nil.
func (t *Observer) overload() *shed.Limiter {
	l := t.given
	if w := t.watcher.Load(); w != nil && l == nil {
		l, _ = (*w).Overload().(*shed.Limiter)
	}
	return l
}

type overloadInstruments struct {
	limit, inFlight, streams, waiting, overloaded metric.Int64ObservableGauge
	requests                                      metric.Int64ObservableCounter
}

func (m *maker) overload() overloadInstruments {
	return overloadInstruments{
		limit:      m.gauge("rate_limit.overload.limit", "{request}", "How many requests may be in flight."),
		inFlight:   m.gauge("rate_limit.overload.in_flight", "{request}", "Requests in flight, without streams."),
		streams:    m.gauge("rate_limit.overload.streams", "{request}", "Answers that are being sent for far longer than others take."),
		waiting:    m.gauge("rate_limit.overload.waiting", "{request}", "Requests that wait for a place."),
		overloaded: m.gauge("rate_limit.overloaded", "1", "1 while requests of a level are refused after a short wait."),
		requests:   m.counter("rate_limit.overload.requests", "{request}", "Requests by level of priority that took a place or were refused: admitted or shed."),
	}
}

func (in *overloadInstruments) read(to metric.Observer, l *shed.Limiter) {
	if l == nil {
		return
	}
	for _, s := range l.Stats() {
		var route []attribute.KeyValue
		if s.Route != "" {
			route = append(route, routeKey.String(s.Route))
		}
		of := metric.WithAttributes(route...)
		to.ObserveInt64(in.limit, int64(s.Limit), of)
		to.ObserveInt64(in.inFlight, int64(s.InFlight), of)
		to.ObserveInt64(in.streams, int64(s.Streams), of)
		to.ObserveInt64(in.waiting, int64(s.Waiting), of)
		for _, l := range s.Levels {
			level := metric.WithAttributes(levelKey.String(l.Name))
			to.ObserveInt64(in.overloaded, oneIf(l.Overloaded), of, level)
			to.ObserveInt64(in.requests, int64(l.Admitted), of, level, metric.WithAttributes(decisionKey.String("admitted")))
			to.ObserveInt64(in.requests, int64(l.Shed), of, level, metric.WithAttributes(decisionKey.String("shed")))
		}
	}
}
