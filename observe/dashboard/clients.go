package dashboard

import (
	"cmp"
	"context"
	"errors"
	"hash/maphash"
	"math"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/weirgo/weir/keyfunc"
	"github.com/weirgo/weir/middleware"
	"github.com/weirgo/weir/observe/offenders"
)

// A clientView is a client, as figures, plans of bans and looks show it.
type clientView struct {
	Key    string    `json:"key"` // or its digest
	Digest string    `json:"digest"`
	Ban    *banView  `json:"ban,omitempty"`
	Shared bool      `json:"shared,omitempty"` // other clients have the key too, and a ban would refuse them all
	Seen   *lastSeen `json:"seen,omitempty"`   // of a look

	Claimed bool     `json:"claimed,omitempty"` // any client can send the key, and a ban would lock out its owner
	Senders []string `json:"senders,omitempty"` // the addresses that sent it, to ban instead; the most requests first
	Note    string   `json:"note,omitempty"`    // for who wants to ban the key

	class keyfunc.Class
}

// A lastSeen is when this process saw a client last. Times are Unix milliseconds; 0: not in the last hour.
type lastSeen struct {
	Rule    string `json:"rule,omitempty"`   // that refused it last
	Shadow  bool   `json:"shadow,omitempty"` // the rule is in shadow
	Refused int64  `json:"refused,omitempty"`
	Passed  int64  `json:"passed,omitempty"`
	Missed  bool   `json:"missed,omitempty"` // a request passed after the ban: no limiter looks the key up
}

const (
	recentK = 32              // offenders.Options.K: each key with more than 3% of a rule's refusals is known
	senders = "\x00 of a key" // in place of a rule: the pairs of an address and a key that any client can send
)

// newSketches returns the counts of keys: of the last hour, and of the refusals of the last seconds. The page
// itself decides whether keys are shown.
func newSketches(secret []byte) (hour, recent *offenders.Sketch, err error) {
	if hour, err = offenders.New(offenders.Options{ShowKeys: true, Latest: true, Secret: secret}); err != nil {
		return nil, nil, err
	}
	recent, err = offenders.New(offenders.Options{ShowKeys: true, Secret: secret, K: recentK, Window: judged * time.Second})
	return hour, recent, err
}

// countRefusal counts a refusal by rule i for the client's key. If the rule has one counter for everybody, that is
// the key of another rule. If any client can send the key, it is counted for the address too.
func (d *Dashboard) countRefusal(rules []middleware.RuleResult, i int) {
	hasKey := func(r middleware.RuleResult) bool { return r.Key != "" && r.Class != keyfunc.Shared }
	by := i
	if !hasKey(rules[i]) {
		by = slices.IndexFunc(rules, hasKey)
	}
	switch {
	case rules[i].Rule.Mode == middleware.Shadow:
		return
	case by < 0:
		d.recent.Count(rules[i].Rule.Name, "", true) // of nobody
		return
	}
	d.recent.Count(rules[i].Rule.Name, rules[by].Key, true)
	if rules[by].Class == keyfunc.Claimed {
		if at := slices.IndexFunc(rules, isAddress); at >= 0 {
			d.recent.Count(senders, rules[at].Key+d.sent(rules[by].Key), true)
		}
	}
}

// isAddress reports whether a key is a client's address, as keyfunc.IP returns it.
func isAddress(r middleware.RuleResult) bool {
	if r.Class != keyfunc.Own {
		return false
	}
	_, err := netip.ParseAddr(r.Key)
	if strings.IndexByte(r.Key, '/') >= 0 {
		_, err = netip.ParsePrefix(r.Key)
	}
	return err == nil
}

var seed = maphash.MakeSeed()

// sent is what follows an address in the pair with a key: short, so that the sketch keeps the pair as it is.
func (d *Dashboard) sent(key string) string {
	if _, isDigest := keyfunc.DigestOf(key); !isDigest && len(key) > offenders.LongestKey {
		key = d.digests.Digest(key).Key() // as the sketch knows it
	}
	return " " + strconv.FormatUint(maphash.String(seed, key), 36)
}

// sendersOf returns the addresses, as they are shown, that most refused requests with the key came from in the last
// seconds. It leaves out banned ones.
func (d *Dashboard) sendersOf(key string) (shown []string) {
	most, suffix := uint64(0), d.sent(key)
	for _, o := range d.recent.Top(senders, math.MaxInt) {
		address, ok := strings.CutSuffix(o.Key, suffix)
		n := o.Refused.AtLeast()
		if !ok || 4*n <= most {
			continue
		}
		most = max(most, n)
		banned := false
		if d.options.Bans != nil {
			_, banned = d.options.Bans.Find(address)
		}
		if !banned {
			shown = append(shown, d.shown(address))
		}
	}
	return shown
}

