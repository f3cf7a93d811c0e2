package main

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/weirgo/weir/keyfunc"
)

const limited = `version: 1
endpoints:
  "POST /login": {limit: 2/1m, algorithm: sliding_log, escalate: {after: 2, within: 10m, ban: 1h}}
default: {limit: 3/1m, algorithm: sliding_log}
`

// line returns a line of the combined format, so many seconds after noon.
func line(client string, second int, request string) string {
	at := time.Date(2024, 3, 1, 12, 0, second, 0, time.UTC).Format("02/Jan/2006:15:04:05 -0700")
	return fmt.Sprintf("%s - ada [%s] %q 200 1 \"-\" \"agent\"\n", client, at, request+" HTTP/1.1")
}

// attacked returns a log of a polite client, a client that asks too often, and one that tries passwords.
func attacked() string {
	log := ""
	for i := range 6 {
		log += line("192.0.2.1", 30*i, "GET /")
		log += line("192.0.2.2", 30*i, "GET /a") + line("192.0.2.2", 30*i, "GET /b")
		log += line("2001:db8::7", 30*i, "POST /login") + line("2001:db8::8", 30*i+1, "POST /login")
	}
	return log
}

func TestSimulateTellsWhoIsRefusedByWhat(t *testing.T) {
	file := write(t, "limits.yaml", limited)
	out, err := ends(t, exitGood, attacked(), "simulate", file, "-", "--show", "address")
	assert.Empty(t, err, "no progress where there is no terminal")
	assert.Equal(t, `These rules would have refused 13 of 30 requests (43.3%), of 2 of 3 clients.
5 are over a limit, 8 are refused for a ban. The log is from 2024-03-01 12:00:00 to 2024-03-01 12:02:31 UTC.
note: The log has whole seconds: requests of one second are spread evenly over it.

RULE           LIMIT             ASKED  REFUSED  KEYS
"POST /login"  2/1m sliding-log  4      2        1
"default"      3/1m sliding-log  18     3        1

CLIENT         REFUSED  OF  BY       FIRST
2001:db8::/64  10       12  ban      2024-03-01 12:00:30
192.0.2.2      3        12  default  2024-03-01 12:00:30
`, out)

	out = succeed(t, attacked(), "simulate", file, "-", "--json")
	var said struct {
		Verdict  string
		Requests int64
		Banned   int64
		Hit      []struct{ Client string }
		Log      struct{ Format string }
		Notes    []string
	}
	require.NoError(t, json.Unmarshal([]byte(out), &said), out)
	assert.EqualValues(t, 30, said.Requests)
	assert.EqualValues(t, 8, said.Banned)
	assert.Equal(t, keyfunc.NewDigester(nil).Digest("2001:db8::/64").String(), said.Hit[0].Client)
	assert.Equal(t, "combined", said.Log.Format)
	assert.Len(t, said.Notes, 1)
}

func TestASimulationNamesWhatTheLogCannotShow(t *testing.T) {
	const bounded = `version: 1
endpoints:
  "/exports": {concurrency: 1}
  "POST /login": {limit: 3/1m, concurrency: 2}
default: [{limit: 100/1m}, {limit: 9/1s, name: each, tiers: {free: {limit: 1/1s}}}]
overload: {}
`
	out := succeed(t, attacked(), "simulate", write(t, "limits.yaml", bounded), "-", "--json", "--partial")
	var said struct{ Notes []string }
	require.NoError(t, json.Unmarshal([]byte(out), &said))
	const where = "The log does not have how long requests took: say where with --map took_ms=PLACE."
	for _, want := range []string{`the concurrency of "/exports". ` + where, `the concurrency of "POST /login". ` + where, "the overload section."} {
		assert.Contains(t, said.Notes, "Not simulated: "+want)
	}
}

