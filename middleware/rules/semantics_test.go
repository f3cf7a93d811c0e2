package rules_test

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/weirgo/weir/internal/phase"
	"github.com/weirgo/weir/keyfunc"
	"github.com/weirgo/weir/limiter"
	"github.com/weirgo/weir/middleware"
	"github.com/weirgo/weir/middleware/bans"
	"github.com/weirgo/weir/middleware/rules"
)

func TestPreflightsCountUnlessTheFileAllowsThem(t *testing.T) {
	preflight := call{route: "OPTIONS /a", from: "10.0.0.1:1", header: map[string]string{
		"Origin": "https://a.example", "Access-Control-Request-Method": "POST", "X-Forwarded-For": "192.0.2.1",
	}}
	const text = `
version: 1
proxies: {trusted: 10.0.0.0/8}
endpoints: {"/a": {limit: 2/h, key: "apikey:X-Api-Key", no_key: unauthorized}}
`
	s := openText(t, text)
	s.passes(2, preflight)
	preflight.header["X-Forwarded-For"] = "192.0.2.2"
	s.passes(2, preflight) // another client behind the same proxy

	s = openText(t, text+"allow: {preflights: true}\n")
	for range 5 {
		require.Equal(t, http.StatusOK, s.status(preflight))
	}
	delete(preflight.header, "Origin")
	require.Equal(t, http.StatusUnauthorized, s.status(preflight), "without an origin it is none")
}

func TestTheOrderIsBanAllowGlobalTierEndpointDefault(t *testing.T) {
	phase.Test(t, func(t *testing.T) {
		s := openText(t, `
version: 1
headers: {send: both}
default: {limit: 3/h sliding_log}
endpoints: {"GET /a": 2/h sliding_log}
tiers: {free: {limit: 4/h sliding_log, key: ip}}
global: {limit: 6/h sliding_log, key: global}
allow: {cidrs: 198.51.100.0/28, routes: "GET /healthz"}
ban: {cidrs: 198.51.100.7}
`)
		ok, refused := http.StatusOK, http.StatusTooManyRequests

		// A ban goes before all, and the list of those who are not limited before the limits.
		require.Equal(t, http.StatusForbidden, s.status(call{from: "198.51.100.7:1"}))
		require.Equal(t, http.StatusForbidden, s.status(call{from: "198.51.100.7:1", route: "/healthz"}))
		for range 10 {
			answer := s.ask(call{from: "198.51.100.8:1", route: "/a", tier: "free"})
			require.Equal(t, ok, answer.StatusCode)
			require.Empty(t, answer.Header.Get("Ratelimit"))
			require.Equal(t, ok, s.status(call{route: "/healthz", tier: "free"}))
		}

		// The rest are charged together, in this order, and all of them or none.
		a := call{route: "/a", tier: "free"}
		require.Equal(t, `"global";q=6;w=3600, "tier:free";q=4;w=3600, "GET /a";q=2;w=3600`, s.ask(a).Header.Get("Ratelimit-Policy"))
		require.Equal(t, ok, s.status(a))
		require.Equal(t, refused, s.status(a))
		require.Equal(t, refused, s.status(a))
		b := call{path: "/b", tier: "free"}
		answer := s.ask(b)
		require.Equal(t, ok, answer.StatusCode)
		requireLeft(t, "global 3, tier:free 1", answer)
		require.Equal(t, ok, s.status(b))
		answer = s.ask(b)
		require.Equal(t, refused, answer.StatusCode)
		requireLeft(t, "tier:free 0, global 2", answer) // who refused comes first
		guest := call{path: "/b", tier: "paid"}
		requireLeft(t, "global 1, default 2", s.ask(guest)) // the file has no such tier
		requireLeft(t, "global 0, default 1", s.ask(call{path: "/b"}))
	})
}

