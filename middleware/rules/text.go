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

// What is written as one word in a rules file. Each type says in JSONSchema how.

// limitText is a limit in one piece.
type limitText struct{ limiter.Limit }

func (l *limitText) UnmarshalText(text []byte) error { return inWords(l.Limit.UnmarshalText(text)) }

func (limitText) JSONSchema() map[string]any {
	return map[string]any{"type": "string", "title": "limit", "not": map[string]any{"pattern": unburstPattern}, "pattern": "^\\s*0*[1-9][0-9_]*\\s*/\\s*(" + periodPattern + "|" + calendarPattern + ")(\\s.*)?$", "examples": []string{"100/1m", "10/s burst 20", "1000/h token_bucket", "10000/month Europe/Berlin"}}
}

// unburstPattern is that of limits with a burst by an algorithm that has none.
const unburstPattern = `\s([Ff]ixed|[Ss]liding)[-_].*\s[Bb]urst\s|\s[Bb]urst\s.*\s([Ff]ixed|[Ss]liding)[-_]`

// longPattern is that of more days than a period may have.
const longPattern = `^0*(36[7-9]|3[7-9][0-9]|[4-9][0-9]{2}|[1-9][0-9]{3,})d`

// periodPattern is how package limiter reads periods, for the schema, and calendarPattern those that
// are of a calendar in any case.
const calendarPattern = `week|month|year`

const periodPattern = `(micro|milli)?second|sec|minute|min|hour|day|us|ms|[smhd]|([0-9]+\.?[0-9]*(ns|us|µs|μs|ms|s|m|h|d)|\.[0-9]+(ns|us|µs|μs|ms|s|m|h))+`

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

