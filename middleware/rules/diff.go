package rules

import (
	"cmp"
	"encoding"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"
	"time"

	"github.com/weirgo/weir/internal/operate"
	"github.com/weirgo/weir/limiter"
)

// A Change is a difference between two rules files.
type Change struct {
	Path string `json:"path"` // the field, such as endpoints."GET /search".limit; for a whole rule, endpoints."GET /search"
	Old  string `json:"old"`
	New  string `json:"new"`
	Used Used   `json:"used,omitempty"` // which counters of the rule stay; empty if the change does not affect them
}

// String is the change in one line.
func (c Change) String() string {
	text := c.Path + ": " + c.Old + " → " + c.New
	if c.Used != "" {
		text += "; what was used " + string(c.Used)
	}
	return text
}

// Used says whether what was used of a rule's limit stays used when the rules change. The rule's name,
// the tier, the key and, for limits after the first, the window identify a counter. If one of these
// changes, counting begins anew.
type Used string

const (
	StaysUsed  Used = "stays used"
	BeginsAnew Used = "begins anew"

	// UsedBySame: keys that stay the same keep their counters, such as those of users, if user|ip becomes user.
	UsedBySame Used = "stays used where the key is the same"

	// UsedPartly: some of the rule's limits keep their counters, the others get new ones.
	UsedPartly Used = "stays used, except in windows that are new or are now the first"
)

// Diff returns the changes from before to after, in the order of a file. It compares meanings: 60/1m
// and 60 requests in 60 seconds are equal. Of clients' keys in the rules (ban, allow, overrides) it
// says how many changed, and never quotes them, as they may be credentials.
func Diff(before, after *Rules) []Change {
	changes := compare(before.sections(), after.sections())
	was, is := before.described(), after.described()
	paths := slices.AppendSeq(slices.Collect(maps.Keys(was)), maps.Keys(is))
	named := make(map[string]*description, len(was))
	for _, b := range was {
		named[b.name] = b
	}
	slices.SortFunc(paths, func(a, b string) int {
		section := func(path string) int {
			return slices.IndexFunc(ruleSections, func(s string) bool { return strings.HasPrefix(path, s) })
		}
		return cmp.Or(section(a)-section(b), strings.Compare(a, b))
	})
	for _, path := range slices.Compact(paths) {
		b, a := was[path], is[path]
		switch {
		case b == nil:
			c := Change{Path: path, Old: none, New: a.summary}
			if b := named[a.name]; b != nil && a.active() { // it was in another scope
				c.Used = usedBetween(b, a)
			}
			changes = append(changes, c)
		case a == nil:
			changes = append(changes, Change{Path: path, Old: b.summary, New: none})
		default:
			for _, c := range compare(b.leaves, a.leaves) {
				field := strings.TrimPrefix(c.Path, path+".")
				if a.active() && b.active() {
					c.Used = usedOf(field, b, a)
				}
				changes = append(changes, c)
			}
		}
	}
	return changes
}

const none = "none"

const mostEnds = 5 // of overrides, that a change shows

// A leaf is a value in a file, or an element of a list: the text to compare, which is "" for no value, and
// the text to show.
type leaf struct{ path, value, shown string }

// compare has a change for each path whose leaves differ.
func compare(before, after []leaf) (changes []Change) {
	only := func(of, other []leaf) map[string][]string {
		has, left := map[[2]string]bool{}, map[string][]string{}
		for _, l := range other {
			has[[2]string{l.path, l.value}] = true
		}
		for _, l := range of {
			if l.value != "" && !has[[2]string{l.path, l.value}] {
				left[l.path] = append(left[l.path], l.shown)
			}
		}
		return left
	}
	gone, came, reported := only(before, after), only(after, before), map[string]bool{}
	for _, l := range slices.Concat(after, before) {
		if reported[l.path] || gone[l.path] == nil && came[l.path] == nil {
			continue
		}
		reported[l.path] = true
		was, is := strings.Join(gone[l.path], ", "), strings.Join(came[l.path], ", ")
		c := Change{Path: l.path, Old: cmp.Or(was, none), New: cmp.Or(is, none)}
		if c.Old == c.New {
			c.New += ", with other contents"
		}
		changes = append(changes, c)
	}
	return changes
}

