package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/spf13/pflag"

	"github.com/weirgo/weir/cmd/weir/internal/verdict"
	"github.com/weirgo/weir/redis/redisstore"
)

// A topView is what top knows at a moment, as JSON.
type topView struct {
	At   time.Time `json:"at"`
	Top  []topKey  `json:"top"`
	Pass topPass   `json:"pass"`           // that this is from: under way, or the last
	Last *topPass  `json:"last,omitempty"` // the last that was complete, where another is under way
}

// A topKey is a counter.
type topKey struct {
	Key        string  `json:"key,omitempty"` // where --names has it
	Digest     string  `json:"digest"`
	Rule       string  `json:"rule"`
	Tier       string  `json:"tier,omitempty"`
	InProgress bool    `json:"in_progress,omitempty"` // what counts is in progress
	Used       int64   `json:"used"`
	Limit      int64   `json:"limit"`
	Share      float64 `json:"share"` // of the limit
	FreeIn     seconds `json:"free_in_seconds"`
}

// A topPass says how much was looked at, and what follows from that.
type topPass struct {
	Keys     int64   `json:"keys"`   // in Redis, of whatever kind
	Looked   int64   `json:"looked"` // at so many of them
	Share    float64 `json:"share"`  // of the keys, and the chance that one that belongs into the list was seen
	Took     seconds `json:"took_seconds"`
	Full     int64   `json:"full"`      // counters that have used all of their limit, about
	FullLow  int64   `json:"full_low"`  // with 95% confidence from
	FullHigh int64   `json:"full_high"` // to so many
}

func newTopPass(p *pass, ended bool) topPass {
	t := topPass{Keys: p.keys, Looked: min(p.looked, p.keys), Took: inSeconds(p.took)}
	switch {
	case ended:
		t.Looked, t.Share = t.Keys, 1
	case p.looked == 0 || p.keys == 0:
		return t // nothing is known
	default: // which is not all, even if there are more keys than when it began
		t.Share = min(0.999, float64(p.looked)/float64(p.keys))
	}
	t.Full, t.FullLow, t.FullHigh = estimate(p.full, t.Share)
	return t
}

// estimate is how many there are of which so many were found in a random share of all, and from
// where to where that is with a confidence of 95% at least: two standard deviations of what was
// not seen, and somewhat more where little was found.
func estimate(found int64, share float64) (about, low, high int64) {
	n, rest := float64(found), (1-share)/share
	spread := 1.96 * math.Sqrt((n+1)*rest/share)
	about = found + int64(math.Round(n*rest))
	return about, max(found, about-int64(math.Ceil(spread))), about + int64(math.Ceil(spread+3*rest))
}

// errInterrupted is what top ends with where it was stopped before it had looked at all.
var errInterrupted = errors.New("stopped before it had looked at all keys")

func top(s *session, flags *pflag.FlagSet) action {
	server := serverFlags(flags)
	n := flags.IntP("n", "n", 20, "how many")
	rule := flags.String("rule", "", "only of the rule with this `name`")
	watch := flags.Bool("watch", false, "go on, and show every --interval what is known then, until it is stopped (Ctrl-C)")
	interval := flags.Duration("interval", 2*time.Second, "how `long` between two tables, from 1s to 1h")
	rate := flags.Int("rate", 10_000, "how many keys of a Redis are looked at in a second, at most")
	file := namesFlag(flags)
	own := ownKeys(flags)
	asJSON := flags.Bool("json", false, "write JSON; with --watch an object on each line")
	return func([]string) error {
		switch {
		case *interval < time.Second || *interval > time.Hour:
			return usageError{fmt.Errorf("--interval is %v: it must be from 1s to 1h", *interval)}
		case *n < 1 || *n > 10_000:
			return usageError{fmt.Errorf("-n is %d: it must be from 1 to 10000", *n)}
		case *rate < 1 || *rate > 1_000_000:
			return usageError{fmt.Errorf("--rate is %d: it must be from 1 to 1000000", *rate)}
		}
		known, err := s.readNames(*file, server, *own)
		if err != nil {
			return err
		}
		client, err := server.connect()
		if err != nil {
			return err
		}
		defer client.Close()
		if err := (redisstore.Options{Prefix: server.prefix}).Validate(); err != nil {
			return usageError{err}
		}
		ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
		defer stop()
		t := &topping{s: s, client: client, survey: newSurvey(client, *n, *rate, server.prefix, *rule), names: known, asJSON: *asJSON, interval: *interval}
		if *watch {
			return t.watch(ctx)
		}
		return t.once(ctx)
	}
}

// A topping is one run of top.
type topping struct {
	s        *session
	client   redis.UniversalClient
	survey   *survey
	names    names
	asJSON   bool
	interval time.Duration
}

