package dashboard_test

import (
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"net/http"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/weirgo/weir/keyfunc"
	"github.com/weirgo/weir/middleware/bans"
	"github.com/weirgo/weir/observe/dashboard"
)

func TestAnOperatorLetsACustomerThrough(t *testing.T) {
	s := start(t, dashboard.Options{})
	for range 11 {
		s.send("GET", "/", "198.51.100.1", "acme")
	}
	require.Equal(t, http.StatusTooManyRequests, s.send("GET", "/", "198.51.100.1", "acme"))

	code, said := s.do(`{"action":"look","rule":"tenant","key":"header:X-Tenant:acme"}`)
	require.Equal(t, http.StatusOK, code, said)
	var answer struct {
		Counts []struct {
			Rule, Tier, Next, Reset string
			Limit, Remaining        int
		}
	}
	require.NoError(t, json.Unmarshal([]byte(said), &answer))
	require.Len(t, answer.Counts, 2, "one for each tier")
	assert.Equal(t, 10, answer.Counts[0].Limit)
	assert.Zero(t, answer.Counts[0].Remaining)
	assert.NotEmpty(t, answer.Counts[0].Reset)
	assert.Equal(t, "premium", answer.Counts[1].Tier)
	require.Equal(t, http.StatusTooManyRequests, s.send("GET", "/", "198.51.100.1", "acme"), "a look gives nothing back")

	code, said = s.do(`{"action":"reset","rule":"tenant","key":"header:X-Tenant:acme"}`)
	require.Equal(t, http.StatusOK, code, said)
	assert.Equal(t, http.StatusOK, s.send("GET", "/", "198.51.100.1", "acme"))
}

func TestALookSaysUntilWhenAKeyHasALimitOfItsOwn(t *testing.T) {
	s := start(t, dashboard.Options{})
	code, said := s.do(`{"action":"look","rule":"internal","key":"apikey:import"}`)
	require.Equal(t, http.StatusOK, code, said)
	assert.Contains(t, said, `"own":"a limit of its own until 2999-12-24, because \"ticket 815\""`)
	code, said = s.do(`{"action":"look","rule":"internal","key":"apikey:another"}`)
	require.Equal(t, http.StatusOK, code, said)
	assert.NotContains(t, said, `"own"`)
}

func TestAnOperatorBansAndLiftsBans(t *testing.T) {
	for _, shown := range []bool{false, true} {
		s := start(t, dashboard.Options{ShowKeys: shown})
		code, said := s.do(`{"action":"ban","key":"203.0.113.9","for":"1d"}`)
		require.Equal(t, http.StatusOK, code, said)
		require.Equal(t, http.StatusForbidden, s.send("GET", "/", "203.0.113.9", ""))

		_, said = s.do(`{"action":"look","rule":"ip","key":"203.0.113.9"}`)
		assert.Contains(t, said, `"ban":`)

		list := s.figures().Bans
		require.Equal(t, 1, list.Total)
		assert.Equal(t, shown, list.List[0].Key == "203.0.113.9")
		assert.InDelta(t, time.Now().Add(24*time.Hour).UnixMilli(), list.List[0].Until, 60_000)
		code, unbanned := s.ask(map[string]any{"action": "unban", "key": list.List[0].Key})
		require.Equal(t, http.StatusOK, code, unbanned.Error)
		assert.Equal(t, http.StatusOK, s.send("GET", "/", "203.0.113.9", ""), "lifted by what the page shows for the key")
		assert.Zero(t, s.figures().Bans.Total)

		require.NoError(t, s.bans.Ban(t.Context(), "203.0.113.9", 0))
		code, _ = s.do(`{"action":"unban","key":"203.0.113.9"}`)
		require.Equal(t, http.StatusOK, code)
		assert.True(t, s.bans.Empty(), "lifted by the key itself")
		code, said = s.do(`{"action":"unban","key":"203.0.113.9"}`)
		assert.Equal(t, http.StatusNotFound, code)
		assert.Contains(t, said, "was not banned")
	}
}

