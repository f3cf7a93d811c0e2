package dashboard

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"time"
	"unicode"

	"github.com/weirgo/weir/internal/operate"
	"github.com/weirgo/weir/keyfunc"
	"github.com/weirgo/weir/limiter"
	"github.com/weirgo/weir/middleware/bans"
)

// A plan is what a ban would do.
type plan struct {
	Clients []clientView `json:"clients"`
	Until   int64        `json:"until,omitempty"` // Unix milliseconds; 0: until it is lifted
	Alone   bool         `json:"alone,omitempty"` // in this process: no other has the list
}

const maxBanned = 50 // clients at once

// ban bans clients, or returns the plan of a preview.
func (d *Dashboard) ban(ctx context.Context, r *http.Request, a action) (done outcome, err error) {
	length, keys, err := d.banned(ctx, a)
	switch {
	case err != nil && !a.Preview:
		d.record(r, a, a.Key, err)
		return done, err
	case err != nil:
		return done, err
	case a.Preview:
		return outcome{Plan: d.plan(keys, length)}, nil
	}
	defer d.forgetBans()
	var errs []error
	for _, key := range keys {
		err := d.options.Bans.Ban(ctx, key, length, bans.Reason(a.Reason), bans.By(a.by))
		d.record(r, a, key, err)
		if err == nil {
			continue
		}
		if _, here := d.options.Bans.Find(key); here {
			err = fmt.Errorf("only this process knows the ban so far: %w", err)
		}
		errs = append(errs, fmt.Errorf("%.80s: %w", d.shown(key), err))
	}
	switch n := len(keys) - len(errs); {
	case n == 0:
		return done, errors.Join(errs...)
	case len(keys) == 1:
		done.Text = "The client is banned"
	case n == len(keys):
		done.Text = fmt.Sprintf("%d clients are banned", n)
	default:
		done.Text = fmt.Sprintf("%d of %d clients are banned", n, len(keys))
	}
	if a.For != "" {
		done.Text += " for " + a.For
	}
	done.Text = strings.TrimSpace(done.Text + ". " + operate.BanNote(keys...))
	return done, errors.Join(errs...)
}

// banned returns the keys to ban, and for how long.
func (d *Dashboard) banned(ctx context.Context, a action) (length time.Duration, keys []string, err error) {
	texts := a.Keys
	if len(texts) == 0 {
		texts = []string{a.Key}
	}
	if len(texts) > maxBanned {
		return 0, nil, mistakef("%d keys: at most %d are banned at once", len(texts), maxBanned)
	}
	if length, err = d.checkBan(a); err != nil {
		return 0, nil, err
	}
	for _, text := range texts {
		one := a
		one.Key = text
		key, err := d.key(ctx, one)
		if err == nil && key == "" {
			err = mistakef("enter a key")
		}
		if _, isDigest := keyfunc.DigestOf(key); err == nil && isDigest && d.holdsKeys() {
			err = bans.ErrDigest
		}
		if err != nil && len(texts) > 1 {
			err = fmt.Errorf("%.80s: %w", d.shown(text), err) // the text may be a credential, and is logged
		}
		if err != nil {
			return 0, nil, err
		}
		if !slices.Contains(keys, key) {
			keys = append(keys, key)
		}
	}
	return length, keys, nil
}

// checkBan returns the length of the ban, or what is wrong with the action.
func (d *Dashboard) checkBan(a action) (length time.Duration, err error) {
	if d.options.Bans == nil {
		return 0, errNoBans
	}
	if a.For != "" {
		if length, err = limiter.ParsePeriod(a.For); err != nil {
			return 0, mistake{err}
		}
	}
	_, err = bans.Noted(bans.Reason(a.Reason))
	if err = errors.Join(bans.CheckDuration(length), err); err != nil {
		return 0, mistake{err}
	}
	return length, nil
}

func (d *Dashboard) plan(keys []string, length time.Duration) *plan {
	p := &plan{Alone: d.holdsKeys()}
	if length > 0 {
		p.Until = time.Now().Add(length).UnixMilli()
	}
	for _, key := range keys {
		p.Clients = append(p.Clients, d.viewOf(key))
	}
	return p
}

// holdsKeys reports whether the list is in this process's memory, and accepts no digests.
func (d *Dashboard) holdsKeys() bool {
	_, ok := d.options.Bans.(*bans.Memory)
	return ok
}

// operatorOf returns the operator's name: the checked name, or else the claimed one.
func operatorOf(r *http.Request) string {
	if user, err := keyfunc.User(r); err == nil {
		text, _ := keyfunc.Classify(user)
		return printable(strings.TrimPrefix(text, "user:"), bans.MaxBy)
	}
	if claimed, _, ok := r.BasicAuth(); ok && claimed != "" {
		const mark = " (claimed)"
		return printable(claimed, bans.MaxBy-len(mark)) + mark
	}
	return ""
}

// printable returns up to most bytes of a text, with question marks for what cannot be printed.
func printable(text string, most int) string {
	var b strings.Builder
	for _, c := range text {
		if !unicode.IsPrint(c) || c == unicode.ReplacementChar {
			c = '?'
		}
		if b.Len()+len(string(c)) > most {
			break
		}
		b.WriteRune(c)
	}
	return b.String()
}
