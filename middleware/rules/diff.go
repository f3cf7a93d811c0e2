package rules

import (
	"cmp"
	"encoding"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"

	"github.com/weirgo/weir/limiter"
	"github.com/weirgo/weir/middleware"
	"github.com/weirgo/weir/middleware/rules/internal/document"
)

// A Change is one place of a file that other rules change.
type Change struct {
	Path string `json:"path"` // such as endpoints."GET /search".limit; of a rule that comes or goes, where it is
	Old  string `json:"old"`
	New  string `json:"new"`
	Used Used   `json:"used,omitempty"` // of a rule's counter, where the change is about that
}

// String is the change in one line.
func (c Change) String() string {
	text := c.Path + ": " + c.Old + " → " + c.New
	if c.Used != "" {
		text += "; what was used " + string(c.Used)
	}
	return text
}

// Used says whether what was used of a rule's limit stays used. Counters go by the rule's name,
// the tier, the window behind the first, and the key.
type Used string

const (
	StaysUsed  Used = "stays used"
	BeginsAnew Used = "begins anew"
	UsedBySame Used = "stays used where the key is the same"                     // of a key that has a choice, such as user|ip
	UsedPartly Used = "stays used, but of windows that are new or the first now" // of a rule with several limits
)

// Diff is what changes where after takes the place of before, in the order of a file. It goes
// by what rules say and not by how they are written: a limit of 60/1m and one of 60 in 60 s are
// the same. Keys of requests are counted and not quoted, as they may be credentials.
func Diff(before, after *Rules) []Change {
	changes := compare(before.sections(), after.sections())
	was, is := before.described(), after.described()
	paths := slices.AppendSeq(slices.Collect(maps.Keys(was)), maps.Keys(is))
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
			for _, b := range was {
				if b.name == a.name && a.active() { // it was at another place
					c.Used = usedBetween(b, a)
				}
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

// A leaf is a value of a file: what it is compared by, and what is shown of it.
type leaf struct {
	path, value, shown string
	list               []string // its elements, of which only those that come and go are shown
}

// compare has a change for each leaf that is not the same. A path is in both, or has its default.
func compare(before, after []leaf) (changes []Change) {
	was := map[string]leaf{}
	for _, l := range before {
		was[l.path] = l
	}
	for _, a := range after {
		b, ok := was[a.path]
		if !ok {
			b.shown = none
		}
		delete(was, a.path)
		if a.value != b.value {
			c := Change{Path: a.path, Old: cmp.Or(without(b.list, a.list), b.shown), New: cmp.Or(without(a.list, b.list), a.shown)}
			if c.Old == c.New {
				c.New += ", with other contents"
			}
			changes = append(changes, c)
		}
	}
	for _, b := range before {
		if _, gone := was[b.path]; gone && b.value != "" {
			changes = append(changes, Change{Path: b.path, Old: b.shown, New: none})
		}
	}
	return changes
}

// without are the texts of a that are not in b, where both are lists.
func without(a, b []string) string {
	if a == nil || b == nil {
		return ""
	}
	only := slices.DeleteFunc(slices.Clone(a), func(text string) bool { return slices.Contains(b, text) })
	return cmp.Or(strings.Join(only, ", "), none)
}

// sections are the leaves of all that is no rule.
func (r *Rules) sections() (all []leaf) {
	for _, section := range []struct {
		path string
		of   any
	}{
		{"mode", cmp.Or(r.file.Mode, "enforce")}, {"proxies", r.file.Proxies}, {"ban", r.file.Ban}, {"allow", r.file.Allow}, {"overload", r.file.Overload},
		{"soft", r.file.Soft}, {"headers", r.file.Headers}, {"refusal", r.file.Refusal},
	} {
		all = append(all, r.leavesOf(section.path, reflect.ValueOf(section.of), "")...)
	}
	if r.file.Overload != nil {
		all = append(all, leaf{path: "overload", value: "{}", shown: "{}"})
	}
	return all
}

// leavesOf are the leaves of a value that a document was read into. A pointer to a struct that
// is nil has those of an empty one.
func (r *Rules) leavesOf(path string, v reflect.Value, fallback string) (all []leaf) {
	if t := v.Type(); t.Kind() == reflect.Pointer && isSection(t.Elem()) {
		if v.IsNil() {
			v = reflect.New(t.Elem())
		}
		for name, f := range fieldsOf(t.Elem()) {
			all = append(all, r.leavesOf(path+"."+name, v.Elem().FieldByIndex(f.Index), f.Tag.Get("default"))...)
		}
		return all
	}
	text := textOf(v, fallback)
	l := leaf{path: path, value: text, shown: cmp.Or(text, none)}
	if v.Kind() == reflect.Slice && path != "overload.priority" { // where the order means something
		l.list = strings.Split(text, ", ")
		slices.Sort(l.list)
		l.value = strings.Join(l.list, ", ")
	}
	switch path {
	case "ban.keys", "allow.keys":
		l.shown, l.list = keysOf(v.Len()), nil
	case "ban.file", "allow.file":
		sum := r.sums[text]
		l.value += string(sum[:])
	}
	return []leaf{l}
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

// fieldsOf are the fields of a struct that are read, by name, those of embedded structs too.
func fieldsOf(t reflect.Type) func(yield func(string, reflect.StructField) bool) {
	return func(yield func(string, reflect.StructField) bool) {
		for _, f := range reflect.VisibleFields(t) {
			if name := f.Tag.Get("yaml"); name != "" && !yield(name, f) {
				return
			}
		}
	}
}

// isSection reports whether a t has fields that are read.
func isSection(t reflect.Type) bool {
	if t.Kind() != reflect.Struct {
		return false
	}
	for range fieldsOf(t) {
		return true
	}
	return false
}

// textOf is a value as it is written, or its default where it is not: "" for nothing.
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

// A description is a rule as it is compared.
type description struct {
	*placed
	infos   map[string]middleware.RuleInfo
	leaves  []leaf
	summary string
}

// described are all rules, by their paths. Of several at one place, those after the first have
// their name in it.
func (r *Rules) described() map[string]*description {
	infos := r.infos()
	all := map[string]*description{}
	for _, p := range r.file.placed(r.doc) {
		path := document.JoinPath(p.place.path)
		if all[path] != nil {
			path = document.JoinPath(sub(p.place.path, p.name))
		}
		d := &description{placed: &p}
		if p.active() {
			d.infos = infos[p.name]
		}
		add := func(field, value, shown string) {
			d.leaves = append(d.leaves, leaf{path: path + "." + field, value: value, shown: cmp.Or(shown, none)})
		}
		key := cmp.Or(told(" and ", p.parts), "one counter for all")
		add("name", p.name, p.name)
		add("key", key, key)
		add("mode", cmp.Or(p.Mode, "enforce"), cmp.Or(p.Mode, "enforce"))
		for _, tier := range slices.Sorted(maps.Keys(d.infos)) {
			info, at := d.infos[tier], ".limit"
			if tier != "" {
				at = document.JoinPath([]string{"tiers", tier, "limit"})
			}
			add(strings.TrimPrefix(at, "."), limitOf(&info), limitOf(&info))
		}
		if !p.active() { // and has no info
			d.leaves = append(d.leaves, r.written(path, &p.limitFields)...)
			for _, tier := range slices.Sorted(maps.Keys(p.Tiers)) {
				fields := p.Tiers[tier]
				d.leaves = append(d.leaves, r.written(path+"."+document.JoinPath([]string{"tiers", tier}), &fields)...)
			}
		}
		overrides := ""
		if given := ruleNamed(&r.config, p.name); given != nil && len(given.Overrides) > 0 {
			overrides = fmt.Sprint(given.Overrides)
		}
		add("overrides", overrides, keysOf(len(p.Overrides)))
		for name, f := range fieldsOf(reflect.TypeFor[rule]()) {
			switch name {
			case "name", "key", "mode", "tiers", "overrides", "limit", "limits", "requests", "window", "algorithm", "burst", "concurrency":
				continue
			}
			d.leaves = append(d.leaves, r.leavesOf(path+"."+name, reflect.ValueOf(p.rule).Elem().FieldByIndex(f.Index), f.Tag.Get("default"))...)
		}
		info := d.infos[""]
		if d.summary = "mode " + cmp.Or(p.Mode, "enforce"); p.active() {
			d.summary = limitOf(&info) + ", key " + key
		}
		all[path] = d
	}
	return all
}

// written are the leaves of limits as they are written.
func (r *Rules) written(path string, f *limitFields) (all []leaf) {
	for name, field := range fieldsOf(reflect.TypeFor[limitFields]()) {
		all = append(all, r.leavesOf(path+"."+name, reflect.ValueOf(f).Elem().FieldByIndex(field.Index), "")...)
	}
	return all
}

// infos are the rules that are not off, by name and tier.
func (r *Rules) infos() map[string]map[string]middleware.RuleInfo {
	all := map[string]map[string]middleware.RuleInfo{}
	limits, err := idle(r.Config())
	if err != nil { // which lastCheck makes sure of
		return all
	}
	for _, info := range limits.Rules() {
		if all[info.Name] == nil {
			all[info.Name] = map[string]middleware.RuleInfo{}
		}
		all[info.Name][info.Tier] = info
	}
	return all
}

// limitOf is the limit, with the requests that wait for a place.
func limitOf(info *middleware.RuleInfo) string {
	text := info.LimitText()
	if of := info.Concurrency; of.Queue > 0 {
		text += fmt.Sprintf(", %d more wait up to %v", of.Queue, of.MaxWait)
	}
	return text
}

// usedOf says what becomes of what was used, where a field of a rule changes.
func usedOf(field string, b, a *description) Used {
	used := usedBetween(b, a)
	switch {
	case field == "name", field == "key", field == "overrides":
		return used
	case field != "limit" && !strings.HasPrefix(field, "tiers."):
		return ""
	}
	for tier, is := range a.infos {
		if path := document.JoinPath([]string{"tiers", tier, "limit"}); path != field && (tier != "" || field != "limit") {
			continue
		}
		was, had := b.infos[tier]
		switch {
		case !had:
			return BeginsAnew // a tier with a limit of its own has a counter of its own
		case used == StaysUsed && hasNewWindow(&was, &is):
			return UsedPartly
		}
		return used
	}
	return BeginsAnew
}

// usedBetween says what becomes of what was used of a rule that becomes another.
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
	for i := range was {
		if len(was) != len(is) || !slices.ContainsFunc(choices(was[i]), func(c string) bool { return slices.Contains(choices(is[i]), c) }) {
			return false
		}
	}
	return len(was) > 0 && len(is) > 0
}

// hasNewWindow reports whether a limit has a window of which the counter had another name: those
// after the first are named by it, and the first keeps that of the first, of whatever window.
func hasNewWindow(was, is *middleware.RuleInfo) bool {
	later := func(info *middleware.RuleInfo) []limiter.Limit { return info.Limits[min(1, len(info.Limits)):] }
	had := func(l limiter.Limit) bool {
		return slices.ContainsFunc(later(was), func(other limiter.Limit) bool { return other.Per == l.Per })
	}
	return had(is.Limit) || slices.ContainsFunc(later(is), func(l limiter.Limit) bool { return !had(l) })
}
