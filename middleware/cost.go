package middleware

import (
	"net/http"

	"github.com/weirgo/weir/internal/invalid"
)

// Cost says how many units a request takes: [Units], [CostOf] or [Reserve]. The zero Cost is one
// unit.
type Cost struct {
	units   int64 // 0: what of returns, or 1
	of      func(*http.Request) (int64, error)
	settles bool
	wrong   error // what is wrong with it, or nil
}

// Units is the same cost for every request, at least 1. [New] returns an error for a cost that a
// limit of the rule never allows at once.
func Units(n int64) Cost {
	if n < 1 {
		return Cost{wrong: invalid.Field("middleware", "Units", "is %d: it must be at least 1", n)}
	}
	return Cost{units: n}
}

// CostOf is the cost that f returns for a request. A result below 1 counts as 1. A request that
// costs more than the limit allows at once is refused without Retry-After, so bound a cost that
// clients can influence.
func CostOf(f func(*http.Request) int64) Cost {
	if f == nil {
		return Cost{wrong: invalid.Field("middleware", "Cost", ": CostOf needs a function")}
	}
	return Cost{of: certain(f)}
}

// TryCostOf is the cost that f returns for a request, or reports that it cannot be read: the request is then answered as
// one whose key cannot be read, 400 if the error wraps [keyfunc.ErrAmbiguous], and otherwise 503. It is for costs in the
// request's body, as [keyfunc.JSONNumber] reads them.
func TryCostOf(f func(*http.Request) (int64, error)) Cost {
	if f == nil {
		return CostOf(nil)
	}
	return Cost{of: f}
}

// Reserved returns c as a reservation; see [Reserve].
func (c Cost) Reserved() Cost {
	c.settles = true
	return c
}

func certain(f func(*http.Request) int64) func(*http.Request) (int64, error) {
	if f == nil {
		return nil
	}
	return func(r *http.Request) (int64, error) { return f(r), nil }
}

// Reserve reserves the units that estimate returns when the request comes, at most as many as the
// limit allows at once. The handler calls [Settle] with the real cost. A request that is never
// settled costs what was reserved. If a limiter further in refuses the request, so that no handler sees it,
// it costs nothing. Estimate may be nil with [Counts.Afterwards], which reserves
// nothing. [New] returns an error for a rule with Reserve and a [limiter.LeakyBucket].
func Reserve(estimate func(*http.Request) int64) Cost {
	return Cost{of: certain(estimate), settles: true}
}

// isGiven reports whether c is not the zero Cost.
func (c *Cost) isGiven() bool { return c.units != 0 || c.of != nil || c.settles || c.wrong != nil }

// Of returns how many units r takes when it arrives, or 1 if its cost cannot be read.
func (c Cost) Of(r *http.Request) int64 {
	units, _ := c.read(r)
	return units
}

func (c *Cost) read(r *http.Request) (units int64, err error) {
	units = c.units
	if c.of != nil {
		units, err = c.of(r)
	}
	return max(1, units), err
}
