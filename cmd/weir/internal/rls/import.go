package rls

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"time"

	"go.yaml.in/yaml/v4"

	"github.com/weirgo/weir/limiter"
	"github.com/weirgo/weir/middleware/rules"
)

// A Source is a configuration file of envoyproxy/ratelimit.
type Source struct {
	Name string
	Text []byte
}

// An Imported is a rules file with the limits of files of envoyproxy/ratelimit.
type Imported struct {
	Text  []byte
	Lost  []string // limits that differ or are missing, with what replaces them
	Notes []string // other settings that are missing
}

// The format of envoyproxy/ratelimit.
type (
	sourceRoot struct {
		Domain      string
		Descriptors []sourceNode
	}
	sourceNode struct {
		Key, Value     string
		RateLimit      *sourceLimit `yaml:"rate_limit"`
		Descriptors    []sourceNode
		ShadowMode     bool `yaml:"shadow_mode"`
		QuotaMode      bool `yaml:"quota_mode"`
		DetailedMetric bool `yaml:"detailed_metric"`
		ValueToMetric  bool `yaml:"value_to_metric"`
		ShareThreshold bool `yaml:"share_threshold"`
	}
	sourceLimit struct {
		RequestsPerUnit uint32 `yaml:"requests_per_unit"`
		Unit            string
		Unlimited       bool
		Name            string
		Replaces        []struct{ Name string }
	}
)

// sourceUnits has the lengths of envoyproxy/ratelimit's units. Its months and years are not the calendar's.
var sourceUnits = map[string]time.Duration{
	"second": time.Second, "minute": time.Minute, "hour": time.Hour, "day": 24 * time.Hour,
	"week": 7 * 24 * time.Hour, "month": 30 * 24 * time.Hour, "year": 365 * 24 * time.Hour,
}

// unlimited is a limit that no client reaches.
var unlimited = limiter.PerSecond(10_000_000).With(limiter.FixedWindow)

// Import translates files of envoyproxy/ratelimit, each with a domain, into a rules file.
func Import(sources []Source) (*Imported, error) {
	im := &importer{names: map[string]bool{}}
	domains := map[string]bool{}
	for _, source := range sources {
		var root sourceRoot
		if err := yaml.Load(source.Text, &root, yaml.WithKnownFields()); err != nil {
			return nil, fmt.Errorf("%s: %w", source.Name, err)
		}
		switch {
		case root.Domain == "":
			return nil, fmt.Errorf("%s: domain is missing: want a file of envoyproxy/ratelimit", source.Name)
		case domains[root.Domain]:
			return nil, fmt.Errorf("%s: there is another file with the domain %q", source.Name, root.Domain)
		}
		domains[root.Domain] = true
		if err := im.check(root.Descriptors, root.Domain+"/"); err != nil {
			return nil, fmt.Errorf("%s: %w", source.Name, err)
		}
		im.domain(root)
	}
	if len(im.lines) == 0 {
		return nil, errors.New("no limit can be translated")
	}
	var text bytes.Buffer
	for _, lost := range slices.Concat(im.Lost, im.Notes) {
		fmt.Fprintf(&text, "# not kept: %s\n", lost)
	}
	fmt.Fprintf(&text, "version: 1\ndescriptors:\n%s", strings.Join(im.lines, ""))
	im.Text = text.Bytes()
	if _, err := rules.Parse(im.Text, rules.Options{}); err != nil {
		return nil, fmt.Errorf("the limits cannot be written as rules: %w", err)
	}
	return &im.Imported, nil
}

type importer struct {
	Imported
	lines []string
	names map[string]bool // of the rules so far
}

func (im *importer) lose(format string, args ...any) {
	im.Lost = append(im.Lost, fmt.Sprintf(format, args...))
}

// is returns the entry of a node as text.
func (n *sourceNode) is() string {
	if n.Value == "" {
		return n.Key
	}
	return n.Key + "=" + n.Value
}

