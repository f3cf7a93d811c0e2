package pace_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weirgo/weir/keyfunc"
	"github.com/weirgo/weir/limiter"
	"github.com/weirgo/weir/pace"
)

func TestOptionsAreCheckedAllAtOnce(t *testing.T) {
	t.Parallel()
	per := limiter.PerSecond(1)
	rule := pace.Rule{Host: "example.org", Limit: per}
	for name, c := range map[string]struct {
		options pace.Options
		want    []string
	}{
		"nothing": {pace.Options{}, []string{"pace: Rules are missing"}},
		"everything": {pace.Options{Rules: []pace.Rule{rule}, MaxWait: -1, Retry: pace.Retry{Attempts: 11, Budget: 101}, Secret: []byte("short")},
			[]string{"MaxWait is -1ns", "Retry.Attempts is 11", "Retry.Budget is 101", "Secret has 5 bytes"}},
		"a budget for nothing": {pace.Options{Rules: []pace.Rule{rule}, Retry: pace.Retry{Budget: 10}}, []string{"Retry.Budget is 10"}},
		"rules": {pace.Options{Rules: []pace.Rule{
			{}, {Host: "https://a.org"}, {Host: "a.org/b", Limit: per}, {Host: "ä.org", Limit: per}, {Host: "a.org:http", Limit: per}, {Host: "*.", Limit: per}, {Host: "*.192.0.2.1", Limit: per}, {Host: "a b", Limit: per},
			{Host: "b.org", Limit: limiter.Limit{Events: -1, Per: time.Second}}, {Host: "c.org", Limit: per.With(limiter.SlidingLog)},
			{Host: "d.org", Limit: limiter.All(per, limiter.AtOnce(-1))}, {Host: "e.org", Limit: per, OnOutage: 9},
			{Host: "f.org", Name: "\x01", Limit: per}, {Host: "g.org"},
		}}, []string{
			"rule 1: pace: Host is missing", "Limit is missing", `rule "https://a.org": pace: Host is "https://a.org"`, `"a.org/b"`, `"ä.org"`, `"a.org:http"`, `"*."`, `"*.192.0.2.1"`, `"a b"`,
			`rule "b.org": limiter: Events is -1`, `rule "c.org": pace: Limit is 1/1s sliding-log`, `rule "d.org": limiter: Max is -1`, `rule "e.org": limiter: OnOutage is 9`,
			"outside printable ASCII", `rule "g.org": limiter: Limit is missing`,
		}},
		"names": {pace.Options{Rules: []pace.Rule{{Name: "a", Host: "a.org", Limit: per}, {Name: "a", Host: "b.org", Limit: per}}}, []string{`two rules are named "a"`}},
		"a rule that never applies": {pace.Options{Rules: []pace.Rule{{Host: "*.example.org", Limit: per}, {Host: "api.EXAMPLE.org:443", Limit: per}}},
			[]string{`rule "api.EXAMPLE.org:443" never applies: the earlier rule "*.example.org"`}},
		"a second that never applies": {pace.Options{Rules: []pace.Rule{{Host: "*", Limit: per}, {Host: "*.example.org", Limit: per}}}, []string{`rule "*.example.org" never applies: the earlier rule "*"`}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			_, err := pace.NewTransport(nil, c.options)
			for _, part := range c.want {
				require.ErrorContains(t, err, part)
			}
			require.Panics(t, func() { pace.Must(pace.NewTransport(nil, c.options)) })
		})
	}
}

func TestARuleIsForItsHosts(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		host, url string
		want      bool
	}{
		{"api.example.org", "https://api.example.org/", true},
		{"api.example.org", "https://API.example.ORG./x", true},
		{"API.Example.org", "https://api.example.org:8443/", true},
		{"api.example.org", "https://example.org/", false},
		{"api.example.org", "https://api.example.org.evil.net/", false},
		{"api.example.org:443", "https://api.example.org/", true},
		{"api.example.org:443", "http://api.example.org/", false},
		{"api.example.org:80", "http://api.example.org/", true},
		{"api.example.org:8443", "https://api.example.org:8443/", true},
		{"api.example.org:8443", "https://api.example.org/", false},
		{"*.example.org", "https://api.example.org/", true},
		{"*.example.org", "https://a.b.example.org/", true},
		{"*.example.org", "https://example.org/", false},
		{"*.example.org", "https://notexample.org/", false},
		{"*.example.org:8443", "https://a.example.org:8443/", true},
		{"*", "https://whatever.net:7/", true},
		{"127.0.0.1", "http://127.0.0.1:9/", true},
		{"[::1]", "http://[::1]:9/", true},
		{"[::1]:9", "http://[0:0::1]:9/", true},
		{"[::1]:9", "http://[::1]:8/", false},
	} {
		base := round(func(*http.Request) (*http.Response, error) { return respond(200), nil })
		transport := newTransport(t, base, pace.Options{RefuseUnmatched: true, Rules: []pace.Rule{{Host: c.host, Limit: limiter.PerSecond(10)}}})
		_, err := get(t, transport, c.url)
		require.Equal(t, c.want, !errors.Is(err, pace.ErrNoRule), "%s for %s", c.host, c.url)
	}
}