func TestOnlyThePageItselfActs(t *testing.T) {
	const ban = `{"action":"ban","key":"203.0.113.9"}`
	for name, edit := range map[string]func(*http.Request){
		"another site":                       func(r *http.Request) { r.Header.Set("Sec-Fetch-Site", "cross-site") },
		"another host of the site":           func(r *http.Request) { r.Header.Set("Sec-Fetch-Site", "same-site") },
		"an old browser on another site":     func(r *http.Request) { r.Header.Del("Sec-Fetch-Site"); r.Header.Set("Origin", "https://evil.example") },
		"a form":                             func(r *http.Request) { r.Header.Set("Content-Type", "application/x-www-form-urlencoded") },
		"a form that says it is text":        func(r *http.Request) { r.Header.Set("Content-Type", "text/plain") },
		"nothing of what it is":              func(r *http.Request) { r.Header.Del("Content-Type") },
		"a GET, as a link or an image would": func(r *http.Request) { r.Method = http.MethodGet },
		"a HEAD":                             func(r *http.Request) { r.Method = http.MethodHead },
		"a PUT":                              func(r *http.Request) { r.Method = http.MethodPut },
	} {
		s := start(t, dashboard.Options{})
		_, _ = s.do(ban, edit)
		assert.True(t, s.bans.Empty(), name)
	}
	s := start(t, dashboard.Options{})
	_, _ = s.do(ban, func(r *http.Request) { r.Header.Set("Sec-Fetch-Site", "cross-site") })
	assert.Contains(t, s.log.String(), "weir-operator-refused")
	code, said := s.do(ban, func(r *http.Request) { r.Header.Del("Sec-Fetch-Site") })
	assert.Equal(t, http.StatusOK, code, "who is no browser says nothing of sites: %s", said)
}

func TestMistakesOfAnOperatorAreNamed(t *testing.T) {
	s := start(t, dashboard.Options{})
	for ask, want := range map[string]string{
		`{"action":"look","rule":"nope","key":"user:a"}`:  `there is no rule of that name: \"nope\"`,
		`{"action":"reset","rule":"nope","key":"user:a"}`: "there is no rule",
		`{"action":"look"}`:                                   "choose a rule",
		`{"action":"reset","key":"user:a"}`:                   "choose a rule",
		`{"action":"ban","key":""}`:                           "enter a key",
		`{"action":"unban","key":""}`:                         "enter a key",
		`{"action":"ban","key":"user:a","for":"-1h"}`:         "has a sign",
		`{"action":"ban","key":"user:a","for":"1 fortnight"}`: "1 fortnight",
		`{"action":"ban","key":"\"half"}`:                     "quotation mark",
		`{"action":"ban","key":"foo"}`:                        "no request can have this key: want an address",
		`{"action":"look","rule":"ip","key":"usr:42"}`:        "no request can have this key",
		`{"action":"reset","rule":"ip","key":"203.0.113"}`:    "no request can have this key",
		`{"action":"unban","key":"foo"}`:                      "no request can have this key",
		`{"action":"ban","key":"198.51.100.7/24"}`:            "this is a network, and no key: networks go into ban.cidrs",
		`{"action":"unban","key":"198.51.100.7/24"}`:          "is a network",
		`{"action":"look","rule":"ip","key":"10.0.0.1/8"}`:    "is a network",
		`{"action":"reset","rule":"ip","key":"10.0.0.1/8"}`:   "is a network",
		`{"action":"drop"}`:                                   `there is no action \"drop\"`,
		`{"action":"look","rulle":"ip"}`:                      `unknown field \"rulle\"`,
		`{`:                                                   "cannot be read",
		`{"action":"` + strings.Repeat("a", 65<<10) + `"}`:    "too large",
	} {
		code, said := s.do(ask)
		assert.Equal(t, http.StatusBadRequest, code, ask[:min(len(ask), 80)])
		assert.Contains(t, said, want)
	}
	without := dashboard.Must(dashboard.New(dashboard.Options{Authorize: anybody, Logger: slog.New(slog.DiscardHandler)}))
	s.mux = without
	_, said := s.do(`{"action":"ban","key":"user:a"}`)
	assert.Contains(t, said, "no list of bans")
	_, said = s.do(`{"action":"unban","key":"user:a"}`)
	assert.Contains(t, said, "no list of bans")
}

