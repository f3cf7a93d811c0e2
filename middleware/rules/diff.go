package rules

import (
	"cmp"
	"encoding"
	"fmt"
	"log/slog"
	"maps"
	"net/http"
	"reflect"
	"slices"
	"strconv"
	"strings"

	"github.com/weirgo/weir/internal/route"
	"github.com/weirgo/weir/limiter"
	"github.com/weirgo/weir/middleware"
)

// A Change is one thing that other rules change, and for which requests.
type Change struct {
	Section string `json:"section"`        // of the file: endpoints, ban
	For     string `json:"for"`            // which requests, in words: GET /search, tier free
	Rule    string `json:"rule,omitempty"` // that it is of; after the change
	Tier    string `json:"tier,omitempty"` // that it is for, of a rule with other limits for some tiers
	Field   string `json:"field"`          // what changes: limit, key, escalate.after; rule: all of it
	Old     string `json:"old,omitempty"`  // empty: there was none
	New     string `json:"new,omitempty"`  // empty: there is none
	Used    Used   `json:"used,omitempty"` // what becomes of what was used of the limit
	Says    string `json:"says"`           // all that, in words
}

// Used says what becomes of what was used of a limit that changes.
type Used string

const (
	StaysUsed   Used = "stays used"
	BeginsAnew  Used = "begins anew"
	UsedBySame  Used = "stays used where the key is the same"                     // of a key that has a choice, such as user|ip
	UsedPartly  Used = "stays used, but of windows that are new or the first now" // of a rule with several limits
	notAboutUse Used = ""
)

// Diff tells what changes where after takes the place of before, in the order of a file. It goes
// by what rules say and not by how they are written: a limit of 60/1m and one of 60 in 60 s are
// the same. Keys of requests are counted and not quoted, as they may be credentials.
func Diff(before, after *Rules) []Change {
	d := &differ{old: before, new: after, oldInfos: before.infos(), newInfos: after.infos()}
	d.mode()
	d.section("proxies", before.file.Proxies, after.file.Proxies)
	d.section("ban", before.file.Ban, after.file.Ban)
	d.section("allow", before.file.Allow, after.file.Allow)
	d.rules()
	d.section("overload", before.file.Overload, after.file.Overload)
	d.section("soft", before.file.Soft, after.file.Soft)
	d.section("headers", before.file.Headers, after.file.Headers)
	d.section("refusal", before.file.Refusal, after.file.Refusal)
	return d.changes
}

// A differ is a comparison under way.
type differ struct {
	old, new           *Rules
	oldInfos, newInfos map[string]map[string]middleware.RuleInfo // by name and tier
	changes            []Change
}