// isWildcard reports whether envoyproxy/ratelimit matches the node by prefix.
func (n *sourceNode) isWildcard() bool { return strings.HasSuffix(n.is(), "*") }

// check returns mistakes that envoyproxy/ratelimit reports too, and notes what rules cannot express.
func (im *importer) check(nodes []sourceNode, of string) error {
	seen := map[string]bool{}
	for i := range nodes {
		n := &nodes[i]
		at := of + n.is()
		switch {
		case n.Key == "":
			return fmt.Errorf("%q: key is missing", of)
		case seen[n.is()]:
			return fmt.Errorf("%q stands twice", at)
		}
		seen[n.is()] = true
		if n.DetailedMetric || n.ValueToMetric {
			im.Notes = append(im.Notes, fmt.Sprintf("%q: its metrics by value; metrics go by the rule's name", at))
		}
		if n.isWildcard() {
			im.lose("%q: a value that ends with *, and all below it; limits without a value apply in its place", at)
			continue
		}
		if err := im.checkLimit(n, at); err != nil {
			return fmt.Errorf("%q: %w", at, err)
		}
		if err := im.check(n.Descriptors, at+","); err != nil {
			return err
		}
	}
	return nil
}

func (im *importer) checkLimit(n *sourceNode, at string) error {
	if n.ShareThreshold {
		return errors.New("share_threshold is for a value that ends with *")
	}
	l := n.RateLimit
	if l == nil {
		return nil
	}
	unit, known := sourceUnits[strings.ToLower(l.Unit)]
	switch {
	case l.Unlimited && l.Unit != "":
		return errors.New("unlimited has no unit")
	case !l.Unlimited && !known:
		return fmt.Errorf("unit is %q: want second, minute, hour, day, week, month or year", l.Unit)
	case l.Unlimited:
	case l.RequestsPerUnit == 0:
		im.lose("%q: requests_per_unit 0, which refuses everything; it is 1", at)
	case n.limit() == unlimited && (unit > time.Second || int64(l.RequestsPerUnit) != unlimited.Events):
		im.lose("%q: %d requests per %s; it is %s", at, l.RequestsPerUnit, l.Unit, unlimited)
	}
	for _, other := range l.Replaces {
		im.lose("%q: replaces %q; both limits apply", at, other.Name)
	}
	if n.QuotaMode {
		im.Notes = append(im.Notes, fmt.Sprintf("%q: quota_mode's metadata about who is over the limit; it is in shadow", at))
	}
	return nil
}

// isLimited reports whether a descriptor that ends at the node has a limit.
func (n *sourceNode) isLimited() bool {
	return n != nil && n.RateLimit != nil && !n.RateLimit.Unlimited
}

func (n *sourceNode) limit() limiter.Limit {
	if !n.isLimited() {
		return unlimited
	}
	l := limiter.Limit{Events: int64(max(1, n.RateLimit.RequestsPerUnit)), Per: sourceUnits[strings.ToLower(n.RateLimit.Unit)], Algorithm: limiter.FixedWindow}
	if l.Validate() != nil { // its rate is too high
		return unlimited
	}
	return l
}

// A pattern has the entries of a descriptor, and their node in the tree, or nil.
type pattern struct {
	entries []rules.Entry
	node    *sourceNode
}

// hides reports whether p applies instead of q to some entries that match both.
func (p *pattern) hides(q *pattern) bool {
	both := slices.EqualFunc(p.entries, q.entries, func(a, b rules.Entry) bool {
		return a.Value == "" || b.Value == "" || a.Value == b.Value
	})
	return both && (&rules.Descriptor{Entries: p.entries}).CompareExactness(&rules.Descriptor{Entries: q.entries}) < 0
}

