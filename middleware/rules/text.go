package rules

import (
	"errors"
	"fmt"
	"math"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/weirgo/weir/internal/invalid"
	netw "github.com/weirgo/weir/internal/network"
	"github.com/weirgo/weir/limiter"
	"github.com/weirgo/weir/middleware"
	"github.com/weirgo/weir/middleware/rules/internal/document"
)

// What is written as one word in a rules file.

// limitText is a limit in one piece.
type limitText struct{ limiter.Limit }

func (l *limitText) UnmarshalText(text []byte) error { return inWords(l.Limit.UnmarshalText(text)) }

// period is a time span.
type period struct{ time.Duration }

func (p *period) UnmarshalText(text []byte) (err error) {
	given := string(text)
	if given != "" && strings.Trim(given, "0123456789_") == "" {
		seconds, err := document.ParseInteger(given, 64)
		if err != nil {
			return fmt.Errorf("%.64q is not a whole number of seconds, nor a duration such as 10s, 1m, 24h or 30d", text)
		}
		given = strconv.FormatInt(seconds, 10) + "s"
	}
	p.Duration, err = limiter.ParsePeriod(given)
	return inWords(err)
}

// window is a period, or that of a calendar.
type window struct{ of limiter.Limit }

func (w *window) UnmarshalText(text []byte) (err error) {
	switch first, where, _ := strings.Cut(string(text), " "); {
	case first == "week", first == "month", first == "year", first == "day" && where != "":
		w.of, err = limiter.Parse("1/" + string(text))
		return inWords(err)
	}
	var p period
	err = p.UnmarshalText(text)
	w.of.Per = p.Duration
	return err
}

func (w window) String() string {
	w.of.Events = 1
	return strings.TrimPrefix(w.of.String(), "1/")
}

// inFile is the text of an error of another package, in the words of a file.
func inFile(err error) string { return invalid.In(words, err) }

// words are what a file calls the fields and options of other packages.
var words = map[invalid.Name]string{
	"Events": "requests", "Per": "window", "Burst": "burst", "Algorithm": "algorithm",
	"After": "after", "Within": "within", "Ban": "ban", "Factor": "factor", "Max": "max",
	"Options.MaxWait": "max_wait", "Priority: ByTier": "priority",
	"TrustHeader": "header ", "TrustProxies": "trusted", "TrustForwarded": "forwarded",
	"Legacy.Prefix": "limit", "Refusal.Status": "status", "Refusal.Type": "type", "Refusal.Title": "title", "Refusal.Message": "message", "Refusal.RetryAfter": "retry_after",
	"TrustUnixSocket()": "unix_socket", "TrustProxies or another option": "trusted or another way",
}

// inWords is an error with that text, or nil.
func inWords(err error) error {
	if err == nil {
		return nil
	}
	return errors.New(inFile(err))
}

// algorithm is one by its name.
type algorithm struct{ limiter.Algorithm }

var algorithms = []string{
	"sliding_window", "token_bucket", "leaky_bucket", "fixed_window", "sliding_log",
	"sliding_window_counter", "sliding_window_log", "gcra",
}

func (a *algorithm) UnmarshalText(text []byte) error {
	if a.Algorithm.UnmarshalText(text) != nil {
		return fmt.Errorf("%.64q is not an algorithm: %s", text, suggest(string(text), algorithms))
	}
	return nil
}

// outage is an outage policy by its name.
type outage struct{ limiter.Outage }

func (o *outage) UnmarshalText(text []byte) error { return inWords(o.Outage.UnmarshalText(text)) }

// A choice is what words stand for.
type choice[T comparable] struct {
	words  []string
	values []T
}

func (c *choice[T]) read(text []byte, into *T) error {
	i := slices.Index(c.words, string(text))
	if i < 0 {
		return fmt.Errorf("%.64q is not what can be written here: %s", text, suggest(string(text), c.words))
	}
	*into = c.values[i]
	return nil
}

func (c *choice[T]) word(value T) string { return c.words[slices.Index(c.values, value)] }

var (
	shadows    = choice[bool]{[]string{"enforce", "shadow"}, []bool{false, true}}
	resets     = choice[bool]{[]string{"unix", "delta"}, []bool{false, true}}
	whens      = choice[bool]{[]string{"before", "after"}, []bool{false, true}}
	strikeKind = choice[bool]{[]string{"refusals", "outcomes"}, []bool{false, true}}
	ruleModes  = choice[ruleMode]{[]string{"enforce", "shadow", "off", "deny"}, []ruleMode{{}, {shadow: true}, {off: true}, {deny: true}}}
	families   = choice[middleware.Headers]{[]string{"both", "legacy", "draft", "none"},
		[]middleware.Headers{middleware.HeadersBoth, middleware.HeadersLegacy, middleware.HeadersDraft11, middleware.HeadersNone}}
	noKeys = choice[middleware.NoKey]{[]string{"share", "skip", "bad_request", "unauthorized"},
		[]middleware.NoKey{middleware.NoKeyShare, middleware.NoKeySkip, middleware.NoKeyBadRequest, middleware.NoKeyUnauthorized}}
)

// mode says whether refusals are meant.
type mode struct{ shadow bool }

func (m *mode) UnmarshalText(text []byte) error { return shadows.read(text, &m.shadow) }
func (m mode) String() string                   { return shadows.word(m.shadow) }