// infos are the rules that are not off, by name and tier.
func (r *Rules) infos() map[string]map[string]middleware.RuleInfo {
	config := r.Config()
	config.Store = nopStore{}
	config.Logger = slog.New(slog.DiscardHandler)
	all := map[string]map[string]middleware.RuleInfo{}
	limits, err := middleware.New(config)
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

// add notes a change, whose Says becomes "For: what it says; what was used ...".
func (d *differ) add(c Change) {
	subject := c.For
	if c.Tier != "" {
		subject += " for tier " + c.Tier
	}
	c.Says = subject + ": " + c.Says
	if c.Used != notAboutUse {
		c.Says += "; what was used " + string(c.Used)
	}
	d.changes = append(d.changes, c)
}

func (d *differ) mode() {
	before, after := d.old.file.Mode, d.new.file.Mode
	if before == after {
		return
	}
	says := "nothing is refused from now on (mode: shadow)"
	if !after.shadow {
		says = "rules refuse from now on (mode: enforce)"
	}
	d.add(Change{Section: "mode", For: "all requests", Field: "mode", Old: before.String(), New: after.String(), Says: says})
}

// sectionFor says which requests a section is about, and sectionNote what follows from a change of it.
var (
	sectionFor  = map[string]string{"ban": "banned clients", "allow": "clients and routes that are never limited"}
	sectionNote = map[string]string{"proxies": ", so that addresses of clients may be read otherwise, and counted anew"}
)

// section compares a section that has no rules.
func (d *differ) section(name string, before, after any) {
	subject := cmp.Or(sectionFor[name], "all requests")
	d.fields(reflect.ValueOf(before), reflect.ValueOf(after), name, func(field, before, after, says string) {
		d.add(Change{Section: name, For: subject, Field: field, Old: before, New: after, Says: says + sectionNote[name]})
	})
}

// fields tells of what differs between two pointers to structs that a document was read into.
func (d *differ) fields(before, after reflect.Value, path string, tell func(field, before, after, says string)) {
	switch {
	case before.IsNil() && after.IsNil():
	case before.IsNil() || after.IsNil():
		was, is := whole(before), whole(after)
		tell(path, was, is, fmt.Sprintf("%s: %s → %s", path, cmp.Or(was, "none"), cmp.Or(is, "none")))
	default:
		for name, f := range fieldsOf(before.Elem().Type()) {
			d.field(before.Elem().FieldByIndex(f.Index), after.Elem().FieldByIndex(f.Index), path+"."+name, f.Tag.Get("default"), tell)
		}
	}
}

// field tells of what differs in one of those fields.
func (d *differ) field(before, after reflect.Value, path, fallback string, tell func(field, before, after, says string)) {
	t := before.Type()
	switch {
	case t.Kind() == reflect.Pointer && isSection(t.Elem()):
		d.fields(before, after, path, tell)
	case path == "ban.keys" || path == "allow.keys":
		left, come := without(textsOf(before), textsOf(after)), without(textsOf(after), textsOf(before))
		if len(left)+len(come) > 0 {
			tell(path, counted(before.Len(), "key"), counted(after.Len(), "key"), fmt.Sprintf("%s: %d more, %d fewer", path, len(come), len(left)))
		}
	case path == "ban.file" || path == "allow.file":
		was, is := before.String(), after.String()
		if was != is {
			tell(path, was, is, fmt.Sprintf("%s: %s → %s", path, cmp.Or(was, "none"), cmp.Or(is, "none")))
		} else if d.old.sums[was] != d.new.sums[is] {
			tell(path, was, is, fmt.Sprintf("%s: what is in %s changes", path, is))
		}
	case t.Kind() == reflect.Slice && path != "overload.priority": // of which the order means something
		for _, text := range without(textsOf(before), textsOf(after)) {
			tell(path, text, "", path+": no longer "+text)
		}
		for _, text := range without(textsOf(after), textsOf(before)) {
			tell(path, "", text, path+": "+text+" too")
		}
	default:
		was, is := textOf(before, fallback), textOf(after, fallback)
		if was != is {
			tell(path, was, is, fmt.Sprintf("%s: %s → %s", path, cmp.Or(was, "none"), cmp.Or(is, "none")))
		}
	}
}

func counted(n int, what string) string {
	switch n {
	case 0:
		return ""
	case 1:
		return "1 " + what
	}
	return fmt.Sprintf("%d %ss", n, what)
}

// without are the texts of a that are not in b.
func without(a, b []string) (only []string) {
	for _, text := range a {
		if !slices.Contains(b, text) && !slices.Contains(only, text) {
			only = append(only, text)
		}
	}
	return only
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

// whole is all that is written in a struct, in one line; "" of nil.
func whole(v reflect.Value) string {
	if v.IsNil() {
		return ""
	}
	var parts []string
	for name, f := range fieldsOf(v.Elem().Type()) {
		inner := v.Elem().FieldByIndex(f.Index)
		switch {
		case inner.IsZero():
		case name == "keys":
			parts = append(parts, counted(inner.Len(), "key"))
		case inner.Kind() == reflect.Pointer && isSection(inner.Type().Elem()):
			parts = append(parts, name+" "+whole(inner))
		default:
			parts = append(parts, name+" "+textOf(inner, ""))
		}
	}
	return cmp.Or(strings.Join(parts, ", "), "{}")
}

// textsOf are the elements of a slice.
func textsOf(v reflect.Value) (list []string) {
	for i := range v.Len() {
		list = append(list, textOf(v.Index(i), ""))
	}
	return list
}

// textOf is a value as it is written, or what stands for it where it is not: "" for nothing.
func textOf(v reflect.Value, fallback string) string {
	if v.Kind() == reflect.Pointer {
		if v.IsNil() {
			return fallbackOf(v.Type().Elem(), fallback)
		}
		v = v.Elem()
	}
	if text, ok := v.Interface().(fmt.Stringer); ok {
		return text.String()
	}
	switch v.Kind() {
	case reflect.Slice:
		return cmp.Or(strings.Join(textsOf(v), ", "), fallback)
	case reflect.String:
		return cmp.Or(v.String(), fallback)
	}
	return fmt.Sprint(v.Interface())
}

// fallbackOf is the text of a default, spelled as values are.
func fallbackOf(t reflect.Type, fallback string) string {
	v := reflect.New(t)
	if reader, ok := v.Interface().(encoding.TextUnmarshaler); ok && reader.UnmarshalText([]byte(fallback)) == nil {
		return textOf(v.Elem(), fallback)
	}
	return fallback
}

// subject is the requests that a rule is for, in words.
func (p *placed) subject() (text string) {
	switch p.section {
	case "global":
		text = "all requests"
	case "tiers":
		text = "tier " + p.of
	case "endpoints":
		text = p.of
	default:
		text = "requests without an endpoint"
	}
	if len(p.place.rules) > 1 {
		text += fmt.Sprintf(", rule %q", p.name)
	}
	return text
}

// rules compares all rules: first those of one name at one place, then those of one name, then
// those at one place, which got another name.
func (d *differ) rules() {
	before, after := d.old.file.placed(d.old.doc), d.new.file.placed(d.new.doc)
	of := make([]int, len(after)) // which was it before; -1: none
	taken := map[int]bool{}
	for i := range of {
		of[i] = -1
	}
	for _, same := range []func(a, b *placed) bool{
		func(a, b *placed) bool { return a.name == b.name && a.section == b.section && a.of == b.of },
		func(a, b *placed) bool { return a.name == b.name },
		func(a, b *placed) bool { return a.section == b.section && a.of == b.of },
	} {
		for i := range after {
			for j := range before {
				if of[i] < 0 && !taken[j] && same(&before[j], &after[i]) {
					of[i], taken[j] = j, true
				}
			}
		}
	}
	for _, section := range []string{"global", "tiers", "endpoints", "default"} {
		for j := range before {
			if b := &before[j]; !taken[j] && b.section == section {
				d.gone(b)
			}
		}
		for i := range after {
			switch a := &after[i]; {
			case a.section != section:
			case of[i] < 0:
				d.come(a)
			default:
				d.rule(&before[of[i]], a)
			}
		}
	}
}

// told is what a rule does, in a few words.
func (p *placed) told(infos map[string]map[string]middleware.RuleInfo) string {
	switch {
	case p.Mode.off:
		return "switched off"
	case p.Mode.deny:
		return "every request is denied"
	}
	info := infos[p.name][""]
	text := info.LimitText() + ", " + keyWords(p.parts)
	for _, tier := range slices.Sorted(maps.Keys(p.Tiers)) {
		info := infos[p.name][tier]
		text += fmt.Sprintf(", %s for tier %s", info.LimitText(), tier)
	}
	if p.Mode.shadow {
		text += ", in shadow"
	}
	return text
}

func keyWords(parts []string) string {
	if len(parts) == 0 {
		return "one counter for all"
	}
	return "key " + told(" and ", parts)
}

func (d *differ) come(a *placed) {
	is := a.told(d.newInfos)
	d.add(Change{
		Section: a.section, For: a.subject(), Rule: a.name, Field: "rule", New: is,
		Says: "a new rule, " + is + d.instead(d.old, a, "; until now "),
	})
}

func (d *differ) gone(b *placed) {
	was := b.told(d.oldInfos)
	d.add(Change{
		Section: b.section, For: b.subject(), Rule: b.name, Field: "rule", Old: was,
		Says: "no such rule any more, which was " + was + d.instead(d.new, b, "; from now on "),
	})
}

// instead says what else in those rules is for the requests of an endpoint, or for all that
// had one of the default.
func (d *differ) instead(in *Rules, p *placed, when string) string {
	if p.section != "endpoints" {
		return ""
	}
	if _, also := in.file.Endpoints[p.of]; also {
		return "" // other rules are at that place
	}
	pattern, err := route.ParseRule(p.of)
	if err != nil {
		return ""
	}
	path := strings.NewReplacer("{$}", "", "*", "x").Replace(pattern.Path)
	if pattern.Below {
		path = strings.TrimSuffix(path, "/") + "/x"
	}
	host := strings.Replace(pattern.Host, "*", "x", 1)
	found, err := in.Explain(Request{Method: cmp.Or(pattern.Method, http.MethodGet), Path: path, Host: host})
	if err != nil {
		return ""
	}
	var others []string
	for _, step := range found.Steps {
		if step.Section == "endpoints" || step.Section == "default" {
			others = append(others, fmt.Sprintf("%q, %s", step.Rule, cmp.Or(step.Limit, "which denies")))
		}
	}
	if len(others) == 0 {
		return when + "no endpoint and no default is for them"
	}
	return when + strings.Join(others, " and ")
}

// rule compares two that are one.
func (d *differ) rule(b, a *placed) {
	tell := func(c Change) {
		c.Section, c.For, c.Rule = a.section, a.subject(), a.name
		if a.Mode.off && b.Mode.off {
			c.Used, c.Says = notAboutUse, c.Says+" (it is off)"
		}
		d.add(c)
	}
	used := StaysUsed
	if a.name != b.name {
		used = BeginsAnew
		tell(Change{Field: "name", Old: b.name, New: a.name, Used: used, Says: fmt.Sprintf("the rule %q is named %q", b.name, a.name)})
	}
	if a.section != b.section || a.of != b.of {
		tell(Change{Field: "place", Old: b.subject(), New: a.subject(), Used: used, Says: fmt.Sprintf("the rule %q, which was for %s", a.name, b.subject())})
	}
	if was, is := keyWords(b.parts), keyWords(a.parts); !slices.Equal(b.parts, a.parts) {
		if used == StaysUsed && canBeSame(b.parts, a.parts) {
			used = UsedBySame
		} else {
			used = BeginsAnew
		}
		tell(Change{Field: "key", Old: strings.TrimPrefix(was, "key "), New: strings.TrimPrefix(is, "key "), Used: used, Says: was + " → " + is})
	}
	active := func(p *placed) bool { return !p.Mode.off && !p.Mode.deny }
	if was, is := b.Mode.String(), a.Mode.String(); was != is {
		says := "mode: " + was + " → " + is
		if active(a) && !active(b) {
			says += ", " + a.told(d.newInfos)
		}
		tell(Change{Field: "mode", Old: was, New: is, Says: says})
	}
	if active(a) && active(b) {
		d.limits(b, a, used, tell)
		d.overrides(b, a, used, tell)
	} else if !active(a) && !active(b) { // what is written of limits has no effect
		was, is := limitWords(b.rule), limitWords(a.rule)
		if was != is {
			tell(Change{Field: "limit", Old: was, New: is, Says: fmt.Sprintf("limit: %s → %s", cmp.Or(was, "none"), cmp.Or(is, "none"))})
		}
	}
	compared := []string{"name", "key", "mode", "tiers", "overrides", "limit", "limits", "requests", "window", "algorithm", "burst", "concurrency"}
	for name, f := range fieldsOf(reflect.TypeFor[rule]()) {
		if slices.Contains(compared, name) {
			continue
		}
		before, after := reflect.ValueOf(b.rule).Elem().FieldByIndex(f.Index), reflect.ValueOf(a.rule).Elem().FieldByIndex(f.Index)
		d.field(before, after, name, f.Tag.Get("default"), func(field, was, is, says string) {
			tell(Change{Field: field, Old: was, New: is, Says: says})
		})
	}
}

// canBeSame reports whether a request can have one key by both: a choice does not show in a key.
func canBeSame(was, is []string) bool {
	if len(was) != len(is) {
		return false
	}
	for i := range was {
		if len(without(choices(was[i]), choices(is[i]))) == len(choices(was[i])) {
			return false
		}
	}
	return true
}

// limitWords is all that is written of a rule's limits.
func limitWords(r *rule) string {
	parts := []string{whole(reflect.ValueOf(&r.limitFields))}
	for _, tier := range slices.Sorted(maps.Keys(r.Tiers)) {
		f := r.Tiers[tier]
		parts = append(parts, "tier "+tier+" "+whole(reflect.ValueOf(&f)))
	}
	if n := len(r.Overrides); n > 0 {
		parts = append(parts, counted(n, "key"))
	}
	return strings.TrimPrefix(strings.Join(parts, ", "), "{}")
}

// limits compares the limit of a rule, in each of its tiers.
func (d *differ) limits(b, a *placed, used Used, tell func(Change)) {
	tiers := slices.Concat([]string{""}, slices.Collect(maps.Keys(b.Tiers)), slices.Collect(maps.Keys(a.Tiers)))
	slices.Sort(tiers)
	for _, tier := range slices.Compact(tiers) {
		was, had := d.oldInfos[b.name][tier]
		is, has := d.newInfos[a.name][tier]
		used := used
		says := [2]string{}
		if !had {
			was, says[0] = d.oldInfos[b.name][""], ", as in no tier"
		}
		if !has {
			is, says[1] = d.newInfos[a.name][""], ", as in no tier"
		}
		if had != has {
			used = BeginsAnew // a tier with a limit of its own has a counter of its own
		}
		if had == has && sameLimits(&was, &is) {
			continue
		}
		if used == StaysUsed && hasNewWindow(&was, &is) {
			used = UsedPartly
		}
		key := ""
		if slices.Equal(b.parts, a.parts) {
			key = ", " + keyWords(a.parts) + " as before"
		}
		tell(Change{
			Tier: tier, Field: "limit", Old: limitOf(&was), New: limitOf(&is), Used: used,
			Says: limitOf(&was) + says[0] + " → " + limitOf(&is) + says[1] + key,
		})
	}
}

// limitOf is the limit, with the requests that wait for a place.
func limitOf(info *middleware.RuleInfo) string {
	text := info.LimitText()
	if of := info.Concurrency; of.Queue > 0 {
		text += fmt.Sprintf(", %d more wait up to %v", of.Queue, of.MaxWait)
	}
	return text
}

func sameLimits(a, b *middleware.RuleInfo) bool {
	return a.Limit == b.Limit && slices.Equal(a.Limits, b.Limits) && a.Concurrency == b.Concurrency
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

// overrides compares the limits of single keys, which are counted and not named.
func (d *differ) overrides(b, a *placed, used Used, tell func(Change)) {
	before, after := ruleNamed(&d.old.config, b.name), ruleNamed(&d.new.config, a.name)
	if before == nil || after == nil {
		return
	}
	type change struct{ was, is limiter.Limit }
	counts := map[change]int{}
	for key, was := range before.Overrides {
		if is := after.Overrides[key]; is != was {
			counts[change{was, is}]++
		}
	}
	for key, is := range after.Overrides {
		if _, had := before.Overrides[key]; !had {
			counts[change{is: is}]++
		}
	}
	text := func(l limiter.Limit) string {
		if l == (limiter.Limit{}) {
			return "none of its own"
		}
		return l.String()
	}
	changes := slices.SortedFunc(maps.Keys(counts), func(a, b change) int {
		return cmp.Or(strings.Compare(text(a.was), text(b.was)), strings.Compare(text(a.is), text(b.is)))
	})
	for _, c := range changes {
		keys := "one key"
		if n := counts[c]; n > 1 {
			keys = strconv.Itoa(n) + " keys"
		}
		tell(Change{Field: "overrides", Old: text(c.was), New: text(c.is), Used: used, Says: fmt.Sprintf("the limit of %s: %s → %s", keys, text(c.was), text(c.is))})
	}
}