// requireLeft compares what an answer says of what is left, "rule n, rule n".
func requireLeft(t testing.TB, want string, answer *http.Response) {
	t.Helper()
	var left []string
	for member := range strings.SplitSeq(answer.Header.Get("Ratelimit"), ", ") {
		name, rest, _ := strings.Cut(member, ";r=")
		n, _, _ := strings.Cut(rest, ";")
		left = append(left, strings.Trim(name, `"`)+" "+n)
	}
	require.Equal(t, want, strings.Join(left, ", "))
}

func TestWhoIsBanned(t *testing.T) {
	phase.Test(t, func(t *testing.T) {
		s := open(t, load(t, map[string]string{
			"limits.yaml": `
version: 1
proxies: {trusted: [10.0.0.0/8, "2001:db8:1::/48"]}
ban:
  cidrs: [198.51.100.0/24, "2001:db8:bad::/48", "::ffff:192.0.2.128/121"]
  keys: ["user:eve", "header:X-Tenant:acme", "cookie:session:s3", "203.0.113.5", "2001:db8:5::/64", "host:evil.example"]
  file: more.txt
default: {limit: 1000/s}
`,
			"more.txt": "\ufeff# who was bad\r\n\r\n203.0.113.6\r\n203.0.113.128/25  # an office\r\n\tuser:mallory\r\nuser:a#b\r\nbearer:t0k3n #\r\nmethod:TRACE",
		}, rules.Options{}))
		forwarded := func(from, by string) call { return call{from: by, header: map[string]string{"X-Forwarded-For": from}} }
		header := func(name, value string) call { return call{header: map[string]string{name: value}} }
		for name, of := range map[string]struct {
			c      call
			banned bool
		}{
			"an address in a network":                    {call{from: "198.51.100.200:1"}, true},
			"one beside it":                              {call{from: "198.51.101.0:1"}, false},
			"one of IPv6":                                {call{from: "[2001:db8:bad:ffff::1]:1"}, true},
			"one beside it of IPv6":                      {call{from: "[2001:db8:bae::1]:1"}, false},
			"IPv4 in IPv6":                               {call{from: "[::ffff:198.51.100.1]:1"}, true},
			"IPv4 in NAT64":                              {call{from: "[64:ff9b::198.51.100.1]:1"}, true},
			"a network written as IPv4 in IPv6":          {call{from: "192.0.2.129:1"}, true},
			"one outside of that":                        {call{from: "192.0.2.127:1"}, false},
			"a client behind a proxy":                    {forwarded("198.51.100.1", "10.1.1.1:1"), true},
			"one that names another before it":           {forwarded("192.0.2.1, 198.51.100.1", "10.1.1.1:1"), true},
			"one behind two proxies":                     {forwarded("198.51.100.1, 10.2.2.2", "[2001:db8:1::7]:1"), true},
			"one that only says so":                      {forwarded("198.51.100.1, 192.0.2.1", "10.1.1.1:1"), false},
			"one that says so to no proxy":               {forwarded("198.51.100.1", "192.0.2.1:1"), false},
			"one that would be another, without a proxy": {forwarded("192.0.2.1", "198.51.100.1:1"), true},
			"the proxy itself":                           {call{from: "10.1.1.1:1"}, false},
			"a peer without an address":                  {call{from: "@"}, false},
			"a user":                                     {call{user: "eve"}, true},
			"another user":                               {call{user: "Eve"}, false},
			"a header":                                   {header("X-Tenant", "acme"), true},
			"another value of it":                        {header("X-Tenant", "acme2"), false},
			"a cookie":                                   {header("Cookie", "a=b; session=s3"), true},
			"another cookie":                             {header("Cookie", "session=s4"), false},
			"an address as a key":                        {call{from: "203.0.113.5:1"}, true},
			"a network as a key":                         {call{from: "[2001:db8:5::9]:1"}, true},
			"a host":                                     {call{host: "EVIL.example:8080"}, true},
			"another host":                               {call{host: "good.example"}, false},
			"an address in the file":                     {call{from: "203.0.113.6:1"}, true},
			"one not in the file":                        {call{from: "203.0.113.7:1"}, false},
			"a network in the file":                      {call{from: "203.0.113.200:1"}, true},
			"a user in the file":                         {call{user: "mallory"}, true},
			"a user with a # in the name":                {call{user: "a#b"}, true},
			"one with less of a name":                    {call{user: "a"}, false},
			"a token in the file":                        {header("Authorization", "bearer t0k3n"), true},
			"another token":                              {header("Authorization", "Bearer t0k3n2"), false},
			"a method in the file":                       {call{route: "TRACE /"}, true},
			"nobody in particular":                       {call{}, false},
		} {
			want := http.StatusOK
			if of.banned {
				want = http.StatusForbidden
			}
			answer := s.ask(of.c)
			assert.Equal(t, want, answer.StatusCode, name)
			assert.Empty(t, answer.Header.Get("Retry-After"), name)
		}
	})
}

