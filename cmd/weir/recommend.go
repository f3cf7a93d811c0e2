package main

import (
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/pflag"

	"github.com/weirgo/weir/cmd/weir/internal/accesslog"
	"github.com/weirgo/weir/cmd/weir/internal/demand"
	"github.com/weirgo/weir/cmd/weir/internal/simulate"
	"github.com/weirgo/weir/internal/operate"
	"github.com/weirgo/weir/internal/route"
	"github.com/weirgo/weir/keyfunc"
	"github.com/weirgo/weir/limiter"
	"github.com/weirgo/weir/middleware/rules"
)

func recommend(s *session, flags *pflag.FlagSet) action {
	f := newLogFlags(s, flags)
	key := flags.String("key", "ip", "the key that has its own counter, as in a rules file: ip, ip/24/48, user, user|ip, header:NAME and so on")
	per := flags.String("per", "1m", "the limit's `period`, such as 10s, 1m, 1h or 1d")
	spare := flags.String("spare", "99.9%", "the `percentage` of clients that the limit must never refuse")
	only := flags.String("for", "", "count only requests to one `endpoint`, such as \"POST /login\"")
	return func(names []string) error {
		shown, err := f.shown()
		if err != nil {
			return err
		}
		meter, err := newMeter(*per)
		if err != nil {
			return err
		}
		spared, err := shareOf(*spare)
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
		return f.read(names[0], needs, []string{""}, func(log *weblog) error {
			if len(log.missing) > 0 {
				need := log.missing[0].Of
				return fmt.Errorf("--key %s: the log does not have %s: say where with --map %s=PLACE", *key, need, need)
			}
			if *only != "" && (!log.Has("method") || !log.Has("target")) {
				return errors.New("--for needs methods and paths, which the log does not have")
			}
			counts, err := measure(meter, log, of, matches)
			if err != nil {
				return err
			}
			result, err := meter.Result(spared)
			if err != nil {
				return err
			}
			result.Refused = result.Refused[:min(len(result.Refused), mostInJSON)]
			for i := range result.Refused {
				result.Refused[i].Client = shown(result.Refused[i].Client)
			}
			var notes []string
			if counts.keyless > 0 {
				notes = append(notes, fmt.Sprintf("%s requests have no %s, and are left out.", operate.Number(counts.keyless), *key))
			}
			verdict, detail := recommended(result, spared, subjectOf(*key))
			r := &recommendation{
				finding: log.found(verdict, detail, notes, counts.peers, counts.answered), Limit: limitText(result.Chosen.Limit, result.Per), Result: result,
			}
			r.Rules = ruleText(r.Limit, *key, *only)
			return f.write(r, func(table io.Writer) { r.write(table, subjectOf(*key)) })
		})
	}
}

// newMeter returns a meter for limits with a period.
func newMeter(per string) (*demand.Meter, error) {
	period, err := limiter.ParsePeriod(per)
	if err != nil {
		return nil, usageError{fmt.Errorf("--per is %q: want a period such as 10s, 1m, 1h or 1d", per)}
	}
	meter, err := demand.NewMeter(period)
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

// countedBy returns the key function for a text as in rules files, and its inputs.
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

// matching returns a function that reports whether an entry is for endpoint. "" matches all entries.
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

// unmeasured counts requests without a measured key, and those whose peer is counted.
type unmeasured struct {
	answered, keyless int64
	peers             simulate.Peers
}

func measure(meter *demand.Meter, log *weblog, of keyfunc.Func, matches func(*accesslog.Entry) bool) (counts unmeasured, err error) {
	requests := simulate.NewRequests(log.options(0))
	err = log.each(func(e *accesslog.Entry) error {
		if !matches(e) {
			return nil
		}
		if e.Status == http.StatusTooManyRequests {
			counts.answered++
		}
		key, err := of(requests.Of(e))
		if key, _ = keyfunc.Classify(key); err != nil || key == "" {
			counts.keyless++
		} else {
			meter.Add(key, e.At, 1)
		}
		return nil
	})
	counts.peers = requests.Peers()
	return counts, err
}

// A recommendation is the result of recommend.
type recommendation struct {
	finding
	Limit string `json:"limit"`
	Rules string `json:"rules"` // the text of a rules file
	*demand.Result
}

func limitText(n int64, per time.Duration) string { return limiter.Limit{Events: n, Per: per}.String() }

// ruleText returns the text of a rule for a file.
func ruleText(limit, key, only string) string {
	if strings.ContainsAny(key, ":|") {
		key = strconv.Quote(key)
	}
	rule := fmt.Sprintf("{limit: %s, key: %s}", limit, key)
	if only != "" {
		return fmt.Sprintf("endpoints:\n  %q: %s", only, rule)
	}
	return "default: " + rule
}

// write writes a recommendation as text. subject names what the key identifies.
func (r *recommendation) write(table io.Writer, subject string) {
	r.finding.write(table)
	fmt.Fprintf(table, "%s\n\nLIMIT\tCLIENTS REFUSED\t\t\n", peaks(r.Result))
	at := slices.IndexFunc(r.Curve, func(p demand.Point) bool { return p.Limit == r.Chosen.Limit })
	for _, p := range r.Curve[max(0, at-5):min(len(r.Curve), at+4)] { // some lower and higher limits
		mark := ""
		if p == r.Chosen {
			mark = "recommended"
		}
		fmt.Fprintf(table, "%s\t%s\t%s\t%s\n", limitText(p.Limit, r.Per), operate.Number(p.Keys), operate.Share(p.Keys, r.Keys), mark)
	}
	if refused := r.Refused[:min(len(r.Refused), mostOnTerminal)]; len(refused) > 0 {
		fmt.Fprintf(table, "\n%s REFUSED\tMOST PER %s\tUNTIL\n", strings.ToUpper(subject), strings.ToUpper(period(r.Per)))
		for _, c := range refused {
			fmt.Fprintf(table, "%s\t%s\t%s\n", c.Client, operate.Number(c.Most), c.At.Format(time.DateTime))
		}
		if more := r.Chosen.Keys - int64(len(refused)); more > 0 {
			fmt.Fprintf(table, "and %s more\n", operate.Number(more))
		}
	}
	fmt.Fprintf(table, "\nin a rules file:\n%s\n", r.Rules)
}

// subjectOf names what a key identifies.
func subjectOf(key string) string {
	switch {
	case key == "ip":
		return "client address"
	case strings.HasPrefix(key, "ip/") && !strings.Contains(key, "|"):
		return "network"
	}
	return key
}
