package dashboard

import (
	"cmp"
	"context"
	"errors"
	"time"

	"github.com/weirgo/weir/keyfunc"
	"github.com/weirgo/weir/middleware"
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
}

// A lastSeen is what this process knows of a client's last requests. Times are Unix milliseconds; 0:
// not since the process follows the client, which begins with the first refusal or look.
type lastSeen struct {
	Rule    string `json:"rule,omitempty"`   // that refused it last
	Shadow  bool   `json:"shadow,omitempty"` // the rule is in shadow
	Refused int64  `json:"refused,omitempty"`
	Passed  int64  `json:"passed,omitempty"`
	Missed  bool   `json:"missed,omitempty"` // a request passed after the ban: no limiter looks the key up
}

// viewOf is a client by its key or by keyfunc.Digest.Key.
func (d *Dashboard) viewOf(key string) clientView {
	v := clientView{Key: d.shown(key), Digest: d.digest(key)}
	if d.options.Bans != nil {
		if ban, ok := d.options.Bans.Find(key); ok {
			view := d.banView(ban, d.rulesByName())
			v.Ban = &view
		}
	}
	switch class := d.followed.classOf(key); class {
	case keyfunc.Own:
	case keyfunc.Claimed:
		v.Claimed, v.Senders = true, d.sendersOf(key)
	default:
		v.Shared = true
	}
	return v
}

// sendersOf returns the addresses, as they are shown, that most refused requests with the key came from
// lately. It leaves out banned ones.
func (d *Dashboard) sendersOf(key string) (shown []string) {
	k, _ := d.followed.of(key)
	for _, s := range k.senders {
		if s.address == "" || 4*s.refused < k.senders[0].refused {
			break
		}
		banned := false
		if d.options.Bans != nil {
			_, banned = d.options.Bans.Find(s.address)
		}
		if !banned {
			shown = append(shown, d.shown(s.address))
		}
	}
	return shown
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

// client returns what is known of a key, and follows the key from now on.
func (d *Dashboard) client(key string) *clientView {
	key, _ = keyfunc.Classify(key)
	v := d.viewOf(key)
	if _, isDigest := keyfunc.DigestOf(key); !isDigest {
		d.followed.follow(key, d.now())
	}
	last, _ := d.followed.of(key)
	v.Seen = &lastSeen{Passed: d.at(last.passed)}
	if last.by != nil {
		v.Seen.Rule, v.Seen.Shadow, v.Seen.Refused = last.by.rule, last.shadow, d.at(last.refused)
	}
	v.Seen.Missed = v.Ban != nil && v.Ban.Since > 0 && v.Seen.Passed > v.Ban.Since+passesAfter
	return &v
}

// at converts a second of this page into Unix milliseconds, and 0 into 0.
func (d *Dashboard) at(second int64) int64 {
	if second == 0 {
		return 0
	}
	return d.start.Add(time.Duration(second) * time.Second).UnixMilli()
}