// ruleMode says what becomes of the requests that a rule is for.
type ruleMode struct{ shadow, off, deny bool }

func (m *ruleMode) UnmarshalText(text []byte) error { return ruleModes.read(text, m) }
func (m ruleMode) String() string                   { return ruleModes.word(m) }

// fields says which families of header fields are sent.
type fields struct{ middleware.Headers }

func (f *fields) UnmarshalText(text []byte) error { return families.read(text, &f.Headers) }
func (f fields) String() string                   { return families.word(f.Headers) }

// reset says how the time is told at which a limit is whole again.
type reset struct{ delta bool }

func (r *reset) UnmarshalText(text []byte) error { return resets.read(text, &r.delta) }
func (r reset) String() string                   { return resets.word(r.delta) }

// when says when a request is charged whose end matters.
type when struct{ after bool }

func (w *when) UnmarshalText(text []byte) error { return whens.read(text, &w.after) }
func (w when) String() string                   { return whens.word(w.after) }

// strikes says what leads to a ban.
type strikes struct{ outcomes bool }

func (s *strikes) UnmarshalText(text []byte) error { return strikeKind.read(text, &s.outcomes) }
func (s strikes) String() string                   { return strikeKind.word(s.outcomes) }

// noKey says what becomes of requests without a key.
type noKey struct{ middleware.NoKey }

func (n *noKey) UnmarshalText(text []byte) error { return noKeys.read(text, &n.NoKey) }
func (n noKey) String() string                   { return noKeys.word(n.NoKey) }

// answers are some that count, by their status.
type answers struct{ text string }

func (a *answers) UnmarshalText(text []byte) error {
	a.text = string(text)
	_, err := middleware.ParseCounts(a.text)
	return inWords(err)
}

func (a answers) String() string { return a.text }

// percent is how much is used; 0 is off.
type percent struct {
	of100 int
	given bool
}

func (p *percent) UnmarshalText(text []byte) error {
	p.given = true
	if string(text) == "off" {
		p.of100 = 0
		return nil
	}
	digits, ok := strings.CutSuffix(string(text), "%")
	n, err := strconv.Atoi(digits)
	if !ok || err != nil || n < 1 || n > 99 || digits != strconv.Itoa(n) {
		return fmt.Errorf("%.64q is not a percentage from 1%% to 99%%, or off", text)
	}
	p.of100 = n
	return nil
}

func (p percent) String() string {
	if p.of100 == 0 {
		return "off"
	}
	return strconv.Itoa(p.of100) + "%"
}

// factor is a number from 1 to 1000.
type factor struct{ float64 }

func (f *factor) UnmarshalText(text []byte) (err error) {
	f.float64, err = strconv.ParseFloat(string(text), 64)
	if err != nil || !(f.float64 >= 1 && f.float64 <= 1000) || strings.ContainsAny(string(text), "xXpP_") {
		return fmt.Errorf("%.64q is not a number from 1 to 1000", text)
	}
	return nil
}

func (f factor) String() string { return strconv.FormatFloat(f.float64, 'f', -1, 64) }

// size is a number of bytes, or of whatever else.
type size struct{ n int64 }

var sizeUnits = map[string]int64{
	"": 1, "B": 1, "kB": 1e3, "KB": 1e3, "MB": 1e6, "GB": 1e9, "KiB": 1 << 10, "MiB": 1 << 20, "GiB": 1 << 30,
}

func (s *size) UnmarshalText(text []byte) error {
	given := string(text)
	digits := strings.TrimRight(given, "kKMGiB")
	unit, known := sizeUnits[given[len(digits):]]
	n, err := document.ParseInteger(digits, 64)
	if !known || err != nil || n < 1 || n > math.MaxInt64/unit {
		return fmt.Errorf("%.64q is not a size such as 1MiB, 500KB or 4096", text)
	}
	s.n = n * unit
	return nil
}

func (s size) String() string { return strconv.FormatInt(s.n, 10) }

// network is a CIDR, or an address.
type network struct{ netip.Prefix }

// UnmarshalText does not quote what it can't read: lists of networks stand beside lists of
// keys.
func (n *network) UnmarshalText(text []byte) (err error) {
	if n.Prefix, err = netw.Parse(string(text)); err != nil {
		return err
	}
	if widest := netw.Widest(n.Prefix); n.Bits() < widest {
		n.Prefix = netip.Prefix{}
		return fmt.Errorf("%w; networks wider than /%d are refused", errEveryone, widest)
	}
	return nil
}

var errEveryone = errors.New("it takes in everyone, or nearly")

// A limit and others can be written as the one thing that matters in them.

// UnmarshalText is also that of a rule, which embeds its limit. It leaves f without one that
// can't be read: that is noted then.
func (f *limitFields) UnmarshalText(text []byte) error {
	var l limitText
	if err := l.UnmarshalText(text); err != nil {
		return err
	}
	f.Limit = &l
	return nil
}

func (s *soft) UnmarshalText(text []byte) error { return s.At.UnmarshalText(text) }

func (c *cost) UnmarshalText(text []byte) error {
	n, err := document.ParseInteger(string(text), 64)
	if err != nil {
		return fmt.Errorf("%.64q is neither a whole number nor a mapping", text)
	}
	c.Units = &n
	return nil
}