func TestWhatAnOperatorDoesIsLoggedWithoutTheKey(t *testing.T) {
	for _, shown := range []bool{false, true} {
		s := start(t, dashboard.Options{ShowKeys: shown})
		for _, ask := range []string{
			`{"action":"look","rule":"ip","key":"203.0.113.9"}`, `{"action":"reset","rule":"ip","key":"203.0.113.9"}`,
			`{"action":"ban","key":"203.0.113.9","for":"1h"}`, `{"action":"unban","key":"203.0.113.9"}`,
		} {
			s.do(ask, func(r *http.Request) { *r = *r.WithContext(keyfunc.WithUser(r.Context(), "ann")) })
		}
		s.do(`{"action":"look","rule":"nope","key":"203.0.113.9"}`, func(r *http.Request) { r.SetBasicAuth("bob", "secret") })
		s.do(`{"action":"ban","key":"a token pasted"}`)
		s.do(`{"action":"ban","keys":["203.0.113.9","a token pasted"]}`)
		log := s.log.String()
		assert.Equal(t, 7, strings.Count(log, "code=weir-operator "))
		assert.Equal(t, shown, strings.Contains(log, "pasted"))
		assert.Equal(t, 4, strings.Count(log, " by=ann "))
		assert.Contains(t, log, ` by="bob (claimed)"`, "nobody may have asked for the password")
		assert.NotContains(t, log, "secret")
		for _, word := range []string{"action=look", "action=reset", "action=ban", "action=unban", "rule=ip", "for=1h", "remote=192.0.2.1:1234"} {
			assert.Contains(t, log, word)
		}
		assert.Equal(t, shown, strings.Contains(log, "203.0.113.9"))
	}
}

func TestAnAddressIsTheKeyThatItIsCountedAs(t *testing.T) {
	s := start(t, dashboard.Options{ShowKeys: true})
	const client = "[2001:db8::1]"
	for range 3 {
		s.send("GET", "/", client, "")
	}
	_, said := s.do(`{"action":"look","rule":"strict","key":"2001:db8::ffff"}`)
	assert.Contains(t, said, `"remaining":2`)
	assert.Contains(t, said, `"key":"2001:db8::/64"`)
	_, said = s.do(`{"action":"reset","rule":"strict","key":" 2001:db8::1 "}`)
	assert.Contains(t, said, "This is counted as 2001:db8::/64. The key has all of its limit again")
	_, said = s.do(`{"action":"look","rule":"strict","key":"2001:db8::/64"}`)
	assert.Contains(t, said, `"remaining":5`)

	code, said := s.do(`{"action":"ban","key":"2001:db8::1","for":"1h"}`)
	require.Equal(t, http.StatusOK, code)
	assert.Contains(t, said, "The client is banned for 1h.")
	assert.Equal(t, http.StatusForbidden, s.send("GET", "/", client, ""))
	assert.Contains(t, s.log.String(), "action=ban key=2001:db8::/64")
	_, said = s.do(`{"action":"unban","key":"2001:db8::2"}`)
	assert.Contains(t, said, "The ban is lifted.")
	assert.Equal(t, http.StatusOK, s.send("GET", "/", client, ""))

	s.do(`{"action":"ban","key":" 203.0.113.9\t"}`)
	assert.Equal(t, http.StatusForbidden, s.send("GET", "/", "203.0.113.9", ""))
}