func TestPlacesAreHeldForAsLongAsTheLogSays(t *testing.T) {
	log := ""
	for i := range 4 { // of 10 s each, one every 4 s, written when they end
		log += strings.TrimSuffix(line("192.0.2.1", 10+4*i, "GET /exports"), "\n") + " 10.000\n"
	}
	const format = `--format=$remote_addr - $remote_user [$time_local] "$request" $status $bytes "$r" "$u" $request_time`
	bounded := func(concurrency string) string {
		return write(t, "limits.yaml", "version: 1\ndefault: {limit: 100/1m, concurrency: "+concurrency+"}\n")
	}
	one, queue := bounded("1"), bounded("{max: 1, queue: 1, max_wait: 6s}")
	out := succeed(t, log, "simulate", one, "-", format)
	assert.Contains(t, out, "refused 2 of 4 requests", "the second and third come while the first goes on")
	assert.Contains(t, out, "note: A request has its slot for as long as the log says that it took.")
	assert.Contains(t, out, `"default"  100/1m, 1 at once  4      2        1`)

	out = succeed(t, log, "simulate", queue, "-", format)
	assert.Contains(t, out, "refused 2 of 4 requests")
	assert.Contains(t, out, `note: Not simulated: the queue of "default". A request that would wait there for a slot counts as refused.`)
}

func TestSimulateTellsWhatAChangeChanges(t *testing.T) {
	before, after := write(t, "old.yaml", limited), write(t, "new.yaml", strings.Replace(limited, "3/1m", "4/1m", 1))
	out := succeed(t, attacked(), "simulate", before, after, "-", "--show=address")
	assert.Contains(t, out, "The new rules would refuse 10 requests where the old refuse 13: 1 client in place of 2.\n"+
		"0 requests are refused that were not, and 3 no longer. 0 clients are refused for the first time, and 1 no longer.")
	assert.Contains(t, out, "\n192.0.2.2  12        3             0\n")
	_, out, _ = weir(t, attacked(), "simulate", before, before, "-")
	assert.Contains(t, out, "The new rules would refuse the same 13 of 30 requests as the old.")
}

func TestWhatALogDoesNotHaveIsNotGuessed(t *testing.T) {
	file := write(t, "limits.yaml", `version: 1
tiers: {premium: 9/h}
endpoints:
  "POST /login": {limit: 1/1h, key: user}
  "GET /a": {limit: 1/1h, key: "header:X-Device"}
  "GET /b": {limit: 1/1h, key: tenant}
default: 1/1h
`)
	out, err := ends(t, exitBad, attacked(), "simulate", file, "-", "--keys=tenant")
	assert.Empty(t, out)
	for _, want := range []string{
		`"GET /a": the log does not have header:X-Device: say where with --map header:X-Device=PLACE`,
		`"GET /b": the log does not have key:tenant: say where with --map key:tenant=PLACE`,
		`"tier:premium": the log does not have tier: say where with --map tier=PLACE`,
		`"POST /login", "tier:premium": the log does not have user: say`,
	} {
		assert.Contains(t, err, want)
	}

	out = succeed(t, attacked(), "simulate", file, "-", "--keys=tenant", "--partial")
	assert.Contains(t, out, `note: Left out: "GET /a". The log does not have header:X-Device.`)
	assert.Contains(t, out, `These rules would have refused 5 of 30 requests`, "of the default alone")
	assert.Contains(t, out, `The log does not have tier. Every request counts as if it had no tier.`, "so the default counts requests that it is not for")

	// With --map, the log has every input.
	json := ""
	for i := range 4 {
		json += fmt.Sprintf(`{"time":%d,"client_ip":"192.0.2.1","method":"POST","path":"/login","sub":"u%d","plan":%q,"d":"7","org":"acme"}`+"\n", 1709294400+i, i%2, []string{"", "premium"}[i%2])
		json += fmt.Sprintf(`{"time":%d,"client_ip":"192.0.2.%d","method":"GET","path":"/%c","d":"7","org":"acme"}`+"\n", 1709294400+i, i, 'a'+rune(i%2))
	}
	out = succeed(t, json, "simulate", file, "-", "--keys=tenant", "--map=user=$.sub", "--map=header:X-Device=$.d", "--map=key:tenant=$.org", "--map=tier=$.plan")
	assert.Regexp(t, `"tier:premium"\s+9/1h\s+2\s+0`, out)
	assert.Regexp(t, `"POST /login"\s+1/1h\s+4\s+2\s+2`, out)
	assert.Regexp(t, `"GET /a"\s+1/1h\s+2\s+1`, out)
	assert.Regexp(t, `"GET /b"\s+1/1h\s+2\s+1`, out)
}

