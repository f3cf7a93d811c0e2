package limitertest

import "github.com/weirgo/weir/limiter"

// A model is the plainest store: its caller holds the clock, and nothing expires.
type model map[counter]limiter.State

type counter struct {
	quota *limiter.Quota
	key   string
}

func (m model) decide(charges []limiter.Charge, now int64) []limiter.Decision {
	after, all := make([]limiter.State, len(charges)), true
	allowed := make([]bool, len(charges))
	for i, c := range charges {
		after[i], allowed[i] = c.Quota.Take(m[counter{c.Quota, c.Key}], now, c.Cost)
		all = all && allowed[i]
	}
	decisions := make([]limiter.Decision, len(charges))
	for i, c := range charges {
		at := counter{c.Quota, c.Key}
		switch {
		case all:
			m[at] = after[i]
			decisions[i] = c.Quota.Describe(after[i], now, c.Cost, true)
		case allowed[i]:
			decisions[i] = c.Quota.Describe(m[at], now, 0, true)
		default:
			decisions[i] = c.Quota.Describe(m[at], now, c.Cost, false)
		}
	}
	return decisions
}

func (m model) refund(charges []limiter.Charge, now int64) {
	for _, c := range charges {
		at := counter{c.Quota, c.Key}
		m[at] = c.Quota.Refund(m[at], now, c.Cost, c.At)
	}
}

func (m model) reset(charges []limiter.Charge) {
	for _, c := range charges {
		delete(m, counter{c.Quota, c.Key})
	}
}
