package limitertest

import (
	"github.com/weirgo/weir/limiter"
	"github.com/weirgo/weir/limiter/store"
)

// A model is the simplest store: its caller passes the time, and no state expires.
type model map[counter]limiter.State

type counter struct {
	quota *limiter.Quota
	key   string
}

func (m model) decide(charges []limiter.Charge, now int64) []limiter.Decision {
	states := make([]limiter.State, len(charges))
	for i, c := range charges {
		states[i] = m[counter{c.Quota, c.Key}]
	}
	if store.TakeAll(charges, states, now) {
		for i, c := range charges {
			if c.Cost > 0 {
				m[counter{c.Quota, c.Key}] = states[i]
			}
		}
	}
	return decisionsOf(charges)
}

func (m model) settle(settlements []limiter.Settlement, now int64) {
	for _, c := range settlements {
		at := counter{c.Quota, c.Key}
		m[at] = c.Quota.Settle(m[at], now, c)
	}
}

func (m model) reset(charges []limiter.Charge) {
	for _, c := range charges {
		delete(m, counter{c.Quota, c.Key})
	}
}
