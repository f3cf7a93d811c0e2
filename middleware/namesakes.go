package middleware

import (
	"log/slog"
	"strings"
	"sync/atomic"

	"github.com/weirgo/weir/internal/bounded"
)

// A limiter that a handler makes for each request refuses none, because its limits are unused. So limiters with the
// same rules, each with a store of its own, are counted until one of them meets a second request.

const (
	manyNamesakes = 50   // limiters that have met one request each
	mostRuleNames = 1000 // configurations that are known
)

var allNamesakes = bounded.Map[string, *namesakes]{Most: mostRuleNames} // by the names of their rules

// namesakes are the limiters with the same rules.
type namesakes struct {
	rule   string       // the first
	reused atomic.Bool  // one has met a second request
	single atomic.Int32 // those that have met one
}

// namesakesOf returns the namesakes of limiters with these rules.
func namesakesOf(set *ruleset) *namesakes {
	var names strings.Builder
	for _, r := range set.all {
		names.WriteString(r.Name)
		names.WriteByte('\n') // which no name has
	}
	known, _ := allNamesakes.Get(names.String(), func() (*namesakes, error) { return &namesakes{rule: set.all[0].Name}, nil })
	return known
}

// noteRequest notes the first two requests of a limiter.
func (l *RateLimit) noteRequest(set *ruleset) {
	switch n := l.requests.Add(1); {
	case l.namesakes == nil, l.namesakes.reused.Load():
	case n > 1:
		l.namesakes.reused.Store(true)
	case l.namesakes.single.Add(1) == manyNamesakes:
		warn(set.Logger, "weir-many-limiters",
			"weir: 50 limiters with the same rules have met one request each, so they limit nothing: make one limiter when the program starts, not in a handler",
			slog.String("rule", l.namesakes.rule))
	}
}