func (period) JSONSchema() map[string]any {
	return map[string]any{"type": []string{"string", "integer"}, "title": "duration", "minimum": 1, "maximum": 366 * 24 * 60 * 60, "not": map[string]any{"type": "string", "pattern": longPattern}, "pattern": "^(" + periodPattern + "|[1-9][0-9_]*)$", "examples": []any{"60s", "1m", "24h", "30d", 60}}
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

func (window) JSONSchema() map[string]any {
	schema := period{}.JSONSchema()
	schema["pattern"] = "^(" + periodPattern + "|[1-9][0-9_]*|(day|" + calendarPattern + ")( .*)?)$"
	schema["examples"] = []any{"60s", "1m", "24h", "30d", 60, "month Europe/Berlin"}
	return schema
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

func (algorithm) JSONSchema() map[string]any {
	return map[string]any{"title": "algorithm", "anyOf": []any{
		map[string]any{"enum": algorithms},
		map[string]any{"type": "string", "pattern": "^(" + anyCase(algorithms) + ")$"},
	}}
}

// outage is an outage policy by its name.
type outage struct{ limiter.Outage }

func (o *outage) UnmarshalText(text []byte) error { return inWords(o.Outage.UnmarshalText(text)) }

func (outage) JSONSchema() map[string]any {
	return map[string]any{"enum": []string{"local", "open", "closed"}, "title": "local, open or closed"}
}

// oneOf reads a word.
func oneOf[T any](text []byte, words []string, values []T) (value T, err error) {
	if i := slices.Index(words, string(text)); i >= 0 {
		return values[i], nil
	}
	return value, fmt.Errorf("%.64q is not what can be written here: %s", text, suggest(string(text), words))
}

// wordOf is the word that oneOf reads as value.
func wordOf[T comparable](value T, words []string, values []T) string {
	return words[slices.Index(values, value)]
}

// mode says whether refusals are meant.
type mode struct{ shadow bool }

var modes = []string{"enforce", "shadow"}

func (m *mode) UnmarshalText(text []byte) (err error) {
	m.shadow, err = oneOf(text, modes, []bool{false, true})
	return err
}

func (m mode) String() string { return wordOf(m.shadow, modes, []bool{false, true}) }

func (mode) JSONSchema() map[string]any {
	return map[string]any{"enum": modes, "title": "enforce or shadow"}
}

// ruleMode says what becomes of the requests that a rule is for.
type ruleMode struct{ shadow, off, deny bool }

var (
	ruleModes      = []string{"enforce", "shadow", "off", "deny"}
	ruleModeValues = []ruleMode{{}, {shadow: true}, {off: true}, {deny: true}}
)

func (m *ruleMode) UnmarshalText(text []byte) (err error) {
	*m, err = oneOf(text, ruleModes, ruleModeValues)
	return err
}

func (m ruleMode) String() string { return wordOf(m, ruleModes, ruleModeValues) }

func (ruleMode) JSONSchema() map[string]any {
	return map[string]any{"enum": ruleModes, "title": "enforce, shadow, off or deny"}
}

// fields says which families of header fields are sent.
type fields struct{ middleware.Headers }

var (
	fieldFamilies = []string{"both", "legacy", "draft", "none"}
	fieldValues   = []middleware.Headers{middleware.HeadersBoth, middleware.HeadersLegacy, middleware.HeadersDraft11, middleware.HeadersNone}
)

func (f *fields) UnmarshalText(text []byte) (err error) {
	f.Headers, err = oneOf(text, fieldFamilies, fieldValues)
	return err
}

func (f fields) String() string { return wordOf(f.Headers, fieldFamilies, fieldValues) }

func (fields) JSONSchema() map[string]any {
	return map[string]any{"enum": fieldFamilies, "title": "both, legacy, draft or none"}
}

// reset says how the time is told at which a limit is whole again.
type reset struct{ delta bool }

var resets = []string{"unix", "delta"}

func (r *reset) UnmarshalText(text []byte) (err error) {
	r.delta, err = oneOf(text, resets, []bool{false, true})
	return err
}

func (r reset) String() string { return wordOf(r.delta, resets, []bool{false, true}) }

func (reset) JSONSchema() map[string]any {
	return map[string]any{"enum": resets, "title": "unix or delta"}
}

// when says when a request is charged whose end matters.
type when struct{ after bool }

var whens = []string{"before", "after"}

func (w *when) UnmarshalText(text []byte) (err error) {
	w.after, err = oneOf(text, whens, []bool{false, true})
	return err
}

func (w when) String() string { return wordOf(w.after, whens, []bool{false, true}) }

func (when) JSONSchema() map[string]any {
	return map[string]any{"enum": whens, "title": "before or after"}
}

// answers are some that count, by their status.
type answers struct{ text string }

func (a *answers) UnmarshalText(text []byte) error {
	a.text = string(text)
	_, err := middleware.ParseCounts(a.text)
	return inWords(err)
}

func (a answers) String() string { return a.text }

func (answers) JSONSchema() map[string]any {
	return map[string]any{
		"anyOf": []any{
			map[string]any{"type": "integer", "minimum": 100, "maximum": 599},
			map[string]any{"type": "string", "pattern": "^!?[1-5]([0-9]{2}|xx)$"},
		},
		"title": "status or class", "examples": []any{401, "2xx", "!5xx"},
	}
}

// strikes says what leads to a ban.
type strikes struct{ outcomes bool }

var strikeKinds = []string{"refusals", "outcomes"}

func (s *strikes) UnmarshalText(text []byte) (err error) {
	s.outcomes, err = oneOf(text, strikeKinds, []bool{false, true})
	return err
}

func (s strikes) String() string { return wordOf(s.outcomes, strikeKinds, []bool{false, true}) }

func (strikes) JSONSchema() map[string]any {
	return map[string]any{"enum": strikeKinds, "title": "refusals or outcomes"}
}

// noKey says what becomes of requests without a key.
type noKey struct{ middleware.NoKey }

var (
	noKeys      = []string{"share", "skip", "bad_request", "unauthorized"}
	noKeyValues = []middleware.NoKey{middleware.NoKeyShare, middleware.NoKeySkip, middleware.NoKeyBadRequest, middleware.NoKeyUnauthorized}
)

func (n *noKey) UnmarshalText(text []byte) (err error) {
	n.NoKey, err = oneOf(text, noKeys, noKeyValues)
	return err
}

func (n noKey) String() string { return wordOf(n.NoKey, noKeys, noKeyValues) }

func (noKey) JSONSchema() map[string]any {
	return map[string]any{"enum": noKeys, "title": "share, skip, bad_request or unauthorized"}
}

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

func (percent) JSONSchema() map[string]any {
	return map[string]any{"type": "string", "pattern": "^([1-9][0-9]?%|off)$", "title": "percentage", "examples": []string{"80%", "off"}}
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

func (factor) JSONSchema() map[string]any {
	return map[string]any{"type": "number", "minimum": 1, "maximum": 1000, "title": "number"}
}

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

func (size) JSONSchema() map[string]any {
	return map[string]any{"type": []string{"string", "integer"}, "title": "size", "minimum": 1, "pattern": "^[1-9][0-9_]*([kK]?B|[MG]B|[KMG]iB)?$", "examples": []any{"1MiB", "500KB", 4096}}
}

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

func (network) JSONSchema() map[string]any {
	return map[string]any{"type": "string", "title": "network", "pattern": "^[0-9A-Fa-f:.]+(/[0-9]{1,3})?$", "examples": []string{"10.0.0.0/8", "192.0.2.7", "2001:db8::/32"}}
}

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

func (limitFields) JSONSchema() map[string]any { return limitText{}.JSONSchema() }
func (soft) JSONSchema() map[string]any        { return percent{}.JSONSchema() }
func (cost) JSONSchema() map[string]any {
	return map[string]any{"type": []string{"integer", "string"}, "minimum": 1, "pattern": document.PositivePattern, "title": "number"}
}