// once looks at all keys, and tells on a terminal how far it has come.
func (t *topping) once(ctx context.Context) error {
	terminal := terminalOf(t.s.err)
	ended := make(chan error, 1)
	go func() { ended <- t.survey.run(ctx) }()
	progress := time.NewTicker(time.Second)
	defer progress.Stop()
	var err error
	for isOver := false; !isOver; {
		select {
		case err = <-ended:
			isOver = true
		case <-progress.C:
			if terminal != nil {
				t.survey.mu.Lock()
				p := newTopPass(&t.survey.pass, false)
				t.survey.mu.Unlock()
				fmt.Fprintf(terminal, "\r%s of %s keys, %d%% \x1b[K", verdict.Number(p.Looked), verdict.Number(p.Keys), int(100*p.Share))
			}
		}
	}
	if terminal != nil {
		fmt.Fprint(terminal, "\r\x1b[K")
	}
	if err != nil && ctx.Err() == nil {
		return err
	}
	isInterrupted := err != nil
	view, err := t.view(context.WithoutCancel(ctx), !isInterrupted)
	if err != nil {
		return err
	}
	if t.asJSON {
		err = writeJSON(t.s.out, view)
	} else {
		err = t.write(view)
	}
	if err == nil && isInterrupted {
		err = fmt.Errorf("%w: at %s of %s", errInterrupted, verdict.Number(view.Pass.Looked), verdict.Number(view.Pass.Keys))
	}
	return err
}

// watch goes through the keys again and again, until it is stopped, which is how it ends.
func (t *topping) watch(ctx context.Context) error {
	terminal := terminalOf(t.s.out)
	failed := make(chan error, 1) // a pass; the latest
	go func() {
		for ctx.Err() == nil {
			err := t.survey.run(ctx)
			select {
			case <-failed:
			default:
			}
			failed <- err
			select { // a pass may have failed early, or had little to look at
			case <-time.After(time.Second):
			case <-ctx.Done():
			}
		}
	}()
	show := time.NewTicker(t.interval)
	defer show.Stop()
	for isKnown := false; ; {
		var err error
		select {
		case <-ctx.Done():
			return nil
		case err = <-failed:
			if err == nil && isKnown {
				continue
			}
		case <-show.C:
		}
		var view *topView
		if err == nil {
			view, err = t.view(ctx, false)
		}
		switch {
		case ctx.Err() != nil:
			return nil
		case err != nil && !isKnown:
			return err
		case err != nil:
			fmt.Fprintf(t.s.err, "weir top: %s\n", inWords(err))
		default:
			isKnown = true
			if err := t.show(terminal, view); err != nil {
				return err
			}
		}
	}
}

// show writes a view while it watches.
func (t *topping) show(terminal io.Writer, view *topView) error {
	if t.asJSON {
		return writeLine(t.s.out, view)
	}
	if terminal != nil {
		fmt.Fprint(terminal, "\x1b[H\x1b[2J")
	}
	if _, err := fmt.Fprintf(t.s.out, "%s  %s\n", view.At.Local().Format(time.TimeOnly), view.says()); err != nil {
		return err
	}
	if err := t.write(view); err != nil {
		return err
	}
	if terminal == nil {
		fmt.Fprintln(t.s.out)
	}
	return nil
}

// view is what is known now; ended says that the pass is complete.
func (t *topping) view(ctx context.Context, ended bool) (*topView, error) {
	top, pass, last, err := t.survey.known(ctx)
	if err != nil {
		return nil, err
	}
	view := &topView{At: now(), Top: []topKey{}, Pass: newTopPass(&pass, ended)}
	if last != nil && !ended {
		complete := newTopPass(last, true)
		view.Last = &complete
	}
	for _, u := range top {
		view.Top = append(view.Top, topKey{
			Key: t.names[u.Digest], Digest: u.Digest, Rule: u.Rule, Tier: u.Tier, InProgress: u.InFlight,
			Used: u.Used, Limit: u.Limit, Share: ratio(u.Used, u.Limit), FreeIn: inSeconds(u.ResetAfter),
		})
	}
	return view, nil
}

// says is how much of the keys that is, and with what error.
func (v *topView) says() string {
	if v.Last != nil {
		return fmt.Sprintf("all %s keys were looked at in %v; %s counters were at their limit", verdict.Number(v.Last.Keys), v.Last.Took.short(), verdict.Number(v.Last.Full))
	}
	p := &v.Pass
	if p.Share == 1 {
		return fmt.Sprintf("all %s keys were looked at in %v; %s counters are at their limit", verdict.Number(p.Keys), p.Took.short(), verdict.Number(p.Full))
	}
	return fmt.Sprintf("%s of %s keys, so %.3g%% of what belongs here; about %s counters are at their limit (%s to %s)",
		verdict.Number(p.Looked), verdict.Number(p.Keys), 100*p.Share, verdict.Number(p.Full), verdict.Number(p.FullLow), verdict.Number(p.FullHigh))
}

func (t *topping) write(v *topView) error {
	table := newTable(t.s)
	fmt.Fprintln(table, "USED\tLIMIT\tSHARE\tFREE IN\tRULE\tKEY")
	for _, u := range v.Top {
		name := ruleName(u.Rule, u.Tier)
		if u.InProgress {
			name += ", at once"
		}
		fmt.Fprintf(table, "%d\t%d\t%d%%\t%v\t%s\t%s\n", u.Used, u.Limit, percent(u.Used, u.Limit), u.FreeIn.short(), name, t.names.shown(u.Digest))
	}
	return table.Flush()
}

// terminalOf is the terminal behind a session's output, or nil. What is written to it is no
// client's text.
func terminalOf(out io.Writer) io.Writer {
	p, ok := out.(*printable)
	if !ok {
		return nil
	}
	file, ok := p.to.(*os.File)
	if !ok || strings.TrimSpace(os.Getenv("TERM")) == "dumb" {
		return nil
	}
	if info, err := file.Stat(); err != nil || info.Mode()&os.ModeCharDevice == 0 || info.Name() == "null" || info.Name() == "full" {
		return nil
	}
	return file
}