func TestBannedClientsAreAnsweredWhatTheFileSays(t *testing.T) {
	s := openText(t, "version: 1\nban: {cidrs: 192.0.2.1, status: 429}\n")
	answer := s.ask(call{})
	require.Equal(t, http.StatusTooManyRequests, answer.StatusCode)
	require.Equal(t, "no-store", answer.Header.Get("Cache-Control"))
	body, err := io.ReadAll(answer.Body)
	require.NoError(t, err)
	require.Equal(t, `{"error":"rate_limit_exceeded","message":"Too many requests."}`, string(body))
	require.Equal(t, http.StatusOK, s.status(call{from: "192.0.2.2:1"}))
}

func TestACompositeKeyThatWasBannedIsFoundWhereTheKeyIsMade(t *testing.T) {
	const key = "join:7:user:429:192.0.2.1"
	s := openText(t, `{"version": 1, "default": {"limit": "100/s", "key": ["user", "ip"]}, "ban": {"keys": "`+key+`"}}`)
	require.Equal(t, http.StatusForbidden, s.status(call{user: "42"}))
	require.Equal(t, http.StatusOK, s.status(call{user: "43"}))
	require.Equal(t, http.StatusOK, s.status(call{user: "42", from: "192.0.2.2:1"}))
}

func TestEachWayToFindTheClient(t *testing.T) {
	for proxies, of := range map[string]struct {
		c    call
		want string
	}{
		"{trusted: 10.0.0.0/8}":                          {call{from: "10.0.0.1:1", header: map[string]string{"X-Forwarded-For": "192.0.2.9"}}, "192.0.2.9"},
		"{forwarded: 10.0.0.0/8}":                        {call{from: "10.0.0.1:1", header: map[string]string{"Forwarded": "for=192.0.2.9"}}, "192.0.2.9"},
		"{header: {name: x-real-ip}}":                    {call{from: "203.0.113.1:1", header: map[string]string{"X-Real-Ip": "192.0.2.9"}}, "192.0.2.9"},
		"{header: {name: X-Real-IP, cidrs: 10.0.0.0/8}}": {call{from: "203.0.113.1:1", header: map[string]string{"X-Real-Ip": "192.0.2.9"}}, "203.0.113.1"},
		"{hops: 2}":                                               {call{header: map[string]string{"X-Forwarded-For": "1.1.1.1, 192.0.2.9, 2.2.2.2"}}, "192.0.2.9"},
		"{trusted: [], unix_socket: true}":                        {call{from: "@", header: map[string]string{"X-Forwarded-For": "192.0.2.9"}}, "192.0.2.9"},
		"{trusted: 10.0.0.0/8, unix_socket: false}":               {call{from: "@", header: map[string]string{"X-Forwarded-For": "192.0.2.9"}}, "no-ip"},
		"{ipv6_prefix: 48}":                                       {call{from: "[2001:db8:1:2::3]:1"}, "2001:db8:1::/48"},
		"{ipv6_prefix: 128, forwarded: [10.0.0.1, \"::1\"]}":      {call{from: "[::1]:1", header: map[string]string{"Forwarded": `for="[2001:db8::7]"`}}, "2001:db8::7/128"},
		"{trusted: 10.0.0.1, ipv6_prefix: 64}":                    {call{from: "[2001:db8:1:2::3]:1", header: map[string]string{"X-Forwarded-For": "192.0.2.9"}}, "2001:db8:1:2::/64"},
		"{trusted: 10.0.0.0/8, unix_socket: true}\nmode: enforce": {call{from: "/run/x.sock", header: map[string]string{"X-Forwarded-For": "192.0.2.9"}}, "192.0.2.9"},
	} {
		c := parse(t, "version: 1\nproxies: "+proxies+"\ndefault: {limit: 3/s}\n", rules.Options{}).Config()
		assert.Equal(t, of.want, keyOf(t, c.Default[0], of.c), proxies)
	}
}