// refusals returns the rules that refused requests in the last seconds, the worst first.
func (d *Dashboard) refusals() []offenders.Rule {
	rules := slices.DeleteFunc(d.recent.Rules(), func(r offenders.Rule) bool { return r.Name == senders })
	slices.SortStableFunc(rules, func(a, b offenders.Rule) int { return cmp.Compare(b.Refused, a.Refused) })
	return rules
}

// spread returns the keys that a rule refused in the last seconds, the most refused first. A long key is a
// keyfunc.Digest.Key. more reports that there may be other keys.
func (d *Dashboard) spread(rule string) (keys []offenders.Offender, more bool) {
	keys = slices.DeleteFunc(d.recent.Top(rule, math.MaxInt), func(o offenders.Offender) bool { return o.Key == "" })
	for i := range keys {
		if digest, ok := keyfunc.ParseDigest(keys[i].Digest); ok && !keys[i].Whole {
			keys[i].Key = digest.Key()
		}
		more = more || keys[i].Refused.Error > 0
	}
	slices.SortStableFunc(keys, func(a, b offenders.Offender) int {
		return cmp.Compare(b.Refused.AtLeast(), a.Refused.AtLeast())
	})
	return keys, more
}

// isShared reports whether the rule has one counter for everybody.
func (d *Dashboard) isShared(rule string) bool {
	most := d.hour.Busiest(rule, 1)
	return len(most) > 0 && (most[0].Key == "" || d.classOf(most[0].Key) == keyfunc.Shared)
}

// viewOf is a client by its key or by keyfunc.Digest.Key.
func (d *Dashboard) viewOf(key string) clientView {
	v := clientView{Key: d.shown(key), Digest: d.digest(key), class: d.classOf(key)}
	if d.options.Bans != nil {
		if ban, ok := d.options.Bans.Find(key); ok {
			view := d.banView(ban, d.rulesByName())
			v.Ban = &view
		}
	}
	switch v.class {
	case keyfunc.Own:
	case keyfunc.Claimed:
		v.Claimed, v.Senders = true, d.sendersOf(key)
	default:
		v.Shared = true
	}
	v.Note = noteOf(&v)
	return v
}

// classOf returns the class of a key in its latest request, or else as far as the key says.
func (d *Dashboard) classOf(key string) keyfunc.Class {
	_, class := keyfunc.Classify(key)
	if key == "global" || key == "no-ip" {
		class = keyfunc.Shared
	}
	var at time.Time
	for i, s := range d.hour.Find(key) {
		latest := later(s.Passed, s.Refused)
		if i == 0 || latest.After(at) || latest.Equal(at) && s.Class != keyfunc.Own {
			at, class = latest, s.Class
		}
	}
	return class
}

func later(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}

// passesAfter is how long after a ban a request may still pass that began before, in milliseconds.
const passesAfter = 5000

// lookUp returns what is known of a client, and what it has left under the operator's rule or, without
// one, under the rule that refuses it. Without a key it looks at the rule's one counter for all.
func (d *Dashboard) lookUp(ctx context.Context, rule, key string) (o outcome, err error) {
	if key == "" {
		o.Counts, err = d.peek(ctx, rule, key)
		return o, err
	}
	o.Client = d.client(key)
	if _, isDigest := keyfunc.DigestOf(key); isDigest && d.store.Kind != "redis" {
		return o, nil // only Redis finds counters by digest
	}
	named := rule != ""
	if rule = cmp.Or(rule, o.Client.Seen.Rule); rule == "" {
		return o, nil
	}
	o.Counts, err = d.peek(ctx, rule, key)
	if !named && errors.Is(err, middleware.ErrNoRule) { // it is no longer in force
		o.Client.Seen.Rule, err = "", nil
	}
	return o, err
}

// client returns what is known of a key.
func (d *Dashboard) client(key string) *clientView {
	key, _ = keyfunc.Classify(key)
	v, seen := d.viewOf(key), &lastSeen{}
	rules := d.rulesByName()
	var passed time.Time
	for _, s := range d.hour.Find(key) {
		passed = later(passed, s.Passed)
		if s.Refused.IsZero() {
			continue
		}
		info := rules[s.Rule]
		inShadow, at := info != nil && info.Mode == middleware.Shadow, s.Refused.UnixMilli()
		if seen.Rule == "" || seen.Shadow && !inShadow || seen.Shadow == inShadow && at > seen.Refused {
			seen.Rule, seen.Shadow, seen.Refused = s.Rule, inShadow, at
		}
	}
	if !passed.IsZero() {
		seen.Passed = passed.UnixMilli()
	}
	seen.Missed = v.Ban != nil && v.Ban.Since > 0 && seen.Passed > v.Ban.Since+passesAfter
	v.Seen = seen
	return &v
}