// Fields of JSON lines are unknown beforehand: the command finds them in the lines.
func TestAHeaderThatNoLineOfJSONHasIsNotGuessed(t *testing.T) {
	file := write(t, "limits.yaml", `{version: 1, default: {limit: 1/1h, key: "header:X-Api-Key"}}`)
	plain, caddy := "", ""
	for i := range 4 {
		plain += fmt.Sprintf(`{"time":%d,"client_ip":"192.0.2.%d","method":"GET","path":"/"}`+"\n", 1709294400+i, i)
		caddy += fmt.Sprintf(`{"ts":%d.5,"request":{"remote_ip":"192.0.2.%d","method":"GET","uri":"/","headers":{"Accept":["a"]}}}`+"\n", 1709294400+i, i)
	}
	const want = "the log does not have header:X-Api-Key: say where with --map header:X-Api-Key=PLACE"
	for _, log := range []string{plain, caddy} {
		_, err := ends(t, exitBad, log, "simulate", file, "-")
		assert.Contains(t, err, `"default": `+want)
		_, err = ends(t, exitBad, log, "recommend", "-", "--key=header:X-Api-Key")
		assert.Contains(t, err, want)
		_, err = ends(t, exitBad, log, "recommend", "-", "--key=header:X-Api-Key", "--map=header:X-Api-Key=$.key")
		assert.Contains(t, err, "no line has anything at $.key")
	}
	some := plain + strings.Replace(plain, `"method"`, `"http_x_api_key":"k","method"`, 1)
	succeed(t, some, "simulate", file, "-")
}

// One line with a wrong year makes the log two years long.
func TestALogOfAnyLengthEnds(t *testing.T) {
	file := write(t, "limits.yaml", limited)
	for _, year := range []string{"2025", "2254", "1970"} {
		log := attacked() + strings.Replace(line("192.0.2.3", 0, "GET /"), "2024", year, 1)
		succeed(t, log, "simulate", file, "-")
		succeed(t, log, "recommend", "-")
	}
}

// What no line has, or has as "-", may be in the format all the same.
func TestAnInputThatNoRequestHasIsTold(t *testing.T) {
	const format = `--format=$remote_addr - $remote_user [$time_local] "$request" $status $bytes "$r" "$http_x_tenant"`
	log := strings.ReplaceAll(attacked(), `"agent"`, `"-"`)
	file := write(t, "limits.yaml", "version: 1\ndefault: {limit: 1/1h, key: \"header:X-Tenant|ip\"}\n")
	const note = "note: No request in the log has a header:X-Tenant."
	out := succeed(t, log, "simulate", file, "-", format)
	assert.Contains(t, out, note)
	out = succeed(t, strings.Replace(log, `"-" "-"`, `"-" "acme"`, 1), "simulate", file, "-", format)
	assert.NotContains(t, out, note)
	file = write(t, "limits.yaml", "version: 1\ndefault: {limit: 1/1h, key: user|ip}\n")
	out = succeed(t, strings.ReplaceAll(log, " ada ", " - "), "simulate", file, "-", "--map=user=$remote_user")
	assert.Contains(t, out, "note: No request in the log has a user: at $remote_user there is none.")

	for _, section := range []string{"ban", "allow"} {
		file = write(t, "limits.yaml", "version: 1\n"+section+": {keys: [\"user:ada\"]}\ndefault: 1/1h\n")
		_, err := ends(t, exitBad, log, "simulate", file, "-")
		assert.Contains(t, err, `"`+section+`": the log does not have user: say where with --map user=PLACE`)
		out = succeed(t, log, "simulate", file, "-", "--map=user=$remote_user")
		assert.Contains(t, out, map[string]string{"ban": "30 are refused for a ban", "allow": "30 are never limited"}[section])
	}
}

