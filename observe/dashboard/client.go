package dashboard

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"time"

	"github.com/weirgo/weir/keyfunc"
	"github.com/weirgo/weir/middleware"
)

// A clientView is what this process knows of one key.
type clientView struct {
	Key    string `json:"key"` // as it is shown
	Digest string `json:"digest"`

	// The rule that refused it last or, if that is not known, most in the last hour.
	Rule   string `json:"rule,omitempty"`
	Shadow bool   `json:"shadow,omitempty"` // of the rule

	// When it was last refused, and when a request of its last passed, in Unix milliseconds. 0: not
	// since the process follows it, which begins with the first refusal or look.
	Refused int64 `json:"refused,omitempty"`
	Passed  int64 `json:"passed,omitempty"`

	Hour []clientHour `json:"hour,omitempty"` // of rules that have the key among their offenders

	Ban    *banView `json:"ban,omitempty"`
	Missed bool     `json:"missed,omitempty"` // a request passed after it was banned: no limiter looks the key up
}

type clientHour struct {
	Rule    string `json:"rule"`
	Asked   uint64 `json:"asked"`
	Refused uint64 `json:"refused"`
	Error   uint64 `json:"error,omitempty"` // by which both may be too high
}

const (
	maxHours = 8

	// passesAfter is how long after a ban a request may pass that was on its way, in milliseconds.
	passesAfter = 5000
)

// lookUp is what is known of a client, and what it has left under a rule: the operator's or,
// without one, the rule that refuses it. Without a key it is the rule's one counter for all.
func (d *Dashboard) lookUp(ctx context.Context, rule, key string) (o outcome, err error) {
	if key == "" {
		o.Counts, err = d.peek(ctx, rule, key)
		return o, err
	}
	o.Client = d.client(key)
	if _, isDigest := keyfunc.DigestOf(key); isDigest && d.store.Kind != "redis" {
		return o, nil // only Redis finds counters by it
	}
	named := rule != ""
	if rule = cmp.Or(rule, o.Client.Rule); rule == "" {
		return o, nil
	}
	o.Counts, err = d.peek(ctx, rule, key)
	if !named && errors.Is(err, middleware.ErrNoRule) { // it is no longer in force
		o.Client.Rule, err = "", nil
	}
	return o, err
}

// client is what is known of a key, which is followed from now on.
func (d *Dashboard) client(key string) *clientView {
	key, _ = keyfunc.Classify(key)
	v := &clientView{Key: d.clickable(key), Digest: d.digest(key)}
	if _, isDigest := keyfunc.DigestOf(key); !isDigest {
		d.followed.follow(key, d.now())
	}
	last, _ := d.followed.of(key)
	v.Passed = d.at(last.passed)
	v.Hour = d.hourOf(v.Digest)
	switch {
	case last.by != nil:
		v.Rule, v.Shadow, v.Refused = last.by.rule, last.shadow, d.at(last.refused)
	case len(v.Hour) > 0 && v.Hour[0].Refused > 0:
		v.Rule = v.Hour[0].Rule
	}
	if d.options.Bans != nil {
		if ban, ok := d.options.Bans.Find(key); ok {
			ban := d.banView(ban, d.rulesByName())
			v.Ban = &ban
			v.Missed = ban.Since > 0 && v.Passed > ban.Since+passesAfter
		}
	}
	return v
}

// at is when a second of this page began, in Unix milliseconds; 0 of 0.
func (d *Dashboard) at(second int64) int64 {
	if second == 0 {
		return 0
	}
	return d.start.Add(time.Duration(second) * time.Second).UnixMilli()
}

// hourOf is the last hour of a key, from the rules' offenders, the worst first.
func (d *Dashboard) hourOf(digest string) (hour []clientHour) {
	top := d.options.Offenders
	if top == nil {
		return nil
	}
	for _, rule := range top.Rules() {
		for _, o := range top.Busiest(rule.Name, topKeys*topKeys) {
			if o.Digest == digest {
				hour = append(hour, clientHour{rule.Name, o.All.N, o.Refused.N, max(o.All.Error, o.Refused.Error)})
			}
		}
	}
	slices.SortStableFunc(hour, func(a, b clientHour) int {
		return cmp.Or(cmp.Compare(b.Refused, a.Refused), cmp.Compare(b.Asked, a.Asked))
	})
	return hour[:min(len(hour), maxHours)]
}
