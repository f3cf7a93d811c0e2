package shed

import (
	"net/http"
	"slices"

	"github.com/weirgo/weir/internal/invalid"
	"github.com/weirgo/weir/middleware"
)

const (
	// others is the level of requests in no tier of Priority.
	others = "others"

	mostLevels = 16
)

// levelsOf returns the levels for these tiers, or everything that is wrong with them.
func levelsOf(tiers []string) (levels []string, errs []error) {
	report := func(format string, args ...any) {
		errs = append(errs, invalid.Field("shed", "Options.Priority", format, args...))
	}
	if len(tiers) >= mostLevels || tiers != nil && len(tiers) == 0 {
		report("has %d tiers: it must have from 1 to %d", len(tiers), mostLevels-1)
	}
	for i, tier := range tiers {
		switch {
		case tier == "":
			report("has a tier without a name at %d; requests in no tier come last", i)
		case slices.Contains(tiers[:i], tier):
			report("has %q twice", tier)
		case tier == others:
			report("has %q, which is the name for requests in no other tier", tier)
		}
	}
	return append(slices.Clone(tiers), others), errs
}

// level is the level of a request. Level 0 is served first.
func (l *Limiter) level(r *http.Request) int {
	last := len(l.levels) - 1
	if last == 0 {
		return 0
	}
	if i := slices.Index(l.levels[:last], middleware.Tier(r.Context())); i >= 0 {
		return i
	}
	return last
}