func TestOutcomesAreThoseOfTheLog(t *testing.T) {
	file := write(t, "limits.yaml", `version: 1
endpoints:
  "POST /login": {limit: 2/1h, counts: [401]}
  "GET /ask": {limit: 9/1h, cost: {header: X-Tokens, missing: 3, settle: true}}
`)
	log := ""
	for i := range 4 {
		log += strings.Replace(line("192.0.2.1", i, "POST /login"), " 200 ", " 401 ", 1) + line("192.0.2.2", i, "POST /login") + line("192.0.2.1", i, "GET /ask")
	}
	out := succeed(t, log, "simulate", file, "-", "--map=header:X-Tokens=$body_bytes_sent", "--show=address")
	assert.Regexp(t, `"POST /login"\s+2/1h\s+8\s+2\s+1\n`, out, "those that were let in count nothing")
	assert.Contains(t, out, `note: "GET /ask" settles what a request really cost, which the log does not have: each costs what it reserves.`)

	_, err := ends(t, exitBad, log, "simulate", file, "-", "--map=header:X-Tokens=$body", "--format=$remote_addr $ident $remote_user [$time_local] \"$request\" $code $body \"$r\" \"$u\"")
	assert.Contains(t, err, `"POST /login": the log does not have status: say where with --map status=PLACE`)
}

