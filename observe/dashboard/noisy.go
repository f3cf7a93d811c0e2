package dashboard

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/weirgo/weir/keyfunc"
	"github.com/weirgo/weir/middleware"
	"github.com/weirgo/weir/observe/offenders"
)

const (
	maxFindings = 3
	fewRefusals = 16 // too few to say anything about clients
	maxFew      = 8  // keys: more are many
	maxNamed    = 3

	noisyK = 32 // offenders.Options.K: each key with more than 3% of a rule's refusals is known
)

// newSketches returns the counts of keys: over the last hour for the list of clients, and over the last
// seconds, refusals only, for the findings. The page itself decides whether keys are shown.
func newSketches(secret []byte) (top, noisy *offenders.Sketch, err error) {
	if top, err = offenders.New(offenders.Options{ShowKeys: true, Secret: secret}); err != nil {
		return nil, nil, err
	}
	noisy, err = offenders.New(offenders.Options{ShowKeys: true, Secret: secret, K: noisyK, Window: judged * time.Second})
	return top, noisy, err
}

// countRefusal counts a refusal by rule i for the client's key. If the rule has one counter for all, that is the
// key of another rule that applied.
func (d *Dashboard) countRefusal(s *series, rules []middleware.RuleResult, i int) {
	hasKey := func(r middleware.RuleResult) bool { return r.Key != "" && r.Class != keyfunc.Shared }
	by := i
	if !hasKey(rules[i]) {
		by = slices.IndexFunc(rules, hasKey)
	}
	if by < 0 || rules[i].Rule.Mode == middleware.Shadow {
		return
	}
	d.noisy.Count(rules[i].Rule.Name, rules[by].Key, true)
	if keysOf := &rules[by].Rule.Name; s.keysOf.Load() == nil || *s.keysOf.Load() != *keysOf {
		s.keysOf.Store(keysOf)
	}
}

// A spread is how the latest refusals of a rule are spread over keys.
type spread struct {
	refusals uint64
	keys     []offenders.Offender // the most refused first, by AtLeast; a long key is a keyfunc.Digest.Key
	more     bool                 // there may be other keys
}

// spread returns the refusals of a rule in the last seconds.
func (d *Dashboard) spread(rule string) (found spread) {
	rules := d.noisy.Rules()
	if i := slices.IndexFunc(rules, func(r offenders.Rule) bool { return r.Name == rule }); i >= 0 {
		found.refusals = rules[i].Refused
	}
	for _, o := range d.noisy.Top(rule, math.MaxInt) {
		if digest, ok := keyfunc.ParseDigest(o.Digest); ok && !o.Whole {
			o.Key = digest.Key()
		}
		found.keys = append(found.keys, o)
		found.more = found.more || o.Refused.Error > 0
	}
	slices.SortStableFunc(found.keys, func(a, b offenders.Offender) int {
		return cmp.Compare(b.Refused.AtLeast(), a.Refused.AtLeast())
	})
	return found
}

// noisy returns the keys that come near the first, and their refusals.
func (s *spread) noisy() (keys []offenders.Offender, refusals uint64) {
	for i, k := range s.keys {
		if 4*k.Refused.AtLeast() < s.keys[0].Refused.AtLeast() {
			return s.keys[:i], refusals
		}
		refusals += k.Refused.AtLeast()
	}
	return s.keys, refusals
}

// isCrowd reports whether most keys have a refusal or two, or the first keys have few of all.
func (s *spread) isCrowd() bool {
	first := uint64(0)
	for _, k := range s.keys[:min(len(s.keys), maxFew)] {
		first += k.Refused.AtLeast()
	}
	return 2*uint64(len(s.keys)) >= s.refusals || 4*first < s.refusals
}

// findings returns the findings about the worst rules.
func (d *Dashboard) findings(rules []refusing) (found []finding) {
	for _, r := range rules[:min(len(rules), maxFindings)] {
		if f := d.clients(r, d.spread(r.rule)); f.Text != "" && r.refused*20 >= sumOf(rules) {
			found = append(found, f)
		}
	}
	return found
}

// clients says which clients a rule refuses: a noisy one, a few, or many.
func (d *Dashboard) clients(r refusing, s spread) finding {
	f := finding{Rule: r.rule}
	if s.refusals < fewRefusals || len(s.keys) == 0 {
		return f
	}
	begin, its, of := "", "Its", ""
	one, crowd := "one noisy client, no reason to raise the limit", "many clients at once. Either the limit is too low, or an attacker rotates keys"
	if r.keysOf != r.rule {
		begin, its, of = "One counter for everybody, and ", "its", " of "+r.keysOf
		one, crowd = "one noisy client", "a crowd, or an attacker who rotates keys"
	}
	latest := fmt.Sprintf("refusals of the last %d s", judged) // how many, the figures say
	part := func(n uint64) string { return percent(n, s.refusals) + " of its " + latest }
	all := its + " " + latest
	keys := number(uint64(len(s.keys)))
	if s.more {
		keys += " or more"
	}

	most := s.keys[0].Refused.AtLeast()
	noisy, theirs := s.noisy()
	alone := 2*most >= s.refusals
	few := len(noisy) > 1 && len(noisy) <= maxFew && 4*theirs >= 3*s.refusals && theirs >= 4*uint64(len(noisy))
	if alone || few {
		f.Known = d.known(noisy[:min(len(noisy), maxFew)])
	}
	switch {
	case few:
		if theirs < s.refusals {
			all = part(theirs)
		}
		f.Text = begin + fmt.Sprintf("%s are of %d keys%s, %s: a few noisy clients.", all, len(noisy), of, f.named())
		if slices.ContainsFunc(f.Known, func(k clientView) bool { return k.Shared }) {
			f.Text += " Some of these keys belong to proxies that do not name their clients, who share them."
		}
	case alone:
		f.Known = d.known(noisy[:1])
		is := ": " + one + "."
		if f.Known[0].Shared {
			is = ", which belongs to a proxy that does not name its clients: they share it."
		}
		f.Text = begin + fmt.Sprintf("%s are of one key%s, %s%s", part(most), of, f.named(), is)
	case s.isCrowd():
		f.Text = begin + fmt.Sprintf("%s are of %s keys%s: %s.", all, keys, of, crowd)
	default:
		f.Text = begin + fmt.Sprintf("%s are of %s keys%s.", all, keys, of)
	}
	return f
}

// known returns the clients of these keys.
func (d *Dashboard) known(keys []offenders.Offender) (known []clientView) {
	for _, k := range keys {
		known = append(known, d.viewOf(k.Key))
	}
	slices.SortFunc(known, func(a, b clientView) int { return cmp.Compare(a.Key, b.Key) }) // so that the order is stable
	return known
}

// named names the first clients, in words.
func (f *finding) named() string {
	var names []string
	for _, k := range f.Known[:min(len(f.Known), maxNamed)] {
		names = append(names, k.Key)
	}
	last := len(names) - 1
	switch {
	case len(f.Known) > maxNamed:
		return "among them " + strings.Join(names[:last], ", ") + " and " + names[last]
	case last == 0:
		return names[0]
	}
	return strings.Join(names[:last], ", ") + " and " + names[last]
}
