package dashboard

import (
	"cmp"
	"context"
	"errors"
	"time"

	"github.com/weirgo/weir/keyfunc"
	"github.com/weirgo/weir/middleware"
)

// A clientView is what this process knows of one key.
type clientView struct {
	Key    string `json:"key"` // as it is shown
	Digest string `json:"digest"`

	// The rule that refused it last.
	Rule   string `json:"rule,omitempty"`
	Shadow bool   `json:"shadow,omitempty"` // of the rule

	// When it was last refused, and when a request of its last passed, in Unix milliseconds. 0: not
	// since the process follows it, which begins with the first refusal or look.
	Refused int64 `json:"refused,omitempty"`
	Passed  int64 `json:"passed,omitempty"`

	Ban    *banView `json:"ban,omitempty"`
	Missed bool     `json:"missed,omitempty"` // a request passed after it was banned: no limiter looks the key up
}

// passesAfter is how long after a ban a request may pass that was on its way, in milliseconds.
const passesAfter = 5000

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
	v := &clientView{Key: d.shown(key), Digest: d.digest(key)}
	if _, isDigest := keyfunc.DigestOf(key); !isDigest {
		d.followed.follow(key, d.now())
	}
	last, _ := d.followed.of(key)
	v.Passed = d.at(last.passed)
	if last.by != nil {
		v.Rule, v.Shadow, v.Refused = last.by.rule, last.shadow, d.at(last.refused)
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