// A log names clients in many places. Whichever it is, all commands count the same client, or say why not.
func TestClientsAreThoseOfTheRulesProxies(t *testing.T) {
	const limit = "default: {limit: 10/1m, algorithm: sliding_log}\n"
	plain := write(t, "plain.yaml", "version: 1\n"+limit)
	behind := write(t, "behind.yaml", "version: 1\nproxies: {trusted: [10.0.0.0/8]}\n"+limit)
	hops := write(t, "hops.yaml", "version: 1\nproxies: {hops: 1}\n"+limit)
	header := write(t, "header.yaml", "version: 1\nproxies: {header: {name: X-Real-IP, cidrs: [10.0.0.0/8]}}\n"+limit)

	const twenty = "refused 10 of 60 requests (16.7%), of 1 of 41 clients" // of a client, and one each of 40 others
	const peers = "refused 50 of 60 requests (83.3%), of 1 of 1 client"
	log := func(line func(client string) string) string {
		all := ""
		for i := range 60 {
			client := "203.0.113.9"
			if i >= 20 {
				client = fmt.Sprintf("203.0.113.%d", 100+i)
			}
			all += strings.NewReplacer("TIME", fmt.Sprintf("01/Mar/2024:12:00:%02d +0000", i), "UNIX", fmt.Sprint(1709294400+i)).Replace(line(client)) + "\n"
		}
		return all
	}
	combined := func(first, behind string) string {
		return first + ` - - [TIME] "GET / HTTP/1.1" 200 1 "-" "agent"` + behind
	}
	main := log(func(client string) string { return combined("10.0.0.1", ` "198.51.100.1, `+client+`"`) })
	forged := log(func(client string) string { // by a client that is no proxy
		return combined("10.0.0.1", ` "198.51.100.1, `+client+`"`) + "\n" + combined("203.0.113.250", ` "`+client+`"`)
	})
	chain := log(func(client string) string { return combined("198.51.100.1, "+client+", 10.1.0.7", "") })
	resolved := log(func(client string) string { return combined(client, "") })
	upstream := log(func(string) string { return combined("10.0.0.1", ` "10.0.0.9:80"`) })
	caddy := log(func(client string) string {
		line := `{"ts":UNIX,"logger":"http.log.error","request":{"remote_ip":"10.0.0.1","method":"GET","uri":"/","headers":{"X-Forwarded-For":["198.51.100.1","` + client + `"]}},"status":502}`
		return line + "\n" + strings.Replace(line, "error", "access.log0", 1)
	})
	traefik := log(func(client string) string {
		return `{"StartUTC":"UNIX","ClientAddr":"10.0.0.1:4711","ClientHost":"198.51.100.1, ` + client + `","RequestMethod":"GET","RequestPath":"/"}`
	})
	last := strings.Replace(combined("10.0.0.1", ` "-"`), "TIME", "01/Mar/2024:12:00:59 +0000", 1)
	const trust = "--trust=10.0.0.0/8"
	for name, test := range map[string]struct {
		log  string
		args []string
		want string // of stdout, or of the error
	}{
		"nginx's main, by proxies":              {main, []string{"simulate", behind, "-"}, twenty},
		"nginx's main, by hops":                 {main, []string{"simulate", hops, "-"}, twenty},
		"nginx's main, by --trust":              {main, []string{"simulate", plain, "-", trust}, twenty},
		"nginx's main, recommended":             {main, []string{"recommend", "-", "--spare=97", trust}, "spares 97.6% of 41 clients"},
		"nginx's main, what is read":            {main, []string{"simulate", behind, "-"}, "note: The field behind the user agent is read as X-Forwarded-For"},
		"nginx's main, without proxies":         {main, []string{"simulate", plain, "-"}, peers},
		"nginx's main, what is not read":        {main, []string{"simulate", plain, "-"}, "note: 60 requests have X-Forwarded-For, which is not read"},
		"nginx's main, recommended without":     {main, []string{"recommend", "-"}, "note: 60 requests have X-Forwarded-For, which is not read"},
		"forged lists, by proxies":              {forged, []string{"simulate", behind, "-"}, "refused 60 of 120 requests (50%), of 2 of 42 clients"},
		"forged lists, by --trust":              {forged, []string{"simulate", plain, "-", trust}, "refused 60 of 120 requests (50%), of 2 of 42 clients"},
		"forged lists, recommended":             {forged, []string{"recommend", "-", trust}, "of 42 clients"},
		"another header":                        {main, []string{"simulate", header, "-"}, "error: a request comes from a proxy that the rules trust, and the log does not have X-Real-Ip"},
		"another header, with --partial":        {main, []string{"simulate", header, "-", "--partial"}, "note: 60 requests come from a trusted proxy that does not name the client: the proxy is counted."},
		"another field":                         {upstream, []string{"simulate", behind, "-"}, "error: a request comes from a proxy that the rules trust, and the log does not have X-Forwarded-For"},
		"some without":                          {main + last, []string{"simulate", behind, "-"}, "note: 1 request comes from a trusted proxy that does not name the client"},
		"some without, recommended":             {main + last, []string{"recommend", "-", trust}, "note: 1 request comes from a trusted proxy that does not name the client"},
		"old rules and new":                     {main, []string{"simulate", plain, behind, "-"}, "refuse 10 requests where the old refuse 50: 1 client in place of 1"},
		"both proxies and --trust":              {main, []string{"simulate", behind, "-", trust}, "error: the rules have proxies, which say who the client is: leave out --trust"},
		"a list, by proxies":                    {chain, []string{"simulate", behind, "-"}, twenty},
		"a list, by --trust":                    {chain, []string{"simulate", plain, "-", trust}, twenty},
		"a list, recommended":                   {chain, []string{"recommend", "-", "--spare=97", trust}, "spares 97.6% of 41 clients"},
		"a list, without proxies":               {chain, []string{"simulate", plain, "-"}, `10.1.0.7" is a list of addresses in the client's place`},
		"a list, by new rules alone":            {chain, []string{"simulate", plain, behind, "-"}, `10.1.0.7" is a list of addresses in the client's place`},
		"a list, recommended without":           {chain, []string{"recommend", "-"}, `10.1.0.7" is a list of addresses in the client's place`},
		"a list, by another header":             {chain, []string{"simulate", header, "-"}, `10.1.0.7" is a list of addresses in the client's place`},
		"addresses that the server resolved":    {resolved, []string{"simulate", behind, "-"}, twenty},
		"and hops":                              {resolved, []string{"simulate", hops, "-"}, "error: a request comes from a proxy that the rules trust, and the log does not have X-Forwarded-For"},
		"Caddy, whose failures are in two logs": {caddy, []string{"simulate", behind, "-"}, twenty},
		"Caddy, what is left out":               {caddy, []string{"simulate", behind, "-"}, `note: 60 lines could not be read, of 120: line 1 at byte 28 $.logger "http.log.error" is not the logger of an access log: a failed request is in both logs; and so on.`},
		"Traefik's JSON":                        {traefik, []string{"simulate", behind, "-"}, twenty},
		"a byte order mark":                     {"\ufeff" + main, []string{"simulate", behind, "-"}, twenty},
		"lines of Windows":                      {strings.ReplaceAll(main, "\n", "\r\n"), []string{"simulate", behind, "-"}, twenty},
	} {
		exit, out, err := weir(t, test.log, test.args...)
		if want, isError := strings.CutPrefix(test.want, "error: "); isError || strings.Contains(want, "is a list") {
			assert.NotEqual(t, exitGood, exit, name)
			assert.Empty(t, out, name)
			assert.Contains(t, err, want, name)
			continue
		}
		assert.Equal(t, exitGood, exit, "%s: %s", name, err)
		assert.Contains(t, out, test.want, name)
		assert.Empty(t, err, name)
	}
}