func TestWhatARequestCosts(t *testing.T) {
	const contentLength = "{header: content-length, per: 1KiB}"
	sized := func(n int64) call { return call{route: "POST /", length: n} }
	said := func(value string) call { return call{header: map[string]string{"X-Units": value}} }
	param := func(values ...string) *http.Request {
		r := call{header: map[string]string{"Mcp-Method": "tools/call"}}.request()
		r.Header["Mcp-Param-Max-Tokens"] = values
		return r
	}
	twice := func(values ...string) *http.Request {
		r := call{}.request()
		r.Header["X-Units"] = values
		return r
	}
	for _, of := range []struct {
		cost string
		r    *http.Request
		want int64
	}{
		{contentLength, sized(1024).request(), 1},
		{contentLength, sized(1025).request(), 2},
		{contentLength, sized(10 << 10).request(), 10},
		{contentLength, call{}.request(), 1},                                // no body
		{contentLength, sized(-1).request(), 1},                             // chunked
		{"{header: Content-Length, missing: 9}", sized(-1).request(), 9},    // and not for less
		{"{header: Content-Length, missing: 9}", call{}.request(), 1},       // no body, and said so
		{contentLength, sized(1<<63 - 1).request(), 1 << 53},                // huge, and no overflow
		{"{header: Content-Length}", sized(1<<63 - 1).request(), 1<<63 - 1}, // all of it
		{"{header: Content-Length, max: 50}", sized(1 << 40).request(), 50}, // at most
		{"{header: Content-Length, missing: 90, max: 50}", sized(-1).request(), 50},
		{"{header: X-Units}", said("5").request(), 5},
		{"{header: X-Units}", said(" 5\t").request(), 5},
		{"{header: X-Units}", said("0").request(), 1},
		{"{header: X-Units}", said("-5").request(), 1},
		{"{header: X-Units, missing: 4}", said("-5").request(), 4},
		{"{header: X-Units, missing: 4}", said("+5").request(), 4},
		{"{header: X-Units, missing: 4}", said("0x10").request(), 4},
		{"{header: X-Units, missing: 4}", said("1e9").request(), 4},
		{"{header: X-Units, missing: 4}", said("5, 6").request(), 4},
		{"{header: X-Units, missing: 4}", said("five").request(), 4},
		{"{header: X-Units, missing: 4}", said("").request(), 4},
		{"{header: X-Units, missing: 4}", call{}.request(), 4},
		{"{header: X-Units, max: 100}", said("99999999999999999999999").request(), 100},
		{"{header: X-Units, per: 3}", said("7").request(), 3},
		{"{header: x-units}", twice("5", "8", "6"), 8},
		{"{header: x-units, missing: 4}", twice("5", "many"), 4},
		{"{param: max-tokens}", param("5"), 5},
		{"{param: max-tokens, per: 3}", param("=?base64?Ny4w?="), 3}, // 7.0
		{"{param: max-tokens, missing: 4}", param("-5"), 4},
		{"{param: max-tokens, missing: 4}", param("many"), 4},
		{"{param: max-tokens, missing: 4}", param(), 4},
		{"{param: max-tokens, missing: 4}", call{header: map[string]string{"Mcp-Param-Max-Tokens": "5"}}.request(), 4},
		{"{param: max-tokens, missing: 4, max: 100}", param("5", "5"), 100}, // which one counts is in doubt
		{"{param: max-tokens, missing: 4, max: 100}", param("1.5"), 100},
	} {
		cost := parse(t, "version: 1\ndefault: {limit: 90/s, cost: "+of.cost+"}\n", rules.Options{}).Config().Default[0].Cost
		assert.Equal(t, of.want, cost.Of(of.r), "%s of %v, length %d", of.cost, of.r.Header, of.r.ContentLength)
	}
}