// leavesOf returns the leaves of a value of a file. A nil pointer to a struct has the leaves of an empty
// struct.
func (r *Rules) leavesOf(path string, v reflect.Value, fallback string) (all []leaf) {
	t := v.Type()
	switch {
	case t.Kind() == reflect.Pointer && isObject(t.Elem()):
		if v.IsNil() {
			v = reflect.New(t.Elem())
		}
		return r.leavesIn(path+".", v.Elem())
	case path == "ban.keys", path == "allow.keys":
		return []leaf{{path, textOf(v, ""), keysOf(v.Len())}}
	case t.Kind() == reflect.Slice && v.Len() > 0 && path != "overload.priority": // where the order means something
		for i := range v.Len() {
			all = append(all, leaf{path, textOf(v.Index(i), ""), textOf(v.Index(i), "")})
		}
		return all
	}
	text := textOf(v, fallback)
	l := leaf{path, text, text}
	if path == "ban.file" || path == "allow.file" {
		sum := r.sums[text]
		l.value += string(sum[:])
	}
	return []leaf{l}
}

// leavesIn are the leaves of a struct's fields, but for these.
func (r *Rules) leavesIn(prefix string, v reflect.Value, except ...string) (all []leaf) {
	for _, f := range fieldsOf(v.Type()) {
		if !slices.Contains(except, f.name) {
			all = append(all, r.leavesOf(prefix+f.name, v.FieldByIndex(f.Index), f.Tag.Get("default"))...)
		}
	}
	return all
}

func keysOf(n int) string {
	switch n {
	case 0:
		return none
	case 1:
		return "1 key"
	}
	return fmt.Sprintf("%d keys", n)
}

// textOf is the text of a value, or of its default if it is not set; "" for no value.
func textOf(v reflect.Value, fallback string) string {
	if v.Kind() == reflect.Pointer {
		if v.IsNil() {
			return defaultOf(v.Type().Elem(), fallback)
		}
		v = v.Elem()
	}
	if text, ok := v.Interface().(fmt.Stringer); ok {
		return text.String()
	}
	switch v.Kind() {
	case reflect.Slice:
		texts := make([]string, v.Len())
		for i := range texts {
			texts[i] = textOf(v.Index(i), "")
		}
		return cmp.Or(strings.Join(texts, ", "), fallback)
	case reflect.String:
		return cmp.Or(v.String(), fallback)
	case reflect.Int64:
		if v.IsZero() {
			return fallback
		}
	}
	return fmt.Sprint(v.Interface())
}

// defaultOf is the text of a default, spelled as values are.
func defaultOf(t reflect.Type, fallback string) string {
	v := reflect.New(t)
	if reader, ok := v.Interface().(encoding.TextUnmarshaler); ok && reader.UnmarshalText([]byte(fallback)) == nil {
		return textOf(v.Elem(), fallback)
	}
	return fallback
}

// sections are the leaves of all sections without rules.
func (r *Rules) sections() []leaf {
	all := r.leavesIn("", reflect.ValueOf(r.file).Elem(), append([]string{"version"}, ruleSections...)...)
	if r.file.Overload != nil {
		all = append(all, leaf{"overload", "{}", "{}"})
	}
	return all
}

// A description is a rule as it is compared.
type description struct {
	*scopedRule
	leaves  []leaf
	summary string
	limits  map[string]limiter.Allowance // by the field that it is in
}

// described returns all rules by their paths. If a scope has several rules, the paths after the first end
// with the rule's name.
func (r *Rules) described() map[string]*description {
	all := map[string]*description{}
	rules := r.rules()
	for _, at := range r.descriptorScopes {
		rules = append(rules, &at.rules[0])
	}
	for _, p := range rules {
		at := p.scope.path
		if p.section == "descriptors" {
			at = []string{p.section, p.of} // wherever in the list
		}
		path := joinPath(at)
		if all[path] != nil {
			path = joinPath(sub(at, p.name))
		}
		key, mode := cmp.Or(keyText(" and ", p.parts), "one counter for all"), cmp.Or(p.Mode, "enforce")
		d := &description{scopedRule: p, summary: "mode " + mode, limits: map[string]limiter.Allowance{}}
		if p.active() {
			d.summary = limitOf(p.made.Limit) + ", key " + key
		}
		add := func(field, value, shown string) {
			d.leaves = append(d.leaves, leaf{path + "." + field, value, shown})
		}
		add("name", p.name, p.name)
		add("key", key, key)
		add("mode", mode, mode)
		if p.section == "descriptors" {
			add("limit_from_request", fmt.Sprint(p.fromRequest), fmt.Sprint(p.fromRequest))
		}
		limits := p.limits()
		for _, tier := range slices.Sorted(maps.Keys(limits)) {
			d.limits[limitField(tier)] = limits[tier]
			add(limitField(tier), limitOf(limits[tier]), limitOf(limits[tier]))
		}
		overrides := p.made.Overrides
		var own strings.Builder
		var ends []string
		for _, key := range slices.Sorted(maps.Keys(overrides)) {
			o := overrides[key]
			end := operate.Ends(o.Until, o.Because)
			fmt.Fprintln(&own, key, limitOf(o.Limit)+end)
			if end != "" && len(ends) < mostEnds && !slices.Contains(ends, end) {
				ends = append(ends, end)
			}
		}
		add("overrides", own.String(), keysOf(len(overrides))+strings.Join(ends, ";"))
		d.leaves = append(d.leaves, r.others(path+".", p.rule)...)
		all[path] = d
	}
	return all
}