func TestAKeyInQuotationMarksIsTakenToTheLetter(t *testing.T) {
	s := start(t, dashboard.Options{})
	for _, key := range []string{"2001:db8::1", "198.51.100.0/24", " a "} {
		code, said := s.ask(map[string]any{"action": "ban", "key": strconv.Quote(key)})
		require.Equal(t, http.StatusOK, code, said.Error)
		_, banned := s.bans.Find(key)
		assert.True(t, banned, key)
	}
	code, said := s.ask(map[string]any{"action": "unban", "key": `"198.51.100.0/24"`})
	require.Equal(t, http.StatusOK, code, said.Error)
	_, banned := s.bans.Find("198.51.100.0/24")
	assert.False(t, banned)
}

func TestADigestStandsForItsKeyInActions(t *testing.T) {
	s := start(t, dashboard.Options{})
	for range 15 {
		s.send("GET", "/", "198.51.100.1", "acme")
	}
	require.NoError(t, s.bans.Ban(t.Context(), "203.0.113.9", 0))
	f := s.figures()
	tenant, listed := f.Top[0].Most[0].Key, f.Bans.List[0].Key
	code, said := s.do(`{"action":"ban","key":"` + tenant + `"}`)
	assert.Equal(t, http.StatusOK, code)
	assert.NotContains(t, said, "acme", "it is not told whose digest it is")
	_, banned := s.bans.Find("header:X-Tenant:acme")
	assert.True(t, banned)
	code, said = s.do(`{"action":"look","rule":"tenant","key":"` + tenant + `"}`)
	assert.Equal(t, http.StatusOK, code)
	assert.Contains(t, said, `"remaining":0`)
	assert.Contains(t, said, `"ban":{`)
	code, said = s.do(`{"action":"unban","key":"` + listed + `"}`)
	assert.Equal(t, http.StatusOK, code, said)
	_, banned = s.bans.Find("203.0.113.9")
	assert.False(t, banned)

	unknown := keyfunc.NewDigester(nil).Digest("user:unknown").String()
	for action, why := range map[string]string{"ban": "name the key", "look": "Enter the key itself", "reset": "Enter the key itself"} {
		code, said := s.do(`{"action":"` + action + `","rule":"tenant","key":"` + unknown + `"}`)
		assert.Equal(t, http.StatusBadRequest, code, action)
		assert.Contains(t, said, why)
	}
	code, _ = s.do(`{"action":"unban","key":"` + unknown + `"}`)
	assert.Equal(t, http.StatusNotFound, code)
}

func TestAShortSecretIsRefused(t *testing.T) {
	_, err := dashboard.New(dashboard.Options{Secret: []byte("abc")})
	assert.ErrorContains(t, err, "dashboard: Secret has 3 bytes")
}

// brokenList is one of a Redis that is down.
type brokenList struct{ bans.List }

func (b brokenList) Ban(ctx context.Context, key string, d time.Duration, notes ...bans.Note) error {
	return errors.Join(b.List.Ban(ctx, key, d, notes...), errors.New("connection refused"))
}

func (b brokenList) All(ctx context.Context) ([]bans.Ban, error) {
	all, _ := b.List.All(ctx)
	return all, errors.New("connection refused")
}

func TestABanThatOnlyThisProcessKnowsIsSaidToBeOne(t *testing.T) {
	memory := bans.Must(bans.New(bans.Options{}))
	page := dashboard.Must(dashboard.New(dashboard.Options{Authorize: anybody, Bans: brokenList{memory}, Logger: slog.New(slog.DiscardHandler)}))
	s := &service{t: t, page: page, mux: page}
	code, said := s.do(`{"action":"ban","key":"user:a"}`)
	assert.Equal(t, http.StatusBadGateway, code)
	assert.Contains(t, said, "connection refused")
	assert.Contains(t, said, "only this process knows")
	list := s.figures().Bans
	assert.Equal(t, 1, list.Total)
	assert.Contains(t, list.Error, "connection refused")
}
