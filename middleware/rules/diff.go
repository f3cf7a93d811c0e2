package rules

import (
	"cmp"
	"encoding"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"

	"github.com/weirgo/weir/internal/operate"
	"github.com/weirgo/weir/internal/yamlfile"
	"github.com/weirgo/weir/limiter"
)

// A Change is a rule, or a section without rules, that came, went or changed between two rules files.
type Change struct {
	Path string `json:"path"` // such as endpoints."GET /search", or ban
	Text string `json:"text"` // none → 5/1s, key ip; or the fields that changed: limit 30/1m → 60/1m, key ip → user
}

// String is the change in one line.
func (c Change) String() string { return c.Path + ": " + c.Text }

// Diff returns the changes from before to after, in the order of a file, one for each rule. It compares meanings: 60/1m
// and 60 requests in 60 seconds are equal. Of clients' keys in the rules (ban, allow, overrides) it
// says how many changed, and never quotes them, as they may be credentials.
func Diff(before, after *Rules) (changes []Change) {
	was, is := before.described(), after.described()
	order := slices.DeleteFunc(namesOf(reflect.TypeFor[file]()), func(name string) bool { return slices.Contains(ruleSections, name) })
	order = append(order, ruleSections...)
	section := func(path string) int {
		return slices.IndexFunc(order, func(name string) bool { return strings.HasPrefix(path, name) })
	}
	paths := slices.AppendSeq(slices.Collect(maps.Keys(was)), maps.Keys(is))
	slices.SortFunc(paths, func(a, b string) int { return cmp.Or(section(a)-section(b), strings.Compare(a, b)) })
	for _, path := range slices.Compact(paths) {
		b, a := was[path], is[path]
		all := compare(b, a)
		if b == nil || a == nil { // a rule, whose first leaf is a summary
			summary := slices.Concat(b, a)[0].shown
			all = []difference{{"", none, summary}}
			if a == nil {
				all[0].old, all[0].new = summary, none
			}
		}
		var texts []string
		for _, d := range all {
			texts = append(texts, strings.TrimSpace(d.path+" "+d.old+" → "+d.new))
		}
		if texts != nil {
			changes = append(changes, Change{path, strings.Join(texts, ", ")})
		}
	}
	return changes
}

// A difference is a leaf, or a list of them, that differs.
type difference struct{ path, old, new string }

const none = "none"

// A leaf is a value in a file, or an element of a list: the text to compare, which is "" for no value, and
// the text to show.
type leaf struct{ path, value, shown string }

// compare has a difference for each path whose leaves differ.
func compare(before, after []leaf) (all []difference) {
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
		d := difference{l.path, cmp.Or(was, none), cmp.Or(is, none)}
		if d.old == d.new {
			d.new += ", with other contents"
		}
		all = append(all, d)
	}
	return all
}

// leavesOf returns the leaves of a value of a file. A nil pointer to a struct has the leaves of an empty
// struct.
func (r *Rules) leavesOf(path string, v reflect.Value, fallback string) (all []leaf) {
	t := v.Type()
	switch {
	case t.Kind() == reflect.Pointer && yamlfile.IsObject(t.Elem()) && !t.Implements(reflect.TypeFor[fmt.Stringer]()):
		if v.IsNil() {
			v = reflect.New(t.Elem())
		}
		return r.leavesIn(path+".", v.Elem())
	case path == "ban.keys", path == "allow.keys":
		return []leaf{{path, textOf(v, ""), operate.Count(int64(v.Len()), "key", "keys")}}
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
	for _, f := range yamlfile.FieldsOf(v.Type()) {
		if !slices.Contains(except, f.Name) {
			all = append(all, r.leavesOf(prefix+f.Name, v.FieldByIndex(f.Index), f.Tag.Get("default"))...)
		}
	}
	return all
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

// described returns the leaves of each section without rules, and of each rule by its path. If a scope has several rules,
// the paths after the first end with the rule's name.
func (r *Rules) described() map[string][]leaf {
	all := map[string][]leaf{}
	for _, l := range r.leavesIn("", reflect.ValueOf(r.file).Elem(), append([]string{"version"}, ruleSections...)...) {
		section, field, _ := strings.Cut(l.path, ".")
		all[section] = append(all[section], leaf{field, l.value, l.shown})
	}
	if r.file.Overload != nil {
		all["overload"] = append(all["overload"], leaf{"", "{}", "{}"})
	}
	rules := r.rules()
	for _, at := range r.descriptorScopes {
		rules = append(rules, &at.rules[0])
	}
	for _, p := range rules {
		at := p.scope.path
		if p.section == "descriptors" {
			at = []string{p.section, p.of} // wherever in the list
		}
		path := yamlfile.Join(at)
		if all[path] != nil {
			path = yamlfile.Join(sub(at, p.name))
		}
		all[path] = r.ofRule(p)
	}
	return all
}

// ofRule returns a summary of a rule and its leaves, by field.
func (r *Rules) ofRule(p *scopedRule) (leaves []leaf) {
	key, mode := cmp.Or(keyText(" and ", p.parts), "one counter for all"), cmp.Or(p.Mode, "enforce")
	summary := "mode " + mode
	if p.active() {
		summary = limitOf(p.made.Limit) + ", key " + key
	}
	add := func(field, value, shown string) { leaves = append(leaves, leaf{field, value, shown}) }
	add("", "", summary)
	add("name", p.name, p.name)
	add("key", key, key)
	add("mode", mode, mode)
	if p.fromRequest {
		add("limit_from_request", "true", "true")
	}
	limits := p.limits()
	for _, tier := range slices.Sorted(maps.Keys(limits)) {
		field := "limit"
		if tier != "" {
			field = yamlfile.Join([]string{"tiers", tier, "limit"})
		}
		add(field, limitOf(limits[tier]), limitOf(limits[tier]))
	}
	var own strings.Builder
	for _, key := range slices.Sorted(maps.Keys(p.made.Overrides)) {
		o := p.made.Overrides[key]
		fmt.Fprintln(&own, key, limitOf(o.Limit)+operate.Ends(o.Until, o.Because))
	}
	add("overrides", own.String(), operate.Count(int64(len(p.made.Overrides)), "key", "keys"))
	return append(leaves, r.others(p.rule)...)
}

// others are the leaves of a rule's fields beside its name, key, mode and limits.
func (r *Rules) others(of *rule) []leaf {
	except := append([]string{"name", "key", "mode", "tiers", "overrides", "concurrency"}, limitNames...)
	return r.leavesIn("", reflect.ValueOf(of).Elem(), except...)
}

// saidBy lists a rule's fields beside its limits that are not the default.
func (r *Rules) saidBy(p *scopedRule) (fields []string) {
	if p.rule == nil {
		return nil
	}
	for _, d := range compare(r.others(&rule{}), r.others(p.rule)) {
		fields = append(fields, d.path+": "+d.new)
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

// namesOf returns the names of a struct's fields in a file.
func namesOf(t reflect.Type) (names []string) {
	for _, f := range yamlfile.FieldsOf(t) {
		names = append(names, f.Name)
	}
	return names
}
