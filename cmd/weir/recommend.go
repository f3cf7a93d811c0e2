package main

import (
	"errors"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/pflag"

	"github.com/weirgo/weir/cmd/weir/internal/accesslog"
	"github.com/weirgo/weir/cmd/weir/internal/demand"
	"github.com/weirgo/weir/cmd/weir/internal/simulate"
	"github.com/weirgo/weir/cmd/weir/internal/verdict"
	"github.com/weirgo/weir/internal/route"
	"github.com/weirgo/weir/keyfunc"
	"github.com/weirgo/weir/limiter"
	"github.com/weirgo/weir/middleware/rules"
)

func recommend(s *session, flags *pflag.FlagSet) action {
	f := newLogFlags(flags)
	key := flags.String("key", "ip", "what is counted apart, as in a rules file: ip, user, user|ip, header:NAME and so on")
	per := flags.String("per", "1m", "the limit's `period`, such as 10s, 1m, 1h or 1d")
	spare := flags.String("spare", "99.9%", "how many of the clients are to be refused nothing, as a `percentage`")
	only := flags.String("for", "", "count the requests to one `endpoint` only, such as \"POST /login\"")
	return func(names []string) error {
		if len(names) != 1 {
			return usageError{errors.New("name a log, or - for the standard input")}
		}
		shown, err := f.shown()
		if err != nil {
			return err
		}
		meter, err := newMeter(*per)
		if err != nil {
			return err
		}
		share, err := shareOf(*spare)
		if err != nil {
			return err
		}
		of, needs, err := countedBy(*key, f)
		if err != nil {
			return err
		}
		matches, err := matching(*only)
		if err != nil {
			return err
		}
		log, missing, err := s.open(names[0], f, needs)
		if err != nil {
			return err
		}
		defer log.file.Close()
		if len(missing) > 0 {
			return fmt.Errorf("%s: --key %s goes by %s, which the log does not have: say where with --map %s=PLACE", names[0], *key, missing[0].Of, missing[0].Of)
		}
		if *only != "" && (!log.Has("method") || !log.Has("target")) {
			return fmt.Errorf("%s: --for needs methods and paths, which the log does not have", names[0])
		}
		collectOften()
		counts, err := measure(meter, log, f, of, matches)
		if err != nil {
			return fmt.Errorf("%s: %w", names[0], err)
		}
		result, err := meter.Result(share)
		if err != nil {
			return fmt.Errorf("%s: %w", names[0], err)
		}
		result.Refused = result.Refused[:min(len(result.Refused), mostInReport)]
		for i := range result.Refused {
			result.Refused[i].Client = shown(result.Refused[i].Client)
		}
		r := &recommended{result: result, key: *key, only: *only, period: verdict.TextOf(result.Per)}
		stats := log.Stats()
		return r.tell(s, f, names, share, &stats, counts)
	}
}

// newMeter is for limits on a period.
func newMeter(per string) (*demand.Meter, error) {
	limit, err := limiter.Parse("1/" + per)
	if err != nil || limit.Burst != 0 || limit.Calendar() != "" || strings.ContainsAny(per, " \t") {
		return nil, usageError{fmt.Errorf("--per is %q: want a period such as 10s, 1m, 1h or 1d", per)}
	}
	meter, err := demand.NewMeter(limit.Per)
	if err != nil {
		return nil, usageError{fmt.Errorf("--per: %w", err)}
	}
	return meter, nil
}

func shareOf(percentage string) (float64, error) {
	n, err := strconv.ParseFloat(strings.TrimSuffix(percentage, "%"), 64)
	if err != nil || !(n > 0 && n <= 100) {
		return 0, usageError{fmt.Errorf("--spare is %q: want a percentage above 0 and at most 100, such as 99.9%%", percentage)}
	}
	return n / 100, nil
}

// countedBy is the key that a rules file calls so, and what it reads.
func countedBy(text string, f *logFlags) (keyfunc.Func, []rules.Need, error) {
	o := f.options()
	if _, err := keyfunc.Parse(text, o.Keys); err != nil {
		return nil, nil, usageError{fmt.Errorf("--key: %w", err)}
	}
	loaded, err := rules.Parse([]byte("version: 1\ndefault: {limit: 1/1s, key: "+strconv.Quote(text)+"}"), o)
	if err != nil {
		return nil, nil, usageError{fmt.Errorf("--key is %q, which is no key of a rule: %w", text, err)}
	}
	return loaded.Config().Default[0].Key, loaded.Needs(), nil
}

// matching reports whether an entry is for an endpoint; all are, if there is none.
func matching(endpoint string) (func(*accesslog.Entry) bool, error) {
	if endpoint == "" {
		return func(*accesslog.Entry) bool { return true }, nil
	}
	pattern, err := route.ParseRule(endpoint)
	if err != nil {
		return nil, usageError{fmt.Errorf("--for: %w", err)}
	}
	if pattern.Host != "" {
		return nil, usageError{fmt.Errorf("--for is %q: leave the host out", endpoint)}
	}
	return func(e *accesslog.Entry) bool {
		path, _, _ := strings.Cut(e.Target, "?")
		_, fits := pattern.Fit(path)
		return fits && pattern.Takes(e.Method)
	}, nil
}

// unmeasured are requests that no key was measured of.
type unmeasured struct{ answered, keyless int64 }