// limitField is where the limit of a tier stands, or the limit of requests without a tier.
func limitField(tier string) string {
	if tier == "" {
		return "limit"
	}
	return joinPath([]string{"tiers", tier, "limit"})
}

// others are the leaves of a rule's fields beside its name, key, mode and limits.
func (r *Rules) others(prefix string, of *rule) []leaf {
	except := append([]string{"name", "key", "mode", "tiers", "overrides", "concurrency"}, limitNames...)
	return r.leavesIn(prefix, reflect.ValueOf(of).Elem(), except...)
}

// saidBy lists a rule's fields beside its limits that are not the default.
func (r *Rules) saidBy(p *scopedRule) (fields []string) {
	if p.rule == nil {
		return nil
	}
	for _, c := range compare(r.others("", &rule{}), r.others("", p.rule)) {
		fields = append(fields, c.Path+": "+c.New)
	}
	return fields
}

// limitOf is an allowance as text, with the requests that wait for a slot.
func limitOf(a limiter.Allowance) string {
	if a == nil {
		return ""
	}
	text := a.String()
	if _, of, _ := limiter.Split(a); of.Waiting > 0 {
		text += fmt.Sprintf(", %d more wait up to %v", of.Waiting, of.MaxWait)
	}
	return text
}

// usedOf says whether counters stay when a field of a rule changes.
func usedOf(field string, b, a *description) Used {
	used := usedBetween(b, a)
	switch {
	case field == "name", field == "key", field == "overrides":
		return used
	case field != "limit" && !strings.HasPrefix(field, "tiers."):
		return ""
	}
	was, had := b.limits[field]
	is, has := a.limits[field]
	switch {
	case !had || !has:
		return BeginsAnew // a tier with a limit of its own has a counter of its own
	case used == StaysUsed && hasNewWindow(was, is):
		return UsedPartly
	}
	return used
}

// usedBetween says whether counters stay when rule b becomes rule a.
func usedBetween(b, a *description) Used {
	switch {
	case !b.active() || !a.active():
		return ""
	case b.name != a.name:
		return BeginsAnew
	case slices.Equal(b.parts, a.parts):
		return StaysUsed
	case canBeSame(b.parts, a.parts):
		return UsedBySame
	}
	return BeginsAnew
}

// canBeSame reports whether a request can have one key by both: a choice does not show in a key.
func canBeSame(was, is []string) bool {
	return slices.EqualFunc(was, is, func(a, b string) bool {
		return slices.ContainsFunc(choices(a), func(c string) bool { return slices.Contains(choices(b), c) })
	})
}

// hasNewWindow reports whether a window of a limit has a new counter. The first limit's counter keeps its
// name with any window; counters of later limits are named by their window.
func hasNewWindow(was, is limiter.Allowance) bool {
	periods := func(a limiter.Allowance) (all []time.Duration) {
		limits, _, _ := limiter.Split(a)
		for _, l := range limits {
			all = append(all, l.Per)
		}
		return all
	}
	before, after := periods(was), periods(is)
	if len(after) == 0 {
		return false
	}
	had := func(period time.Duration) bool { return slices.Contains(before[min(1, len(before)):], period) }
	return had(after[0]) || slices.ContainsFunc(after[1:], func(period time.Duration) bool { return !had(period) })
}