// One host has several quotas: the first rule that is for a request applies.
func TestAHostMayHaveSeveralQuotas(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newServer(nil)
		transport := newTransport(t, s, pace.Options{Rules: []pace.Rule{
			{Name: "search", Host: "api.example.org", Limit: limiter.PerMinute(30), Match: func(r *http.Request) bool { return strings.HasPrefix(r.URL.Path, "/search/") }},
			{Name: "core", Host: "api.example.org", Limit: limiter.PerSecond(10), Key: keyfunc.Header("X-Account")},
		}})
		for _, c := range []struct {
			path, account string
			at            time.Duration
		}{
			{"/search/a", "1", 0}, {"/users", "1", 0}, {"/users", "2", 0}, {"/users", "", 0}, {"/users", "1", 100 * time.Millisecond},
			{"/users", "", 100 * time.Millisecond}, {"/search/b", "2", 2 * time.Second},
		} {
			r := request(t, "GET", "https://api.example.org"+c.path)
			if c.account != "" {
				r.Header.Set("X-Account", c.account)
			}
			_, err := do(transport, r)
			require.NoError(t, err)
			require.Equal(t, c.at, time.Since(s.zero), "%s by %s", c.path, c.account)
		}
		stats := transport.Stats()
		require.Equal(t, []string{"search", "core"}, []string{stats[0].Rule, stats[1].Rule})
	})
}

func TestAHostWithoutARuleIsNoticed(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		refuse bool
		sent   int
		warned int
	}{
		"by default": {false, 40, 2}, "refused": {true, 0, 0},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var log bytes.Buffer
			var seen observed
			s := newServer(nil)
			transport := newTransport(t, s, pace.Options{
				Rules: rules(limiter.PerSecond(1)), RefuseUnmatched: c.refuse, Observer: &seen, Logger: slog.New(slog.NewTextHandler(&log, nil)),
			})
			for range 20 {
				for _, url := range []string{"https://api.exmaple.org/", "https://other.example.org/"} {
					_, err := get(t, transport, url)
					require.Equal(t, c.sent == 0, errors.Is(err, pace.ErrNoRule), err)
				}
			}
			require.Equal(t, c.sent, s.count())
			require.Equal(t, c.warned, strings.Count(log.String(), "weir-unpaced"))
			for _, o := range seen.all() {
				require.Equal(t, pace.OutcomeUnmatched, o.Outcome)
			}
			require.Len(t, seen.all(), 40)
		})
	}
}

func TestARequestOfWhichTheKeyFailsIsNotSent(t *testing.T) {
	t.Parallel()
	s := newServer(nil)
	unknown := errors.New("the session is gone")
	transport := newTransport(t, s, pace.Options{Rules: []pace.Rule{{
		Host: "api.example.org", Limit: limiter.PerSecond(1), Key: func(*http.Request) (string, error) { return "", unknown },
	}}})
	_, err := get(t, transport, api)
	require.ErrorIs(t, err, unknown)
	require.Zero(t, s.count())
}

// keysOf is a store that writes which keys it counts.
type keysOf struct {
	limiter.Store
	log io.Writer
}

func (s keysOf) Decide(ctx context.Context, charges []limiter.Charge) error {
	for _, c := range charges {
		fmt.Fprintln(s.log, c.Key)
	}
	return s.Store.Decide(ctx, charges)
}

// Whatever is logged, counted, observed or returned, a token is not in it.
func TestTokensAreNotTold(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const secret = "s3cr3t-t0k3n"
		var log bytes.Buffer
		var seen observed
		s := newServer(func(*http.Request, int) *http.Response { return respond(429, "Retry-After", "3600") })
		list := &refusing{newBans(t)}
		transport := newTransport(t, s, pace.Options{
			Rules:     []pace.Rule{{Host: "api.example.org", Key: pace.Token, Limit: limiter.PerSecond(1)}},
			Cooldowns: list, Observer: &seen, Logger: slog.New(slog.NewTextHandler(&log, nil)), Store: keysOf{limiter.Must(limiter.NewMemory(limiter.MemoryOptions{})), &log},
		})
		r := request(t, "GET", api)
		r.Header.Set("Authorization", "Bearer "+secret)
		_, err := do(transport, r)
		require.NoError(t, err)
		_, err = do(transport, r)
		require.Error(t, err)
		require.Contains(t, log.String(), "weir-cooldown-alone")
		_, told := io.WriteString(&log, err.Error())
		require.NoError(t, told)
		for _, o := range seen.all() {
			log.WriteString(o.Key)
			require.Len(t, o.Key, keyfunc.DigestSize)
		}
		require.NotContains(t, log.String(), secret)
		require.Equal(t, 1, s.count(), "a cooldown that cannot be shared holds here")
	})
}

func TestTwoHostsUnderOneQuotaArePacedTogether(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newServer(nil)
		transport := newTransport(t, s, pace.Options{Rules: []pace.Rule{{Name: "github", Host: "*.github.com", Key: pace.Token, Limit: limiter.PerSecond(1)}}})
		for _, host := range []string{"api.github.com", "uploads.github.com", "API.GITHUB.COM:443"} {
			_, err := get(t, transport, "https://"+host+"/")
			require.NoError(t, err)
		}
		require.Equal(t, []time.Duration{0, time.Second, 2 * time.Second}, s.times())
	})
}
