package dashboard

import (
	"cmp"
	"errors"
	"net/http"
	"net/url"
	"slices"
	"time"

	"github.com/weirgo/weir/keyfunc"
)

// A clientView is what this process knows of one key.
type clientView struct {
	Error  string `json:"error,omitempty"`
	Key    string `json:"key"` // as it is shown
	Digest string `json:"digest"`

	// Since when its requests are followed, in Unix milliseconds: what was before is not known.
	Since int64 `json:"since"`
	Step  int   `json:"step"`  // seconds
	Known int   `json:"known"` // of the steps, the last ones

	Asked   []uint32      `json:"asked"` // by step, the oldest first
	Refused []uint32      `json:"refused"`
	Rules   []clientRule  `json:"rules"`
	Routes  []clientRoute `json:"routes"`
	Latest  []clientEvent `json:"latest"` // the last one first
	Missed  uint32        `json:"missed,omitempty"`

	Hour []clientHour `json:"hour,omitempty"` // of rules that have the key among their offenders

	Ban    *banView `json:"ban,omitempty"`
	Passed bool     `json:"passed,omitempty"` // a request passed after it was banned: no limiter looks the key up
}

type clientRule struct {
	Rule    string `json:"rule"` // empty: all others
	Tier    string `json:"tier,omitempty"`
	Asked   uint32 `json:"asked"`
	Refused uint32 `json:"refused"`
}

type clientRoute struct {
	Route   string `json:"route"` // empty: of requests without a route
	Others  bool   `json:"others,omitempty"`
	Asked   uint32 `json:"asked"`
	Refused uint32 `json:"refused"`
}

type clientEvent struct {
	At     int64  `json:"at"` // Unix milliseconds, of its second
	Became string `json:"became"`
	Route  string `json:"route,omitempty"`
	Rule   string `json:"rule,omitempty"` // that refused it
	Shadow bool   `json:"shadow,omitempty"`
}

type clientHour struct {
	Rule    string `json:"rule"`
	Asked   uint64 `json:"asked"`
	Refused uint64 `json:"refused"`
	Error   uint64 `json:"error,omitempty"` // by which both may be too high
}

// clientHeader names the client that a page asks about. It is a header as keys can be secrets, and
// addresses are logged.
const clientHeader = "Weir-Client"

// client answers what is known of one key, or of a digest.
func (d *Dashboard) client(w http.ResponseWriter, r *http.Request) {
	text, err := url.PathUnescape(r.Header.Get(clientHeader))
	v := &clientView{}
	if err == nil {
		v, err = d.lookAtClient(r, text)
	}
	status := http.StatusOK
	if err != nil {
		v, status = &clientView{Error: err.Error()}, http.StatusBadRequest
		if errors.Is(err, errUnknownClient) {
			status = http.StatusNotFound
		}
	}
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_, _ = w.Write(mustMarshal(v))
}

var errUnknownClient = errors.New("this process knows no key with this digest: it was not refused here lately, " +
	"or another process serves the client")

func (d *Dashboard) lookAtClient(r *http.Request, text string) (*clientView, error) {
	key, err := d.key(r.Context(), action{Action: "look", Key: text})
	if err != nil {
		return nil, err
	}
	if key == "" {
		return nil, mistakef("which client? A rule without a key has one counter for all clients")
	}
	key, _ = keyfunc.Classify(key)
	now := d.now()
	h, k := hash(key), (*client)(nil)
	if digest, ok := keyfunc.DigestOf(key); ok { // of a key that is too long to be kept
		if k = d.followed.byDigest(digest); k == nil {
			return nil, errUnknownClient
		}
		_, h = k.who()
	} else {
		k = d.followed.follow(h, key, now)
	}
	k.pinned.Store(now + pinnedFor)
	v := &clientView{Digest: d.digest(key), Step: clientStep}
	v.Key = d.clickable(key)
	passed, ok := d.describe(v, k, h, now)
	if !ok {
		return nil, errUnknownClient
	}
	d.describeHour(v)
	if d.options.Bans != nil {
		if ban, ok := d.options.Bans.Find(key); ok {
			ban := d.banView(ban)
			v.Ban = &ban
			v.Passed = ban.Since > 0 && passed > ban.Since+passesAfter
		}
	}
	return v, nil
}

// passesAfter is how long after a ban a request may pass that was on its way, in milliseconds.
const passesAfter = 5000

// at is when a second of this page began, in Unix milliseconds.
func (d *Dashboard) at(second int64) int64 {
	return d.start.Add(time.Duration(second) * time.Second).UnixMilli()
}

// describe fills in what is counted of a client, if it has not given way, and tells when its last
// request passed.
func (d *Dashboard) describe(v *clientView, k *client, hash uint64, now int64) (passed int64, ok bool) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.hash != hash {
		return 0, false
	}
	v.Since, v.Missed = d.at(k.since), k.missed.Load()
	step := now / clientStep
	v.Known = int(min(step-k.since/clientStep+1, clientKept))
	for at := step - clientKept + 1; at <= step; at++ {
		c := clientCount{}
		if at >= 0 {
			if counted := k.steps[at%clientKept]; counted.step == at {
				c = counted
			}
		}
		v.Asked, v.Refused = append(v.Asked, c.asked), append(v.Refused, c.refused)
	}
	v.Rules, v.Routes, v.Latest = []clientRule{}, []clientRoute{}, []clientEvent{}
	for i, r := range k.rules {
		switch {
		case r.asked == 0:
		case i == countsKept-1:
			v.Rules = append(v.Rules, clientRule{Asked: r.asked, Refused: r.refused})
		default:
			v.Rules = append(v.Rules, clientRule{r.rule, r.tier, r.asked, r.refused})
		}
	}
	for i, r := range k.routes {
		if r.asked > 0 {
			v.Routes = append(v.Routes, clientRoute{cut(r.pattern), i == countsKept-1, r.asked, r.refused})
		}
	}
	slices.SortStableFunc(v.Rules, func(a, b clientRule) int { return cmp.Compare(b.Asked, a.Asked) })
	slices.SortStableFunc(v.Routes, func(a, b clientRoute) int { return cmp.Compare(b.Asked, a.Asked) })
	for i := k.events - 1; i >= max(0, k.events-eventsKept); i-- {
		e := &k.latest[i%eventsKept]
		seen := clientEvent{At: d.at(e.second), Became: e.outcome.String(), Route: cut(e.route), Shadow: e.shadow}
		if e.rule != nil {
			seen.Rule = cmp.Or(e.rule.rule, "a rule beyond those that are told apart")
		}
		if !e.refused() {
			passed = max(passed, seen.At)
		}
		v.Latest = append(v.Latest, seen)
	}
	return passed, true
}

// describeHour fills in the last hour, from the rules' offenders.
func (d *Dashboard) describeHour(v *clientView) {
	top := d.options.Offenders
	if top == nil {
		return
	}
	for _, rule := range top.Rules() {
		for _, o := range top.Busiest(rule.Name, topKeys*topKeys) {
			if o.Digest == v.Digest {
				v.Hour = append(v.Hour, clientHour{rule.Name, o.All.N, o.Refused.N, max(o.All.Error, o.Refused.Error)})
			}
		}
	}
	slices.SortStableFunc(v.Hour, func(a, b clientHour) int {
		return cmp.Or(cmp.Compare(b.Refused, a.Refused), cmp.Compare(b.Asked, a.Asked))
	})
	v.Hour = v.Hour[:min(len(v.Hour), countsKept)]
}
