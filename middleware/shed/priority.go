package shed

import (
	"net/http"
	"slices"

	"github.com/weirgo/weir/internal/invalid"
	"github.com/weirgo/weir/middleware"
)

// A Priority says which requests go before others: [ByTier] or [ByLevel]. In the zero Priority
// all are equal.
type Priority struct {
	names []string // of the levels, the first to be served first
	of    func(*http.Request) int
	errs  []error
}

// byTier is what is wrong where ByTier was given something that is.
const byTier = invalid.Name("Priority: ByTier")

// others is the level of requests that are in none of the tiers.
const others = "others"

// ByTier admits requests by their tier, as [middleware.WithTier] set it, in this order; those
// in another or in none come last.
func ByTier(tiers ...string) Priority {
	p := Priority{names: append(slices.Clone(tiers), others)}
	if len(tiers) == 0 || len(tiers) >= mostLevels {
		p.report("%s has %d tiers: it must have from 1 to %d", byTier, len(tiers), mostLevels-1)
	}
	for i, tier := range tiers {
		switch {
		case tier == "":
			p.report("%s has a tier without a name at %d; requests in no tier come last", byTier, i)
		case slices.Contains(tiers[:i], tier):
			p.report("%s has %q twice", byTier, tier)
		case tier == others:
			p.report("%s has %q, which is what requests in no other tier are called", byTier, tier)
		}
	}
	tiers = slices.Clone(tiers)
	p.of = func(r *http.Request) int {
		tier := middleware.Tier(r.Context())
		for i, t := range tiers {
			if t == tier {
				return i
			}
		}
		return len(tiers)
	}
	return p
}

// ByLevel admits requests by what of returns: those of the first of these levels, which it
// says as 0, before those of the second, and so on. A number that is no level is the last one.
func ByLevel(levels []string, of func(*http.Request) int) Priority {
	p := Priority{names: slices.Clone(levels), of: of}
	if len(levels) == 0 || len(levels) > mostLevels {
		p.report("Priority: ByLevel has %d levels: it must have from 1 to %d", len(levels), mostLevels)
	}
	if slices.Contains(levels, "") {
		p.report("Priority: ByLevel has a level without a name")
	}
	if of == nil {
		p.report("Priority: ByLevel needs a function")
	}
	return p
}

const mostLevels = 16

func (p *Priority) report(format string, args ...any) {
	p.errs = append(p.errs, invalid.New("shed", format, args...))
}

func (p *Priority) levels() int { return max(1, len(p.names)) }

func (p *Priority) level(r *http.Request) int {
	if p.of == nil {
		return 0
	}
	if level := p.of(r); level >= 0 && level < len(p.names) {
		return level
	}
	return len(p.names) - 1
}