func TestRecommendTellsALimitAndWhatItCosts(t *testing.T) {
	log := ""
	for client := range 40 {
		for i := range client/10 + 1 { // from 1 to 4 in a minute
			log += line(fmt.Sprintf("192.0.2.%d", client), 5*i, "GET /search")
		}
	}
	for second := range 30 {
		log += line("198.51.100.1", second, "POST /login")
	}
	out := succeed(t, log, "recommend", "-", "--spare=97")
	assert.Contains(t, out, "4 per minute for each client address spares 97.6% of 41 clients.\nIt would have refused requests of 1 client.")
	assert.Contains(t, out, "half of them 3, nine in ten at most 4, 99% at most 30, 99.9% at most 30, and one 30.")
	assert.Contains(t, out, "default: {limit: 4/1m, key: ip}\n")
	assert.Regexp(t, `4/1m\s+1\s+2.4%\s+recommended`, out)

	assert.Regexp(t, `CLIENT ADDRESS REFUSED\s+MOST PER MINUTE\s+UNTIL\s*\n198.51.100.1\s+30\s+2024-03-01 12:00:29\s*\n`,
		succeed(t, log, "recommend", "-", "--spare=97", "--show=address"))

	// With few clients the busiest client decides, and the result says so.
	out = succeed(t, log, "recommend", "-")
	assert.Contains(t, out, "30 per minute for each client address spares 100% of 41 clients.")
	assert.Contains(t, out, "With 41 clients, 99.9% is all of them: one that asks for far more than the others decides, so choose a lower --spare to leave it out.")

	out = succeed(t, log, "recommend", "-", "--key=ip/24/48")
	assert.Contains(t, out, "for each network spares 100% of 2 clients", "192.0.2.0/24 and 198.51.100.0/24")
	assert.Contains(t, out, "key: ip/24/48}")

	out = succeed(t, log, "recommend", "-", "--for=GET /search", "--per=1h", "--json", "--key=ip")
	var said struct {
		Limit, Rules string
		Keys         int64
		Chosen       struct {
			Limit int64
			Keys  int64 `json:"keys_refused"`
		}
		Curve, Buckets []any
	}
	require.NoError(t, json.Unmarshal([]byte(out), &said), out)
	assert.Equal(t, "4/1h", said.Limit)
	assert.Equal(t, "endpoints:\n  \"GET /search\": {limit: 4/1h, key: ip}", said.Rules)
	assert.EqualValues(t, 40, said.Keys)
	assert.Zero(t, said.Chosen.Keys)
	assert.Len(t, said.Curve, 4)
	file := write(t, "limits.yaml", "version: 1\n"+said.Rules+"\n")
	exit, _, err := weir(t, log, "check", file)
	assert.Equal(t, exitGood, exit, "what is recommended can be pasted: %s", err)

	out = succeed(t, log, "recommend", "-", "--key=user", "--map=user=$remote_user", "--spare=100%")
	assert.Contains(t, out, "for each user spares 100% of 1 client.")
}

// A line of HAProxy.
const unzoned = `10.0.1.2:33317 [06/Feb/2009:12:14:14.655] in static/srv1 10/0/30/69/109 200 2750 - - ---- 1/1/1/1/0 0/0 "GET / HTTP/1.1"` + "\n"

func TestTheZoneOfALogIsNamed(t *testing.T) {
	file := write(t, "limits.yaml", limited)
	for zone, want := range map[string]string{"UTC": "12:14:14", "Europe/Berlin": "11:14:14", "America/New_York": "17:14:14"} {
		out := succeed(t, unzoned, "simulate", file, "-", "--zone="+zone, "--json")
		var found struct{ From time.Time }
		require.NoError(t, json.Unmarshal([]byte(out), &found))
		require.Equal(t, want, found.From.UTC().Format(time.TimeOnly))
	}
}

