package dashboard

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"mime"
	"net/http"
	"strings"
	"time"

	"github.com/weirgo/weir/internal/operate"
	"github.com/weirgo/weir/keyfunc"
	"github.com/weirgo/weir/middleware"
	"github.com/weirgo/weir/middleware/bans"
)

// An action is a request of an operator.
type action struct {
	Action string `json:"action"` // look, reset, ban or unban
	Rule   string `json:"rule"`   // of look and reset
	Key    string `json:"key"`    // as operate.Key reads it, or its digest

	// Of ban.
	Keys    []string `json:"keys"`    // or Key: all are banned, or none if one is wrong
	For     string   `json:"for"`     // empty: until it is lifted
	Reason  string   `json:"reason"`  // may be empty
	Preview bool     `json:"preview"` // return the plan, and ban nobody

	by string // the operator
}

// An outcome is the result of an action.
type outcome struct {
	Error string `json:"error,omitempty"`
	Text  string `json:"text,omitempty"`
	Key   string `json:"key,omitempty"` // the key that the operator's text stands for, if it differs

	Counts []peekView  `json:"counts,omitempty"`
	Client *clientView `json:"client,omitempty"`
	Plan   *plan       `json:"plan,omitempty"`
}

type peekView struct {
	Rule      string `json:"rule"`
	Tier      string `json:"tier,omitempty"`
	Limit     int64  `json:"limit"`
	Remaining int64  `json:"remaining"`
	Next      string `json:"next,omitempty"`  // when there is more
	Reset     string `json:"reset,omitempty"` // when there is all
	Shadow    bool   `json:"shadow,omitempty"`
	Degraded  bool   `json:"degraded,omitempty"`
	Own       string `json:"own,omitempty"`       // that the key has a limit of its own, until when and why
	Uncounted bool   `json:"uncounted,omitempty"` // then there is no Limit, and no Remaining
}

const (
	maxAction  = 64 << 10 // bytes; keys can be long
	actionWait = 3 * time.Second
)

// A mistake is an error of the operator.
type mistake struct{ error }

func mistakef(format string, args ...any) error { return mistake{fmt.Errorf(format, args...)} }

// act performs an action, if the page itself sent it.
func (d *Dashboard) act(w http.ResponseWriter, r *http.Request) {
	if err := d.origin.Check(r); err != nil {
		d.log.LogAttrs(r.Context(), slog.LevelWarn, "weir: an action was refused, as it did not come from the dashboard's own page",
			slog.String("code", "weir-operator-refused"), slog.String("remote", r.RemoteAddr), slog.Any("error", err))
		reply(w, http.StatusForbidden, outcome{Error: "The request did not come from the page itself."})
		return
	}
	// A form of another site cannot send this type, in old browsers either.
	if kind, _, err := mime.ParseMediaType(r.Header.Get("Content-Type")); err != nil || kind != "application/json" {
		reply(w, http.StatusUnsupportedMediaType, outcome{Error: "The page accepts application/json."})
		return
	}
	var a action
	decoder := json.NewDecoder(http.MaxBytesReader(w, r.Body, maxAction))
	decoder.DisallowUnknownFields()
	if err := decoder.Decode(&a); err != nil {
		reply(w, http.StatusBadRequest, outcome{Error: "The request cannot be read: " + err.Error()})
		return
	}
	ctx, cancel := context.WithTimeout(r.Context(), actionWait)
	defer cancel()
	a.by = operatorOf(r)
	done, err := d.perform(ctx, r, a)
	switch {
	case err == nil:
		reply(w, http.StatusOK, done)
	case errors.As(err, new(mistake)), errors.Is(err, middleware.ErrNoRule), errors.Is(err, bans.ErrDigest):
		reply(w, http.StatusBadRequest, outcome{Error: err.Error()})
	case errors.Is(err, errNotBanned):
		reply(w, http.StatusNotFound, outcome{Error: err.Error()})
	default:
		done.Error = err.Error()
		reply(w, http.StatusBadGateway, done)
	}
}

// perform performs an action, and logs it.
func (d *Dashboard) perform(ctx context.Context, r *http.Request, a action) (done outcome, err error) {
	if a.Action == "ban" {
		return d.ban(ctx, r, a)
	}
	key, err := d.key(ctx, a)
	if err == nil {
		done, err = d.do(ctx, a, key)
	}
	d.record(r, a, key, err)
	return done, err
}

func reply(w http.ResponseWriter, status int, o outcome) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_, _ = w.Write(mustMarshal(o))
}