func measure(meter *demand.Meter, log *weblog, f *logFlags, of keyfunc.Func, matches func(*accesslog.Entry) bool) (counts unmeasured, err error) {
	requests := simulate.NewRequests(simulate.Options{Routes: f.routes, ServeMux: f.serveMux, Headers: log.Headers()})
	for {
		e, err := log.next()
		if errors.Is(err, io.EOF) {
			return counts, nil
		}
		if err != nil {
			return counts, err
		}
		if !matches(e) {
			continue
		}
		if e.Status == http.StatusTooManyRequests {
			counts.answered++
		}
		key, err := of(requests.Of(e))
		if key, _ = keyfunc.Classify(key); err != nil || key == "" {
			counts.keyless++
			continue
		}
		meter.Add(key, e.At, 1)
	}
}

// recommended is a recommendation.
type recommended struct {
	result            *demand.Result
	key, only, period string
}

func (r *recommended) limit(n int64) string { return fmt.Sprintf("%d/%s", n, r.period) }

// text is for a rules file.
func (r *recommended) text(limit string) string {
	rule := fmt.Sprintf("{limit: %s, key: %s}", limit, quoted(r.key))
	if r.only != "" {
		return fmt.Sprintf("endpoints:\n  %q: %s", r.only, rule)
	}
	return "default: " + rule
}

// quoted is a key as YAML has it.
func quoted(key string) string {
	if strings.ContainsAny(key, ":|") {
		return strconv.Quote(key)
	}
	return key
}

func (r *recommended) tell(s *session, f *logFlags, names []string, share float64, stats *accesslog.Stats, counts unmeasured) error {
	result := r.result
	text := r.text(r.limit(result.Chosen.Limit))
	shown := &verdict.Recommendation{Result: result, Peaks: verdict.Peaks(result), Text: text}
	for _, p := range around(result.Curve, result.Chosen.Limit) {
		shown.Limits = append(shown.Limits, verdict.Limit{Point: p, Text: r.limit(p.Limit), Chosen: p.Limit == result.Chosen.Limit})
	}
	page := &verdict.Page{
		Title: titleOf(names), Words: verdict.Recommended(result, share, subjectOf(r.key)),
		Notes: verdict.Log(stats, counts.answered), Recommended: shown,
	}
	if counts.keyless > 0 {
		page.Notes = append(page.Notes, fmt.Sprintf("%s requests have no %s, and are left out.", verdict.Number(counts.keyless), r.key))
	}
	if err := writeReport(f.report, page); err != nil {
		return err
	}
	if f.asJSON {
		return writeJSON(s.out, struct {
			Verdict string `json:"verdict"`
			Limit   string `json:"limit"`
			Rules   string `json:"rules"` // for a file
			*demand.Result
			Log   logReport `json:"log"`
			Notes []string  `json:"notes"`
		}{page.Verdict, r.limit(result.Chosen.Limit), text, result, newLogReport(stats), append([]string{}, page.Notes...)})
	}
	s.say(page)
	fmt.Fprintf(s.out, "%s\n\n", shown.Peaks)
	table := newTable(s)
	fmt.Fprintln(table, "LIMIT\tCLIENTS REFUSED\t\tREQUESTS REFUSED\t")
	for _, l := range shown.Limits {
		mark := ""
		if l.Chosen {
			mark = "recommended"
		}
		fmt.Fprintf(table, "%s\t%s\t%s\t%s\t%s\t%s\n", l.Text, verdict.Number(l.Keys), verdict.Share(l.Keys, result.Keys),
			verdict.Number(l.Requests), verdict.Share(l.Requests, result.Requests), mark)
	}
	if err := table.Flush(); err != nil {
		return err
	}
	if refused := result.Refused[:min(len(result.Refused), mostOnTerminal)]; len(refused) > 0 {
		fmt.Fprintf(table, "\n%s REFUSED\tMOST IN A %s\tUNTIL\t\n", strings.ToUpper(subjectOf(r.key)), strings.ToUpper(verdict.Period(result.Per)))
		for _, c := range refused {
			mark := ""
			if c.Apart {
				mark = "set apart"
			}
			fmt.Fprintf(table, "%s\t%s\t%s\t%s\n", c.Client, verdict.Number(c.Most), c.At.Format(time.DateTime), mark)
		}
		if more := result.Chosen.Keys - int64(len(refused)); more > 0 {
			fmt.Fprintf(table, "and %s more\n", verdict.Number(more))
		}
		if err := table.Flush(); err != nil {
			return err
		}
	}
	fmt.Fprintf(s.out, "\nin a rules file:\n%s\n", text)
	return nil
}

// around are the points next to a limit: enough to see what less and more would cost.
func around(curve []demand.Point, limit int64) []demand.Point {
	at := 0
	for i := range curve {
		if curve[i].Limit == limit {
			at = i
		}
	}
	return curve[max(0, at-5):min(len(curve), at+4)]
}

// subjectOf is what a key tells apart, in words.
func subjectOf(key string) string {
	switch key {
	case "ip":
		return "client address"
	case "user":
		return "user"
	}
	return key
}

// logReport is what was found in a log, as JSON.
type logReport struct {
	Format  string             `json:"format"`
	Entries int64              `json:"entries"`
	Broken  int64              `json:"broken"`
	First   []accesslog.Broken `json:"broken_first"`
}

func newLogReport(s *accesslog.Stats) logReport {
	return logReport{s.Format, s.Entries, s.Broken, append([]accesslog.Broken{}, s.First...)}
}