func TestAMissingCostAboveTheLimitRefusesTheRequest(t *testing.T) {
	for text, want := range map[string]int{"missing: 10": http.StatusOK, "missing: 11": http.StatusTooManyRequests} {
		s := openText(t, "version: 1\ndefault: {requests: 10, window: 1h, algorithm: sliding_window_log, cost: {header: Content-Length, per: 1MiB, "+text+"}}\n")
		require.Equal(t, want, s.status(call{route: "POST /", length: -1}), text)
	}
}

func TestKeysAreReadAsTheFileSays(t *testing.T) {
	tenant := map[string]string{"X-Tenant": "acme", "Cookie": "session=s3", "Authorization": "Bearer t0k3n"}
	full := call{user: "42", header: tenant, route: "POST /x/{id}", host: "EXAMPLE.com:80"}
	own := rules.Options{Keys: map[string]keyfunc.Func{
		"org":  func(*http.Request) (string, error) { return "org:7", nil },
		"user": func(*http.Request) (string, error) { return "mine:42", nil },
	}}
	for key, want := range map[string]string{
		"ip": "192.0.2.1", "bearer": "bearer:t0k3n", "header:X-Tenant": "header:X-Tenant:acme", "apikey:x-tenant": "apikey:acme",
		"cookie:session": "cookie:session:s3", "method": "method:POST", "host": "host:example.com",
		"route": "route:EXAMPLE.com:80/x/{id}", "global": "global", "org": "org:7", "user": "mine:42",
		"cookie:none|org": "org:7", "header:X-None | ip": "192.0.2.1",
		"[org, ip]": "join:5:org:79:192.0.2.1", "[header:X-None, ip]": "join:0:9:192.0.2.1",
		"[\"header:X-None|cookie:session\", org]": "join:17:cookie:session:s35:org:7",
	} {
		if !strings.HasPrefix(key, "[") {
			key = strconv.Quote(key)
		}
		key = strings.ReplaceAll(key, "[header:X-None, ", `["header:X-None", `) // a colon there needs quotes
		c := parse(t, "version: 1\ndefault: {limit: 3/s, key: "+key+"}\n", own).Config()
		assert.Equal(t, want, keyOf(t, c.Default[0], full), key)
	}
	c := parse(t, "version: 1\ndefault: {limit: 3/s, key: user|ip}\n", rules.Options{}).Config()
	assert.Equal(t, "user:42", keyOf(t, c.Default[0], full))
	assert.Equal(t, "192.0.2.1", keyOf(t, c.Default[0], call{}))
	c = parse(t, "version: 1\ndefault: {limit: 3/s, key: [user, bearer]}\n", rules.Options{}).Config()
	assert.Equal(t, keyfunc.ErrNoKey.Error(), keyOf(t, c.Default[0], call{}))
}