// record logs an action and its operator.
func (d *Dashboard) record(r *http.Request, a action, key string, err error) {
	attrs := []slog.Attr{
		slog.String("code", "weir-operator"), slog.String("action", cut(a.Action)), slog.String("key", cut(d.shown(key))),
	}
	if a.Rule != "" {
		attrs = append(attrs, slog.String("rule", cut(a.Rule)))
	}
	if a.For != "" {
		attrs = append(attrs, slog.String("for", cut(a.For)))
	}
	if a.by != "" {
		attrs = append(attrs, slog.String("by", a.by))
	}
	attrs = append(attrs, slog.String("remote", r.RemoteAddr))
	level := slog.LevelInfo
	if err != nil {
		level = slog.LevelWarn
		attrs = append(attrs, slog.Any("error", err))
	}
	d.log.LogAttrs(r.Context(), level, "weir: an operator used the dashboard", attrs...)
}

// cut bounds the length of a text.
func cut(text string) string { return fmt.Sprintf("%.300s", text) }

// key returns the key that an operator means: the key of a digest, or else what [operate.Key] reads.
// With an error it returns the text.
func (d *Dashboard) key(ctx context.Context, a action) (string, error) {
	text := strings.TrimSpace(a.Key)
	if digest, ok := keyfunc.ParseDigest(text); ok {
		key, err := d.keyOf(ctx, a, digest)
		return cmp.Or(key, text), err
	}
	key, wrong := operate.Key(text)
	if wrong != nil {
		return text, mistake{wrong}
	}
	return key, nil
}

// do performs an action on a key.
func (d *Dashboard) do(ctx context.Context, a action, key string) (o outcome, err error) {
	switch a.Action {
	case "look":
		o, err = d.lookUp(ctx, a.Rule, key)
	case "reset":
		o, err = d.reset(ctx, a.Rule, key)
	case "unban":
		o, err = d.unban(ctx, key)
	default:
		return outcome{}, mistakef("there is no action %.40q", a.Action)
	}
	text := strings.TrimSpace(a.Key)
	if meant, wrong := operate.Key(text); wrong == nil && meant == key && key != text && !strings.HasPrefix(text, `"`) {
		o.Key = key
		if o.Text != "" {
			o.Text = "This is counted as " + key + ". " + o.Text
		}
	}
	return o, err
}

// peek returns what a key has left under a rule, in each tier.
func (d *Dashboard) peek(ctx context.Context, rule, key string) (counts []peekView, err error) {
	err = d.each(rule, func(l *middleware.RateLimit) error {
		results, err := l.Peek(ctx, rule, key)
		for _, r := range results {
			if r.IsConcurrency() { // nobody knows when requests end
				r.NextAfter, r.ResetAfter = 0, 0
			}
			own := ""
			if r.Rule.Own {
				own = "a limit of its own" + operate.Ends(r.Rule.Until, r.Rule.Because)
			}
			counts = append(counts, peekView{
				Own: own, Rule: r.Rule.Name, Tier: r.Rule.Tier, Limit: r.Limit, Remaining: r.Remaining,
				Next: waitText(r.NextAfter), Reset: waitText(r.ResetAfter), Shadow: r.Rule.Mode == middleware.Shadow, Degraded: r.Degraded, Uncounted: !r.Counted(),
			})
		}
		return err
	})
	if err != nil {
		return nil, err
	}
	return counts, nil
}

func (d *Dashboard) reset(ctx context.Context, rule, key string) (outcome, error) {
	if err := d.each(rule, func(l *middleware.RateLimit) error { return l.Reset(ctx, rule, key) }); err != nil {
		return outcome{}, err
	}
	return outcome{Text: "The key has all of its limit again under " + rule + "."}, nil
}

// each calls f for all limiters. It returns an error if none has the rule.
func (d *Dashboard) each(rule string, f func(*middleware.RateLimit) error) error {
	found := false
	for _, l := range d.all() {
		switch err := f(l); {
		case errors.Is(err, middleware.ErrNoRule):
		case err != nil:
			return err
		default:
			found = true
		}
	}
	switch {
	case found:
		return nil
	case rule == "":
		return mistakef("choose a rule")
	}
	return fmt.Errorf("%w: %.128q", middleware.ErrNoRule, rule)
}

var errNoBans = mistakef("the page has no list of bans (dashboard.Options.Bans)")

func (d *Dashboard) unban(ctx context.Context, key string) (outcome, error) {
	if d.options.Bans == nil {
		return outcome{}, errNoBans
	}
	if key == "" {
		return outcome{}, mistakef("enter a key")
	}
	defer d.forgetBans()
	// Also if the key is not banned: the list forgets its refusals.
	lifted, err := d.options.Bans.Unban(ctx, key)
	switch {
	case err != nil && lifted:
		return outcome{Text: "The ban is lifted, so far in this process only."}, err
	case err != nil:
		return outcome{}, err
	case !lifted:
		return outcome{}, errNotBanned
	}
	return outcome{Text: "The ban is lifted."}, nil
}

var errNotBanned = errors.New("the key was not banned; its refusals are forgotten")

// forgetBans makes the page read the bans again.
func (d *Dashboard) forgetBans() {
	d.latest.Lock()
	defer d.latest.Unlock()
	d.latest.bans, d.latest.state = nil, nil
}