// domain writes the limits of a tree. envoyproxy/ratelimit walks a tree from the root and never back. So
// a node with a value hides limits without a value, even if the node has no limit. Rules have no tree, so
// domain writes such a node as the limit unlimited.
func (im *importer) domain(root sourceRoot) {
	for _, keys := range shapes(root.Descriptors, nil) {
		found := patterns(root.Descriptors, keys, nil)
		for i := range found {
			p := &found[i]
			hidden := func(q pattern) bool { return q.node.isLimited() && p.hides(&q) }
			if p.node.isLimited() || slices.ContainsFunc(found, hidden) {
				im.write(root.Domain, p)
			}
		}
	}
}

// shapes returns the lists of keys that have a limit.
func shapes(nodes []sourceNode, above []string) (all [][]string) {
	for i := range nodes {
		n := &nodes[i]
		if n.isWildcard() {
			continue
		}
		keys := append(slices.Clone(above), n.Key)
		below := shapes(n.Descriptors, keys)
		if n.isLimited() {
			below = append([][]string{keys}, below...)
		}
		for _, keys := range below {
			if !slices.ContainsFunc(all, func(known []string) bool { return slices.Equal(known, keys) }) {
				all = append(all, keys)
			}
		}
	}
	return all
}

// patterns returns the ends of all paths through the tree whose entries have these keys.
func patterns(nodes []sourceNode, keys []string, above []rules.Entry) (all []pattern) {
	open := true // no node matches all values
	for i := range nodes {
		n := &nodes[i]
		if n.Key != keys[0] || n.isWildcard() {
			continue
		}
		open = open && n.Value != ""
		entries := append(slices.Clone(above), rules.Entry{Key: n.Key, Value: n.Value})
		if len(keys) == 1 {
			all = append(all, pattern{entries, n})
		} else {
			all = append(all, patterns(n.Descriptors, keys[1:], entries)...)
		}
	}
	if open {
		entries := slices.Clone(above)
		for _, key := range keys {
			entries = append(entries, rules.Entry{Key: key})
		}
		all = append(all, pattern{entries, nil})
	}
	return all
}

var nameOfRule = regexp.MustCompile(`^[!-~]([ -~]{0,126}[!-~])?$`)

// write writes a limit as a line of the section descriptors.
func (im *importer) write(domain string, p *pattern) {
	parts, texts := make([]string, len(p.entries)), make([]string, len(p.entries))
	for i, e := range p.entries {
		texts[i] = (&sourceNode{Key: e.Key, Value: e.Value}).is()
		if parts[i] = "{key: " + scalar(e.Key); e.Value != "" {
			parts[i] += ", value: " + scalar(e.Value)
		}
		parts[i] += "}"
	}
	fields := "domain: " + scalar(domain) + ", entries: [" + strings.Join(parts, ", ") + "]"
	own := domain + "/" + strings.Join(texts, ",") // the rule's name if the source has none
	name := own
	if p.node.isLimited() {
		name = cmp.Or(p.node.RateLimit.Name, own)
	}
	if im.names[name] && name != own {
		im.Notes = append(im.Notes, fmt.Sprintf("%q: the name %q, which another limit has too", own, name))
		name = own
	}
	if !nameOfRule.MatchString(name) || im.names[name] {
		name = fmt.Sprintf("descriptor %d", len(im.lines)+1)
	}
	im.names[name] = true
	if name != own {
		fields += ", name: " + scalar(name)
	}
	fields += ", limit: " + p.node.limit().String()
	switch {
	case !p.node.isLimited():
		im.lines = append(im.lines, "  - {"+fields+", mode: shadow} # unlimited\n")
		return
	case p.node.ShadowMode || p.node.QuotaMode:
		fields += ", mode: shadow"
	}
	im.lines = append(im.lines, "  - {"+fields+"}\n")
}

var plain = regexp.MustCompile(`^[A-Za-z][A-Za-z0-9_./-]*$`)

// scalar returns a text as YAML, in quotes if YAML might read it as another type.
func scalar(text string) string {
	switch strings.ToLower(text) {
	case "true", "false", "yes", "no", "on", "off", "y", "n", "null":
	default:
		if plain.MatchString(text) {
			return text
		}
	}
	quoted, _ := json.Marshal(text) // YAML reads JSON
	return string(quoted)
}