func TestTiersOfARuleHaveItsKeyAndAnotherLimit(t *testing.T) {
	s := openText(t, `
version: 1
endpoints:
  "GET /report": {limit: 1/h sliding_log, key: user|ip, tiers: {free: 2/h sliding_log, paid: {requests: 3, window: 1h, algorithm: sliding_log}}}
`)
	s.passes(1, call{route: "/report"})
	s.passes(2, call{route: "/report", user: "1", tier: "free"})
	s.passes(3, call{route: "/report", user: "2", tier: "paid"})
	s.passes(1, call{route: "/report", user: "3", tier: "other"})
	require.Equal(t, http.StatusOK, s.status(call{path: "/else"}))
}

func TestAFileInShadowRefusesNothing(t *testing.T) {
	phase.Test(t, func(t *testing.T) {
		silently := rules.Options{Config: middleware.Config{Logger: slog.New(slog.DiscardHandler)}}
		s := open(t, parse(t, `
version: 1
mode: shadow
ban: {cidrs: 192.0.2.1}
global: {limit: 1/h sliding_log, key: global}
tiers: {free: 1/h sliding_log}
default: {limit: 1/h sliding_log, key: user, no_key: unauthorized, on_outage: closed}
`, silently))
		for range 5 {
			answer := s.ask(call{tier: "free"})
			require.Equal(t, http.StatusOK, answer.StatusCode)
			require.Empty(t, answer.Header)
		}
	})
}

func TestABannedNetworkHasNoKeyOfOtherClientsRead(t *testing.T) {
	const text = `
version: 1
proxies: {trusted: 10.0.0.0/8}
allow: {cidrs: 203.0.113.0/24, preflights: true}
default: {key: ip, limit: 100/h}
endpoints:
  GET /search: {key: "query:q", limit: 100/h}
  GET /account: {key: account, limit: 100/h}
ban: {cidrs: [198.51.100.0/24, 10.0.0.0/16, 203.0.113.7], status: 429}
`
	read := 0
	s := open(t, parse(t, text, rules.Options{Keys: map[string]keyfunc.Func{"account": func(*http.Request) (string, error) {
		read++
		return "", errors.New("its database is down")
	}}}))
	for _, path := range []string{"/other", "/other?q=1&q=2"} {
		asked := call{route: "GET /other", path: path}
		assert.Equal(t, http.StatusOK, s.status(asked), path)
		asked.from = "10.0.0.1:1"
		asked.header = map[string]string{"X-Forwarded-For": "of nobody"}
		assert.Equal(t, http.StatusOK, s.status(asked), "the proxy is in the list, and its client is not known")
		asked.header["X-Forwarded-For"] = "198.51.100.7"
		assert.Equal(t, http.StatusTooManyRequests, s.status(asked), path)
		asked.from = "203.0.113.7:1"
		assert.Equal(t, http.StatusTooManyRequests, s.status(asked), "allow exempts nobody who is banned")
		assert.Equal(t, http.StatusOK, s.status(call{route: "GET /other", path: path, from: "198.51.100.7"}), "a rewritten address is on no list")
	}
	assert.Zero(t, read)
	s.status(call{route: "GET /account"})
	assert.Equal(t, 1, read, "its own rule asks for it")
}