func TestALogThatCannotBeUsedIsTold(t *testing.T) {
	file, bad := write(t, "limits.yaml", limited), write(t, "bad.yaml", bad)
	for _, test := range []struct {
		in   string
		args []string
		exit int
		want string
	}{
		{"", []string{"simulate", "-", "-"}, exitUsage, "a rules file has to be a file"},
		{"", []string{"simulate", file, "-"}, exitBad, "weir simulate: -: the log is empty"},
		{"", []string{"simulate", file, "none.log"}, exitBad, "none.log"},
		{attacked(), []string{"simulate", bad, "-"}, exitBad, `did you mean "limit"?`},
		{attacked(), []string{"simulate", file, "-", "--format=caddy"}, exitBad, "no line fits"},
		{"hello\n", []string{"recommend", "-"}, exitBad, "no line fits a known format"},
		{"\x1f\x8b\x08\x00\x00", []string{"recommend", "-"}, exitBad, "the log cannot be read: unexpected EOF"},
		{attacked(), []string{"simulate", file, "-", "--map=user"}, exitUsage, "--map: want a name, = and a place"},
		{attacked(), []string{"simulate", file, "-", "--trust=all"}, exitUsage, "--trust: "},
		{attacked(), []string{"simulate", file, "-", "--trust=10.0.0.0/8"}, exitBad, "--trust needs X-Forwarded-For"},
		{attacked(), []string{"simulate", file, "-", "--zone=Berlin"}, exitUsage, `there is no time zone "Berlin": want UTC or a name such as Europe/Berlin`},
		{attacked(), []string{"simulate", file, "-", "--zone=Local"}, exitUsage, `there is no time zone "Local"`},
		{attacked(), []string{"recommend", "-", "--zone="}, exitUsage, `there is no time zone ""`},
		{unzoned, []string{"simulate", file, "-"}, exitBad, "line 1 fails at byte 17: $time_local \"06/Feb/2009:12:14:14.655\" is a time without a zone: say which with --zone, such as --zone UTC"},
		{attacked(), []string{"simulate", file, "-", "--show=all"}, exitUsage, `--show is "all": want digest or address`},
		{attacked(), []string{"recommend", "-", "--per=x"}, exitUsage, `--per is "x": want a period`},
		{attacked(), []string{"recommend", "-", "--per=1m burst 3"}, exitUsage, "want a period"},
		{attacked(), []string{"recommend", "-", "--per=400d"}, exitUsage, "--per"},
		{attacked(), []string{"recommend", "-", "--spare=0"}, exitUsage, `--spare is "0": want a percentage`},
		{attacked(), []string{"recommend", "-", "--spare=101%"}, exitUsage, "want a percentage"},
		{attacked(), []string{"recommend", "-", "--key=usr"}, exitUsage, "--key: "},
		{attacked(), []string{"recommend", "-", "--key=user"}, exitBad, "--key user: the log does not have user"},
		{attacked(), []string{"recommend", "-", "--for=login"}, exitUsage, "--for: "},
		{attacked(), []string{"recommend", "-", "--for=GET example.org/x"}, exitUsage, "leave the host out"},
		{attacked(), []string{"recommend", "-", "--for=GET /none"}, exitBad, "there are no requests"},
		{`{"time":1709294400,"client_ip":"192.0.2.1","took":35}` + "\n", []string{"recommend", "-", "--format=json", "--map=took=$.took"}, exitBad, "is a number without a unit: say took_s, took_ms, took_us or took_ns in place of took"},
		{`{"time":1709294400,"path":"/"}` + "\n", []string{"recommend", "-"}, exitBad, "the log has no clients' addresses"},
		{`{"time":1709294400,"client_ip":"192.0.2.1"}` + "\n", []string{"simulate", file, "-"}, exitBad, "the log has no requests' methods and paths"},
	} {
		exit, out, err := weir(t, test.in, test.args...)
		assert.Equal(t, test.exit, exit, "%v: %s", test.args, err)
		assert.Contains(t, err, test.want, test.args)
		assert.Empty(t, out, test.args)
	}
}