func TestTheApplicationsOwnConfigIsAddedTo(t *testing.T) {
	phase.Test(t, func(t *testing.T) {
		failing := errors.New("a store that is down")
		list := bans.Must(bans.New(bans.Options{}))
		require.NoError(t, list.Ban(t.Context(), "bearer:denied", 0))
		own := middleware.Config{
			Rules:   []middleware.Rule{{Name: "mine", Key: keyfunc.Global, Limit: limiter.PerHour(3).With(limiter.SlidingLog)}},
			Bans:    middleware.Bans{List: list, Keys: []keyfunc.Func{keyfunc.Bearer}},
			Allow:   middleware.MatchFunc(func(r *http.Request) bool { return r.Header.Get("X-Allow") != "" }),
			Headers: middleware.Headers{Send: middleware.HeadersDraft11},
			Refusal: middleware.Refusal{Answer: func(w http.ResponseWriter, _ *http.Request, result middleware.Result) {
				w.Header().Set("X-Rule", result.Rule)
				w.WriteHeader(result.Status)
			}},
		}
		s := open(t, parse(t, "version: 1\nglobal: {limit: 2/h sliding_log, key: global}\nban: {cidrs: 192.0.2.7, keys: [bearer:listed]}\nallow: {cidrs: 192.0.2.8}\n", rules.Options{Config: own}))
		header := func(name string) map[string]string { return map[string]string{name: "1"} }
		for _, token := range []string{"denied", "listed"} {
			require.Equal(t, http.StatusForbidden, s.status(call{header: map[string]string{"Authorization": "Bearer " + token}}))
		}
		require.Equal(t, http.StatusForbidden, s.status(call{from: "192.0.2.7:1"}))
		for range 5 {
			require.Equal(t, http.StatusOK, s.status(call{header: header("X-Allow")}))
			require.Equal(t, http.StatusOK, s.status(call{from: "192.0.2.8:1"}))
		}
		answer := s.ask(call{})
		require.Equal(t, `"mine";q=3;w=3600, "global";q=2;w=3600`, answer.Header.Get("Ratelimit-Policy"))
		require.Empty(t, answer.Header.Get("X-Ratelimit-Limit"))
		require.Equal(t, http.StatusOK, s.status(call{}))
		require.Equal(t, "global", s.ask(call{}).Header.Get("X-Rule"))
		require.Len(t, own.Rules, 1, "what was given stays as it was")

		own.Store = brokenStore{failing}
		own.Refusal.Answer, own.Logger = nil, slog.New(slog.DiscardHandler)
		s = open(t, parse(t, "version: 1\nglobal: {limit: 2/h, key: global}\n", rules.Options{Config: own}))
		require.Equal(t, http.StatusServiceUnavailable, s.status(call{}))
	})
}

// A brokenStore decides nothing.
type brokenStore struct{ err error }

func (s brokenStore) Decide(context.Context, []limiter.Charge) error {
	return s.err
}
func (s brokenStore) Settle(context.Context, []limiter.Settlement) error { return s.err }
func (s brokenStore) Reset(context.Context, []limiter.Charge) error      { return s.err }

func TestWithBansAFailingKeyFollowsTheOutagePolicyOfItsRules(t *testing.T) {
	fails := func(*http.Request) (string, error) { return "", errors.New("the database is down") }
	o := rules.Options{Keys: map[string]keyfunc.Func{"org": fails}}
	for endpoints, want := range map[string]int{
		`{"/a": {limit: 9/s, key: org, on_outage: open}}`:                                                      200,
		`{"/a": {limit: 9/s, key: org, on_outage: local}}`:                                                     503,
		`{"/a": {limit: 9/s, key: org}, "/b": {limit: 9/s, key: org, on_outage: open}}`:                        503,
		`{"/a": {limit: 9/s, key: org, on_outage: open}, "/b": {limit: 9/s, key: org}}`:                        503,
		`{"/a": {limit: 9/s, key: org, on_outage: open}, "/b": {limit: 9/s, key: [org, ip], on_outage: open}}`: 200,
	} {
		l, err := middleware.New(parse(t, "version: 1\nban: {keys: [\"user:eve\"]}\nendpoints: "+endpoints+"\n", o).Config())
		require.NoError(t, err)
		w := httptest.NewRecorder()
		l.Handler(http.NotFoundHandler()).ServeHTTP(w, call{route: "/a"}.request())
		assert.Equal(t, want == 200, w.Code == 404, "%s: %d", endpoints, w.Code)
		assert.Equal(t, want == 503, w.Code == 503, "%s: %d", endpoints, w.Code)
	}
}
