package accesslog

import (
	"bytes"
	"compress/gzip"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

// readAll reads a log that must have nothing wrong beyond its lines.
func readAll(t testing.TB, log string, o Options) ([]Entry, Stats) {
	t.Helper()
	r, err := NewReader(strings.NewReader(log), o)
	require.NoError(t, err, log)
	var entries []Entry
	for {
		e, err := r.Next()
		if errors.Is(err, io.EOF) {
			return entries, r.Stats()
		}
		require.NoError(t, err)
		entry := *e
		entry.line, entry.Headers = 0, slices.Clone(e.Headers)
		entries = append(entries, entry)
	}
}

func at(text string) int64 {
	when, err := time.Parse(time.RFC3339Nano, text)
	if err != nil {
		panic(err)
	}
	return when.UnixMicro()
}

const agent = `An "agent" (like others)`

// Lines as the programs write them.
const (
	combinedLine = `192.0.2.1 - ada [17/May/2015:10:05:03 +0200] "GET /a%20b?c=d HTTP/1.1" 200 203023 "-" "An \"agent\" (like others)"`
	caddyLine    = `{"level":"info","ts":1646861401.5241024,"logger":"http.log.access","msg":"handled request","request":{"remote_ip":"127.0.0.1","remote_port":"41342","client_ip":"2001:db8::7","proto":"HTTP/2.0","method":"GET","host":"localhost:8443","uri":"/abc?d","headers":{"User-Agent":["curl/7.82.0"],"X-Device":["7"],"Accept":["*/*"],"Accept-Encoding":["gzip, deflate, br"]},"tls":{"resumed":false,"version":772,"cipher_suite":4865,"proto":"h2","server_name":"example.com"}},"bytes_read": 0,"user_id":"","duration":0.500929675,"size":10900,"status":200,"resp_headers":{"Server":["Caddy"],"Content-Encoding":["gzip"]}}`
	traefikText  = `10.0.0.9 - - [17/May/2015:10:05:03 +0000] "POST /login HTTP/1.1" 401 7 "-" "Go-http-client/1.1" 12 "login@docker" "http://172.18.0.2:80" 1500ms`
	traefikLine  = `{"ClientAddr":"203.0.113.7:4711","ClientHost":"203.0.113.7","ClientPort":"4711","ClientUsername":"-","DownstreamContentSize":17,"DownstreamStatus":204,"Duration":1500000,"RequestAddr":"example.org","RequestHost":"example.org","RequestMethod":"PUT","RequestPath":"/x","RequestProtocol":"HTTP/1.1","StartUTC":"2024-03-01T10:05:03.123456789Z","entryPointName":"web","level":"info","msg":"","request_User-Agent":"u","request_X-Device":"7","time":"2024-03-01T10:05:03Z"}`
	albLine      = `https 2018-07-02T22:23:00.186641Z app/my-loadbalancer/50dc6c495c0c9188 192.168.131.39:2817 10.0.0.1:80 0.086 0.048 0.037 200 200 0 57 "GET https://www.example.com:443/x?y HTTP/1.1" "curl/7.46.0" ECDHE-RSA-AES128-GCM-SHA256 TLSv1.2 arn:aws "Root=1-58337281" "-"`
	nginxJSON    = `{"time_iso8601":"2015-05-17T10:05:03+02:00","remote_addr":"192.0.2.1","request":"GET /q?w=\u0022x HTTP/1.1","status":"429","request_time":"0.250","http_user_agent":"u"}`
)

func TestTheFormatsOfServersAreKnownByTheirLines(t *testing.T) {
	device := Options{Headers: []string{"X-Device"}}
	for name, test := range map[string]struct {
		line    string
		options Options
		format  string
		want    Entry
	}{
		"combined": {combinedLine, Options{}, "combined", Entry{
			At: at("2015-05-17T08:05:03.5Z"), Client: "192.0.2.1", Method: "GET", Target: "/a%20b?c=d", Status: 200, Headers: []string{agent}}},
		"cut off": {strings.TrimSuffix(combinedLine, ` others)"`), Options{}, "combined", Entry{
			At: at("2015-05-17T08:05:03.5Z"), Client: "192.0.2.1", Method: "GET", Target: "/a%20b?c=d", Status: 200, Headers: []string{`An "agent" (like`}}},
		"more behind": {combinedLine + ` "more" 1`, Options{}, "combined", Entry{
			At: at("2015-05-17T08:05:03.5Z"), Client: "192.0.2.1", Method: "GET", Target: "/a%20b?c=d", Status: 200, Headers: []string{agent}}},
		"main": {combinedLine + ` "198.51.100.7, 203.0.113.9" 0.1`, Options{Headers: []string{"X-Forwarded-For"}}, "main", Entry{
			At: at("2015-05-17T08:05:03.5Z"), Client: "192.0.2.1", Method: "GET", Target: "/a%20b?c=d", Status: 200, Headers: []string{"198.51.100.7, 203.0.113.9", agent}}},
		"an upstream behind": {combinedLine + ` "10.0.0.7:80"`, Options{Headers: []string{"X-Forwarded-For"}}, "combined", Entry{
			At: at("2015-05-17T08:05:03.5Z"), Client: "192.0.2.1", Method: "GET", Target: "/a%20b?c=d", Status: 200, Headers: []string{"", agent}}},
		"an address further behind": {combinedLine + ` 12 "x" "10.0.0.7"`, Options{Headers: []string{"X-Forwarded-For"}}, "combined", Entry{
			At: at("2015-05-17T08:05:03.5Z"), Client: "192.0.2.1", Method: "GET", Target: "/a%20b?c=d", Status: 200, Headers: []string{"", agent}}},
		"a list of addresses": {strings.Replace(combinedLine, "192.0.2.1", "198.51.100.7, 203.0.113.9,  [2001:db8::1]:80", 1), Options{Headers: []string{"X-Forwarded-For"}}, "combined", Entry{
			At: at("2015-05-17T08:05:03.5Z"), Client: "2001:db8::1", Method: "GET", Target: "/a%20b?c=d", Status: 200,
			Headers: []string{"198.51.100.7, 203.0.113.9,  [2001:db8::1]:80", agent}, Chain: "198.51.100.7, 203.0.113.9,  [2001:db8::1]:80"}},
		"a byte order mark": {"\ufeff" + combinedLine, Options{}, "combined", Entry{
			At: at("2015-05-17T08:05:03.5Z"), Client: "192.0.2.1", Method: "GET", Target: "/a%20b?c=d", Status: 200, Headers: []string{agent}}},
		"an address in brackets with a zone": {strings.Replace(combinedLine, "192.0.2.1", "[fe80::1%eth0]", 1), Options{}, "combined", Entry{
			At: at("2015-05-17T08:05:03.5Z"), Client: "fe80::1", Method: "GET", Target: "/a%20b?c=d", Status: 200, Headers: []string{agent}}},
		"virtual host": {"example.org:443 " + combinedLine, Options{}, "combined", Entry{
			At: at("2015-05-17T08:05:03.5Z"), Client: "192.0.2.1", Method: "GET", Target: "/a%20b?c=d", Status: 200, Headers: []string{agent}}},
		"common": {`2001:db8::1 - - [17/May/2015:10:05:03 +0000] "HEAD / HTTP/1.0" 304 -`, Options{}, "common", Entry{
			At: at("2015-05-17T10:05:03.5Z"), Client: "2001:db8::1", Method: "HEAD", Target: "/", Status: 304}},
		"caddy": {caddyLine, device, "caddy", Entry{
			At: at("2022-03-09T21:30:01.524103Z") - 500_929, Client: "2001:db8::7", Method: "GET", Target: "/abc?d", Host: "localhost:8443",
			Status: 200, Took: 500_929_675, Headers: []string{"7", "curl/7.82.0"}}},
		"traefik's text": {traefikText, Options{}, "traefik", Entry{
			At: at("2015-05-17T10:05:03.5Z"), Client: "10.0.0.9", Method: "POST", Target: "/login",
			Status: 401, Took: 1500 * time.Millisecond, Headers: []string{"Go-http-client/1.1"}}},
		"traefik": {traefikLine, device, "traefik", Entry{
			At: at("2024-03-01T10:05:03.123456Z"), Client: "203.0.113.7", Method: "PUT", Target: "/x", Host: "example.org",
			Status: 204, Took: 1500 * time.Microsecond, Headers: []string{"7", "u"}}},
		"alb": {albLine, Options{}, "alb", Entry{
			At: at("2018-07-02T22:23:00.015641Z"), Client: "192.168.131.39", Method: "GET", Target: "/x?y", Host: "www.example.com:443",
			Status: 200, Took: 171 * time.Millisecond, Headers: []string{"curl/7.46.0"}}},
		"nginx's JSON": {nginxJSON, Options{}, "json", Entry{
			At: at("2015-05-17T08:05:03.25Z"), Client: "192.0.2.1", Method: "GET", Target: `/q?w="x`, Status: 429, Took: 250 * time.Millisecond, Headers: []string{"u"}}},
		"JSON with a mapping": {`{"at":1431857103123,"who":{"sub":"u-1","plan":["x","gold"]},"peer":"[::ffff:192.0.2.1]:99","ms":"3"}`, Options{Format: "json", Map: map[string]string{
			"time": "$.at", "user": "$.who.sub", "tier": `$.who["plan"][1]`, "client": "$.peer", "took_ms": "$.ms"}}, "json", Entry{
			At: at("2015-05-17T10:05:03.120Z"), Client: "::ffff:192.0.2.1", User: "u-1", Tier: "gold", Took: 3 * time.Millisecond}},
		"log_format": {`{"t":"1431857103.250","c":"192.0.2.1","r":"GET /\x22 HTTP/1.1","x":"203.0.113.9","d":"7"}`, Options{
			Format: `{"t":"$msec","c":"${remote_addr}","r":"$request","x":"$http_x_forwarded_for","d":"$http_x_device"}` + "\n", Headers: []string{"X-Device", "X-Forwarded-For"}},
			"its own", Entry{At: at("2015-05-17T10:05:03.250Z"), Client: "192.0.2.1", Method: "GET", Target: `/"`, Headers: []string{"7", "203.0.113.9", ""}}},
		"lighttpd": {strings.Replace(combinedLine, " - ada ", " example.org:8080 ada ", 1), Options{}, "lighttpd", Entry{
			At: at("2015-05-17T08:05:03.5Z"), Client: "192.0.2.1", Method: "GET", Target: "/a%20b?c=d", Host: "example.org:8080", Status: 200, Headers: []string{agent}}},
		"lighttpd with an address as its host": {strings.Replace(combinedLine, " - ada ", " 192.0.2.9 ada ", 1), Options{Format: "lighttpd"}, "lighttpd", Entry{
			At: at("2015-05-17T08:05:03.5Z"), Client: "192.0.2.1", Method: "GET", Target: "/a%20b?c=d", Host: "192.0.2.9", Status: 200, Headers: []string{agent}}},
		"squid": {"1431857103.250     50 192.0.2.1 TCP_MISS/200 1234 GET http://example.org/a?b ada HIER_DIRECT/198.51.100.1 text/html", Options{}, "squid", Entry{
			At: at("2015-05-17T10:05:03.2Z"), Client: "192.0.2.1", Method: "GET", Target: "/a?b", Host: "example.org", Status: 200, Took: 50 * time.Millisecond}},
		"a client that went away": {"1431857103.250 192.0.2.1 POST /a -1", Options{Format: "$msec $remote_addr $request_method $request_uri $status"}, "its own", Entry{
			At: at("2015-05-17T10:05:03.25Z"), Client: "192.0.2.1", Method: "POST", Target: "/a"}},
		"runs of blanks": {"  1431857103.250   192.0.2.1  \"GET / HTTP/1.1\"", Options{Format: " $msec $remote_addr \"$request\""}, "its own", Entry{
			At: at("2015-05-17T10:05:03.25Z"), Client: "192.0.2.1", Method: "GET", Target: "/"}},
		"oauth2-proxy": {`192.0.2.1:4711 - 4b4a - ada [2026/11/28 21:00:26] example.org GET - "/oauth2/auth" HTTP/1.1 "curl/8" 202 0 0.250`,
			Options{Zone: time.UTC, Format: `$remote_addr - $id - $remote_user [$time_local] $host $request_method $upstream "$request_uri" $protocol "$http_user_agent" $status $bytes $request_time`}, "its own", Entry{
				At: at("2026-11-28T21:00:26.25Z"), Client: "192.0.2.1", Method: "GET", Target: "/oauth2/auth", Host: "example.org", Status: 202, Took: 250 * time.Millisecond, Headers: []string{"curl/8"}}},
		"a user in a format": {combinedLine, Options{Map: map[string]string{"user": "$remote_user"}}, "combined", Entry{
			At: at("2015-05-17T08:05:03.5Z"), Client: "192.0.2.1", Method: "GET", Target: "/a%20b?c=d", User: "ada", Status: 200, Headers: []string{agent}}},
	} {
		test.options.Headers = append(test.options.Headers, "User-Agent")
		entries, stats := readAll(t, test.line+"\r\n", test.options)
		for i := range entries {
			if h := entries[i].Headers; h != nil { // without those that nobody asked for
				entries[i].Headers = h[:len(test.options.Headers)]
			}
		}
		require.Empty(t, stats.First, name)
		require.Len(t, entries, 1, name)
		require.Equal(t, test.want, entries[0], name)
		require.Equal(t, test.format, stats.Format, name)
	}
}

// The samples in testdata are as the servers' documentation and sources have them.
func TestServersWhoseTimesHaveNoZone(t *testing.T) {
	berlin, err := time.LoadLocation("Europe/Berlin")
	require.NoError(t, err)
	for name, test := range map[string]struct {
		zone   *time.Location
		want   []Entry
		broken []string
	}{
		"haproxy": {berlin, []Entry{
			{At: at("2009-02-06T11:14:14.655Z"), Client: "192.0.2.33", Method: "GET", Target: "/index.html?a=b", Status: 200, Took: 109 * time.Millisecond},
			{At: at("2009-02-06T11:14:15.9Z"), Client: "2001:db8::1", Method: "POST", Target: "/login", Status: 206, Took: 227 * time.Millisecond},
			{At: at("2009-02-06T11:14:18.25Z"), Client: UnixSocket, Method: "GET", Target: "/a", Host: "example.org", Status: 503, Took: 5 * time.Millisecond},
		}, []string{`has no " [" behind $weir_address_port`, `$request "<BADREQ>" is not a request line`}},
		"iis": {nil, []Entry{
			{At: at("2026-05-01T00:00:07.25Z"), Client: "192.0.2.7", Method: "GET", Target: "/search?q=1&p=a+b",
				Status: 200, Took: 250 * time.Millisecond},
		}, nil},
		"cloudfront": {nil, []Entry{
			{At: at("2026-05-01T21:02:31.25Z"), Client: "192.0.2.100", Method: "GET", Target: "/a%20b?q=1", Host: "www.example.org",
				Status: 200, Took: 250 * time.Millisecond, Headers: []string{"198.51.100.9", "Mozilla/5.0 (X11; Linux)"}},
			{At: at("2026-05-01T21:02:32.5Z"), Client: "2001:db8::7", Method: "GET", Target: "/", Host: "d111111abcdef8.cloudfront.net"},
		}, nil},
		"zoraxy": {berlin, []Entry{
			{At: at("2026-05-01T05:57:03.2Z"), Client: "192.0.2.7", Method: "POST", Target: "/xmlrpc.php?a=b", Host: "example.org",
				Status: 404, Headers: []string{"", "Mozilla/5.0 (X11; Linux x86_64) [en]"}},
			{At: at("2026-05-01T10:01:50.912318Z"), Client: "2001:db8::7", Method: "GET", Target: "/.git/config", Host: "192.0.2.1", Status: 444},
		}, []string{`has no "] [router:" behind $time`}},
	} {
		log, err := os.ReadFile(filepath.Join("testdata", name+".log"))
		require.NoError(t, err)
		for _, format := range []string{"", name} {
			entries, stats := readAll(t, string(log), Options{Format: format, Zone: test.zone, Headers: []string{"X-Forwarded-For", "User-Agent"}})
			require.Equal(t, test.want, entries, name)
			require.Equal(t, name, stats.Format)
			require.Len(t, stats.First, len(test.broken), name)
			for i, broken := range stats.First {
				require.Contains(t, broken.Why, test.broken[i], name)
			}
		}
		if test.zone == nil { // Options.Zone replaces the UTC of a format
			entries, _ := readAll(t, string(log), Options{Zone: berlin})
			require.Equal(t, test.want[0].At-2*time.Hour.Microseconds(), entries[0].At, name)
			continue
		}
		for _, format := range []string{"", name} {
			_, err := NewReader(strings.NewReader(string(log)), Options{Format: format})
			require.ErrorContains(t, err, noZone, name)
		}
	}
}

func TestALogOfWhichMostLinesAreUnreadIsAnError(t *testing.T) {
	good, bad := combinedLine+"\n", "starting\n"
	errorLog := strings.ReplaceAll(caddyLine, "http.log.access", "http.log.error") + "\n"
	for name, test := range map[string]struct {
		log  string
		want string // of the error; "": none
	}{
		"most":         {strings.Repeat(good, 2) + strings.Repeat(bad, 24), "only 2 of 26 lines could be read"},
		"one too many": {good + bad + bad, "only 1 of 3 lines could be read"},
		"half":         {good + bad, ""},
		"left out":     {caddyLine + "\n" + errorLog + errorLog, ""},
		"no requests":  {good + strings.Repeat(strings.Replace(good, "GET /a%20b?c=d HTTP/1.1", "PRI * HTTP/2.0", 1), 3), ""},
	} {
		t.Run(name, func(t *testing.T) {
			r, err := NewReader(strings.NewReader(test.log), Options{})
			for err == nil {
				_, err = r.Next()
			}
			if test.want == "" {
				require.ErrorIs(t, err, io.EOF)
			} else {
				require.ErrorContains(t, err, test.want)
			}
		})
	}
}

func TestTheFinestTimeOfALineCounts(t *testing.T) {
	const fine = "2015-05-17T10:05:03.250Z"
	zone := Options{Zone: time.UTC}
	for line, o := range map[string]Options{
		`{"client_ip":"192.0.2.1","msec":1431857103.250,"time":"2015-05-17T10:05:03Z"}`:                                 {},
		`{"client_ip":"192.0.2.1","msec":"1431857103.250","time":1431857103,"time_iso8601":"2015-05-17T10:05:03Z"}`:     {},
		`{"client_ip":"192.0.2.1","@timestamp":"2015-05-17T10:05:03.250Z","ts":1431857103}`:                             {},
		`{"client_ip":"192.0.2.1","ts":1431857103250,"timestamp":"2015-05-17T10:05:03.2Z"}`:                             {},
		`{"client_ip":"192.0.2.1","date":"2015-05-17","time":"10:05:03.250","time_local":"17/May/2015:10:05:03 +0000"}`: zone,
		`{"client_ip":"192.0.2.1","date":"2015-05-17","time":"10:05:03","msec":1431857103.250}`:                         {},
		`{"client_ip":"192.0.2.1","time":"2015-05-17T10:05:03.250Z","timestamp":"2015-05-17T10:05:09.250Z"}`:            {}, // equally fine: the last
		"192.0.2.1 1431857103.250 [17/May/2015:10:05:03 +0000]":                                                         {Format: "$remote_addr $msec [$time_local]"},
		"192.0.2.1 [17/May/2015:10:05:03 +0000] 1431857103.250":                                                         {Format: "$remote_addr [$time_local] $msec"},
	} {
		entries, stats := readAll(t, line, o)
		require.Len(t, entries, 1, line)
		require.Equal(t, fine, entries[0].Time().UTC().Format("2006-01-02T15:04:05.000Z07:00"), line)
		require.False(t, stats.Whole, line)
	}
}

func TestTimesWithoutAZoneAreInTheZoneOfTheOptions(t *testing.T) {
	newYork, err := time.LoadLocation("America/New_York")
	require.NoError(t, err)
	for line, test := range map[string]struct {
		format       string
		whole, zoned bool
	}{
		`192.0.2.1 [17/May/2015:06:05:03]`:                                {"$remote_addr [$time_local]", true, false},
		`192.0.2.1 2015-05-17 06:05:03`:                                   {"$remote_addr $date $time", true, false},
		`06:05:03.000|192.0.2.1|2015-05-17`:                               {"$clock|$remote_addr|$day", false, false},
		`192.0.2.1 2015-05-17T06:05:03,000`:                               {"$remote_addr $time_iso8601", false, false},
		`192.0.2.1 [2015-05-17 06:05:03]`:                                 {"$remote_addr [$time_local]", true, false},
		`192.0.2.1 [2015-05-17 10:05:03 +0000]`:                           {"$remote_addr [$time_local]", true, true},
		`192.0.2.1 2015-05-17 10:05:03.0Z`:                                {"$remote_addr $date $time", false, true},
		`{"client_ip":"192.0.2.1","time":"2015-05-17 06:05:03.0"}`:        {"json", false, false},
		`{"client_ip":"192.0.2.1","date":"2015-05-17","time":"06:05:03"}`: {"json", true, false},
	} {
		options := Options{Format: test.format, Zone: newYork}
		if strings.Contains(test.format, "$day") {
			options.Map = map[string]string{"date": "$day", "time": "$clock"}
		}
		entries, stats := readAll(t, line, options)
		require.Len(t, entries, 1, line)
		require.Equal(t, at("2015-05-17T10:05:03Z"), entries[0].At/second*second, line)
		require.Equal(t, test.whole, stats.Whole, line)
		options.Zone = nil
		if _, err = NewReader(strings.NewReader(line), options); test.zoned {
			require.NoError(t, err, line)
		} else {
			require.ErrorContains(t, err, "is a time without a zone: say which with --zone", line)
		}
	}
}

func TestALineThatCannotBeReadIsCountedAndShown(t *testing.T) {
	bad := []string{
		"192.0.2.1 - -",
		strings.Replace(combinedLine, "]", "", 1),
		strings.Replace(combinedLine, "May", "Mai", 1),
		strings.Replace(combinedLine, "2015", "1969", 1),
		strings.Replace(combinedLine, ":05:", ":65:", 1),
		strings.Replace(combinedLine, " 200 ", " OK ", 1),
		strings.Replace(combinedLine, " HTTP/1.1", "", 1),
		strings.Replace(combinedLine, "192.0.2.1", "example.org", 1),
		strings.Replace(combinedLine, "192.0.2.1", "192.0.2.01", 1),
		strings.Replace(combinedLine, `"GET`, "GET", 1),
		"GET / HTTP/1.1",
		strings.Repeat("x", longestLine+1), strings.Repeat("x", 3*longestLine),
	}
	entries, stats := readAll(t, combinedLine+"\n\n"+strings.Join(bad, "\n")+strings.Repeat("\n"+combinedLine, len(bad)-1), Options{})
	require.Len(t, entries, len(bad))
	require.EqualValues(t, len(bad), stats.Broken)
	require.Len(t, stats.First, 10)
	assert.Equal(t, `line 3, byte 13: has no " [" behind $remote_user`, stats.First[0].String())
	assert.Equal(t, `line 5, byte 18: $time_local "17/Mai/2015:10:05:03 +0200" is not a time in a known format`, stats.First[2].String())
	for i, broken := range stats.First {
		assert.EqualValues(t, i+3, broken.Line)
	}

	_, stats = readAll(t, caddyLine+"\n"+caddyLine[:len(caddyLine)-1]+"\n"+caddyLine[:300]+"\n"+caddyLine+"x\n"+strings.Replace(caddyLine, `"uri"`, `"iru"`, 1)+strings.Repeat("\n"+caddyLine, 3), Options{})
	var whys []string
	for _, broken := range stats.First {
		why, _, _ := strings.Cut(broken.Why, ":")
		whys = append(whys, why)
	}
	assert.Equal(t, []string{"is no JSON", "is no JSON", "is no JSON", "has no target"}, whys)
}

func TestWhatIsNoLogIsAnError(t *testing.T) {
	for name, test := range map[string]struct {
		log     string
		options Options
		want    string
	}{
		"empty":            {"", Options{}, "the log is empty"},
		"empty lines":      {"\n \n", Options{}, "the log is empty"},
		"no format":        {"#\nhello\n", Options{}, `name one with --format (alb, caddy, cloudfront, combined, common, haproxy, iis, json, lighttpd, main, squid, traefik, zoraxy, or a log_format), to see where it fails; line 2 is "hello"`},
		"nearly a format":  {strings.Replace(combinedLine, "2015", "3015", 1), Options{Format: "common"}, `no line fits the format; line 1 fails at byte 18: $time_local "17/May/3015:10:05:03 +0200" is a time out of range`},
		"a place in JSON":  {combinedLine, Options{Format: "combined", Map: map[string]string{"user": "$.sub"}}, `the format has no "$.sub": it has $remote_addr, $ident, $remote_user, `},
		"a variable":       {caddyLine, Options{Format: "caddy", Map: map[string]string{"user": "$remote_user"}}, `"$remote_user" is no path in JSON`},
		"another format":   {caddyLine, Options{Format: "combined"}, "no line fits the format; line 1 fails at byte "},
		"its own format":   {combinedLine, Options{Format: "$remote_addr|$time_local"}, `line 1 fails at byte 1: has no "|" behind $remote_addr`},
		"unknown format":   {combinedLine, Options{Format: "combind"}, `there is no format "combind": want one of alb, caddy, cloudfront, combined`},
		"no time":          {combinedLine, Options{Format: "$remote_addr $request"}, "the format has no time"},
		"nothing between":  {combinedLine, Options{Format: "$remote_addr$time_local"}, "cannot be told apart"},
		"no variables":     {combinedLine, Options{Format: "log_format main 'x';"}, "has no variables"},
		"no known time":    {`{"when":1709294400,"client_ip":"192.0.2.1"}`, Options{}, `"192.0.2.1\"}", which fails at byte 1: has no time in a place that is known: say where with --map time=PLACE`},
		"unknown field":    {caddyLine, Options{Map: map[string]string{"usr": "$.x"}}, `"usr" is not a field of a log`},
		"two addresses":    {"203.0.113.9 " + combinedLine, Options{}, `fails at byte 13: $ident "192.0.2.1" is an address behind an address, and either may be the client`},
		"two as combined":  {"203.0.113.9 " + combinedLine, Options{Format: "combined"}, `is an address behind an address`},
		"two clients":      {`{"time":1709294400,"client_ip":"203.0.113.9","remote_addr":"192.0.2.1"}`, Options{}, `$.remote_addr "192.0.2.1" is another client than 203.0.113.9: say which counts with --map client=PLACE`},
		"two lists":        {`198.51.100.7, 192.0.2.1 - [17/May/2015:10:05:03 +0000] "203.0.113.9"`, Options{Format: `$remote_addr - [$time_local] "$http_x_forwarded_for"`}, "has a list of addresses in the client's place that is not X-Forwarded-For"},
		"a list of users":  {strings.Replace(caddyLine, `"user_id":""`, `"user_id":["ada"]`, 1), Options{Format: "caddy", Map: map[string]string{"user": "$.user_id"}}, `$.user_id is an array: say where in it`},
		"an error log":     {strings.ReplaceAll(caddyLine, "http.log.access", "http.log.error"), Options{Format: "caddy"}, `$.logger "http.log.error" is not the logger of an access log`},
		"no path":          {caddyLine, Options{Format: "caddy", Map: map[string]string{"user": "$.x["}}, `is no path in JSON`},
		"no such variable": {combinedLine, Options{Format: "combined", Map: map[string]string{"user": "$jwt"}}, `the format has no "$jwt"`},
	} {
		r, err := NewReader(strings.NewReader(test.log), test.options)
		for err == nil {
			_, err = r.Next()
		}
		require.ErrorContains(t, err, test.want, name)
	}
}

// What objects have that are called anything, their lines say, and not what they could be called.
func TestAFieldOfJSONIsThereIfALineHasIt(t *testing.T) {
	const some = `{"time":1709294400,"client_ip":"192.0.2.1","method":"GET","path":"/","sub":null}`
	for line, want := range map[string]string{
		some: "client method target",
		strings.Replace(some, `"sub"`, `"request_time":0,"sub"`, 1):                 "client method target took",
		strings.Replace(some, `"sub"`, `"status":"","host":"a.example","sub"`, 1):   "client host method status target",
		strings.Replace(some, `"client_ip":"192.0.2.1"`, `"client_ip":"-"`, 1):      "method target",
		strings.Replace(caddyLine, `"duration":0.500929675,`, "", 1):                "client host method status target",
		strings.Replace(traefikLine, `"DownstreamStatus":204,"Duration"`, `"D"`, 1): "client host method target",
	} {
		r, err := NewReader(strings.NewReader(line), Options{})
		require.NoError(t, err)
		var has []string
		for _, name := range []string{"client", "host", "method", "status", "target", "took", "user"} {
			if r.Has(name) {
				has = append(has, name)
			}
		}
		require.Equal(t, want, strings.Join(has, " "), line)
	}

	for place, wrong := range map[string]string{"$.sub": "", "$.subject": "no line has anything at $.subject"} {
		r, err := NewReader(strings.NewReader(some), Options{Map: map[string]string{"user": place}})
		require.NoError(t, err)
		require.True(t, r.Has("user"))
		_, err = r.Next()
		require.NoError(t, err)
		_, err = r.Next()
		if wrong == "" {
			require.ErrorIs(t, err, io.EOF, "no user is none, where a line says so")
		} else {
			require.EqualError(t, err, wrong)
		}
	}
}

func TestLinesAboutNoRequestAreLeftOut(t *testing.T) {
	with := func(request string) string {
		return strings.Replace(combinedLine, "GET /a%20b?c=d HTTP/1.1", request, 1) + "\n"
	}
	entries, stats := readAll(t, with("PRI * HTTP/2.0")+combinedLine+"\n"+with("<unknown> - HTTP/1.1")+with("<unknown> -"), Options{})
	require.Len(t, entries, 1)
	require.Zero(t, stats.Broken)
	entries, stats = readAll(t, "1431857103.250 5 192.0.2.1 TCP_MISS/200 12 GET /a - HIER_DIRECT/192.0.2.9 text/html\n"+
		"1431857103.300 5 192.0.2.1 NONE_NONE/400 12 GET error:invalid-request - HIER_NONE/- text/html\n", Options{})
	require.Len(t, entries, 1)
	require.Zero(t, stats.Broken)
}

func TestAListOfAddressesIsNoVirtualHost(t *testing.T) {
	named := "example.org " + combinedLine + "\n"
	entries, stats := readAll(t, named+named+"203.0.113.9, "+combinedLine+"\n", Options{})
	require.Len(t, entries, 2)
	require.Equal(t, `$vhost "203.0.113.9," is not a host`, stats.First[0].Why)
}

// Programs write other lines about a request too, with the same members.
func TestALineOfJSONWithoutTheStatusThatOthersHaveIsNoRequest(t *testing.T) {
	const begins = `{"time":1709294400,"client_ip":"192.0.2.1","method":"GET","path":"/","msg":"request started"}` + "\n"
	const ended = `{"time":1709294401,"client_ip":"192.0.2.1","method":"GET","path":"/","status":0}` + "\n"
	entries, stats := readAll(t, begins+ended+begins+ended, Options{})
	require.Len(t, entries, 2)
	require.EqualValues(t, 2, stats.Broken)
	require.Equal(t, "has no status", stats.First[0].Why)
	entries, _ = readAll(t, begins+begins, Options{})
	require.Len(t, entries, 2)
}

// Rotated logs often begin with other lines, such as a start script's output.
func TestALogMayBeginWithManyOtherLines(t *testing.T) {
	entries, stats := readAll(t, strings.Repeat("starting\n", 10*sample)+strings.Repeat(combinedLine+"\n", 10*sample), Options{})
	require.Len(t, entries, 10*sample)
	require.EqualValues(t, 10*sample, stats.Broken)

	const many = 3000
	long := strings.Repeat(strings.Repeat("starting", longestLine/many)+"\n", many)
	entries, _ = readAll(t, long+strings.Repeat(caddyLine+"\n", many), Options{Format: "caddy"})
	require.Len(t, entries, many, "a format with a name needs no line at the beginning")
	r, err := NewReader(strings.NewReader(long+strings.Replace(caddyLine, `"uri"`, `"iru"`, 1)), Options{Format: "caddy"})
	require.NoError(t, err)
	_, err = r.Next()
	require.ErrorContains(t, err, "no line could be read")
	_, err = NewReader(strings.NewReader(long+combinedLine), Options{})
	require.ErrorContains(t, err, "no line fits a known format")
}

func TestAHostInEveryTargetIsOneThatTheLogHas(t *testing.T) {
	absolute := strings.Replace(combinedLine, "GET /", "GET http://example.org/", 1)
	for log, want := range map[string]bool{
		albLine: true, combinedLine: false, absolute: true,
		absolute + "\n" + combinedLine: false, // as any client can send one
	} {
		r, err := NewReader(strings.NewReader(log), Options{})
		require.NoError(t, err)
		require.Equal(t, want, r.Has("host"), log)
	}
}

// The format of ingress-nginx, and a line of a request that it tried three times.
const (
	ingressFormat = `$remote_addr - $remote_user [$time_local] "$request" $status $body_bytes_sent "$http_referer" "$http_user_agent" ` +
		`$request_length $request_time [$proxy_upstream_name] [$proxy_alternative_upstream_name] $upstream_addr ` +
		`$upstream_response_length $upstream_response_time $upstream_status $req_id`
	ingressLine = `192.0.2.1 - - [17/May/2015:10:05:03 +0000] "GET / HTTP/1.1" 200 9 "-" "curl" 70 0.250 [a-80] [] ` +
		`10.0.0.1:80, 10.0.0.2:80 : 10.0.0.3:80 0, 0 : 9 0.1, 0.1 : 0.05 502, 502 : 200 u-1`
)

func TestListsOfUpstreamServersAreOneValue(t *testing.T) {
	for _, format := range []string{ingressFormat, strings.TrimSuffix(ingressFormat, " $req_id"), `$remote_addr - $remote_user [$time_local] "$request"`} {
		options := Options{Format: format}
		if strings.Contains(format, "$req_id") {
			options.Map = map[string]string{"user": "$req_id"}
		}
		entries, stats := readAll(t, ingressLine, options)
		require.Empty(t, stats.First)
		require.Len(t, entries, 1)
		require.Equal(t, "/", entries[0].Target)
		if options.Map != nil {
			require.Equal(t, "u-1", entries[0].User)
		}
	}
	lists := Options{Format: "$msec $request_method $remote_addr"}
	for line, want := range map[string]string{
		"1431857103.250 GET 198.51.100.7, 192.0.2.1":     "192.0.2.1",
		"1431857103.250 GET 198.51.100.7, 192.0.2.1 and": "192.0.2.1",
		"1431857103.250 GET 192.0.2.1":                   "192.0.2.1",
	} {
		entries, stats := readAll(t, line, lists)
		require.Empty(t, stats.First)
		require.Equal(t, want, entries[0].Client)
	}
	for _, line := range []string{"1431857103.250 GET 192.0.2.1,", "1431857103.250 GET 192.0.2.1,  "} {
		_, err := NewReader(strings.NewReader(line), lists)
		require.ErrorContains(t, err, "is not an address", line)
	}
}

func TestMoreFieldsMayFollowCommon(t *testing.T) {
	line := `192.0.2.1 - - [17/May/2015:10:05:03 +0000] "GET / HTTP/1.0" 304 -`
	for _, more := range []string{"", " 0.250", " 12 \"x\""} {
		_, stats := readAll(t, line+more, Options{})
		require.Equal(t, "common", stats.Format, more)
	}
	// A line of combined that cannot be read does not make common the better format.
	broken := strings.TrimSuffix(combinedLine, "\"") + " [\n"
	_, stats := readAll(t, broken+combinedLine+"\n"+strings.Replace(combinedLine, `"-" `, `"-`, 1), Options{})
	require.Equal(t, "combined", stats.Format)
}

// A line of nginx with the end of a request and how long it took.
func took(client string, ends, took float64) string {
	return fmt.Sprintf("%s %.3f %.3f GET /\n", client, ends, took)
}

const tookFormat = "$remote_addr $msec $request_time $request_method $request_uri"

func TestRequestsComeInTheOrderInWhichTheyBegan(t *testing.T) {
	log := took("192.0.2.1", 100, 0) + took("192.0.2.2", 101, 0.5) + took("192.0.2.3", 101.2, 60) + took("192.0.2.4", 100.9, 0)
	entries, stats := readAll(t, log, Options{Format: tookFormat})
	order := ""
	for _, e := range entries {
		order += e.Client[8:]
	}
	require.Equal(t, "3124", order)
	require.True(t, stats.Took)
	require.EqualValues(t, 41_200_000, entries[0].At)
}

func TestALogIsSortedWithinAWindowAndRefusedBeyondIt(t *testing.T) {
	var log strings.Builder
	for i := range 3 * windowSize {
		log.WriteString(took("192.0.2.1", 1000+float64(i), 0))
	}
	r, err := NewReader(strings.NewReader(log.String()+took("192.0.2.2", 1001, 0)), Options{Format: tookFormat})
	require.NoError(t, err)
	for err == nil {
		_, err = r.Next()
	}
	require.ErrorContains(t, err, fmt.Sprintf("line %d is ", 3*windowSize+1))
	require.ErrorContains(t, err, "sort the log by time")

	// A request that took that long is no disorder.
	entries, stats := readAll(t, log.String()+took("192.0.2.2", 1000+3*windowSize, 3*windowSize), Options{Format: tookFormat})
	require.EqualValues(t, 1, stats.Long)
	require.Len(t, entries, 3*windowSize+1)
	require.True(t, slices.IsSortedFunc(entries, func(a, b Entry) int { return int(a.At - b.At) }))
}

// However many requests one second has, they are spread evenly over it: no gap is longer than two
// parts of it.
func TestWholeSecondsAreSpread(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var log strings.Builder
		times := map[int64][]int64{}
		for range rapid.IntRange(1, 300).Draw(t, "lines") {
			second := rapid.Int64Range(1, 3).Draw(t, "second")
			times[second] = nil
			fmt.Fprintf(&log, "192.0.2.1 - - [17/May/2015:10:05:%02d +0000] \"GET / HTTP/1.1\" 200 1\n", second)
		}
		r, err := NewReader(strings.NewReader(log.String()), Options{})
		require.NoError(t, err)
		for {
			e, err := r.Next()
			if errors.Is(err, io.EOF) {
				break
			}
			require.NoError(t, err)
			since := e.At - at("2015-05-17T10:05:00Z")
			times[since/second] = append(times[since/second], since%second)
		}
		for _, spread := range times {
			last, gap := int64(0), int64(second/len(spread))
			for _, at := range append(spread, second) {
				require.Positive(t, at-last)
				require.LessOrEqual(t, at-last, 2*gap)
				last = at
			}
		}
		require.True(t, r.Stats().Whole)
	})
}

func TestEntriesAreInOrderWhateverTheLog(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var log strings.Builder
		n := rapid.IntRange(1, 60).Draw(t, "lines")
		for range n {
			ends := rapid.IntRange(1000, 1010).Draw(t, "ends")
			fmt.Fprintf(&log, "192.0.2.1 %d %.3f GET /\n", ends, float64(rapid.IntRange(0, 4000).Draw(t, "took"))/1000)
		}
		r, err := NewReader(strings.NewReader(log.String()), Options{Format: tookFormat})
		require.NoError(t, err)
		last := int64(0)
		for range n {
			e, err := r.Next()
			require.NoError(t, err)
			require.GreaterOrEqual(t, e.At, last)
			last = e.At
		}
		_, err = r.Next()
		require.ErrorIs(t, err, io.EOF)
	})
}

func zipped(t testing.TB, text string) string {
	var b bytes.Buffer
	w := gzip.NewWriter(&b)
	_, err := io.WriteString(w, text)
	require.NoError(t, err)
	require.NoError(t, w.Close())
	return b.String()
}

func TestWhatIsCompressedIsReadAsIfItWereNot(t *testing.T) {
	text := strings.Repeat(combinedLine+"\n", 20_000)
	part := text[:len(text)/3]
	want, _ := readAll(t, text, Options{})
	got, _ := readAll(t, zipped(t, part)+zipped(t, "")+zipped(t, text[len(part):]), Options{})
	require.Equal(t, want, got)
}

// Wherever it is cut off or damaged, but between parts, it is said.
func TestACompressedLogThatIsCutOffIsAnError(t *testing.T) {
	first := zipped(t, combinedLine+"\n")
	log := first + zipped(t, combinedLine)
	for n := 4; n < len(log); n++ {
		if n != len(first) {
			r, err := NewReader(strings.NewReader(log[:n]), Options{})
			for err == nil {
				_, err = r.Next()
			}
			require.EqualError(t, err, "the log cannot be read: unexpected EOF", "%d of %d bytes", n, len(log))
		}
	}
}

func FuzzLinesOfAnyFormat(f *testing.F) {
	for _, line := range []string{combinedLine, caddyLine, traefikText, traefikLine, albLine, nginxJSON} {
		f.Add(line, line[:len(line)/2])
	}
	for _, name := range []string{"haproxy", "iis", "cloudfront", "zoraxy"} {
		log, err := os.ReadFile(filepath.Join("testdata", name+".log"))
		require.NoError(f, err)
		before, line, _ := strings.Cut(string(log), "\n2")
		f.Add(before, "2"+line)
	}
	f.Fuzz(func(t *testing.T, first, second string) {
		r, err := NewReader(strings.NewReader(first+"\n"+second), Options{Zone: time.UTC})
		for err == nil {
			var e *Entry
			if e, err = r.Next(); err == nil {
				require.Positive(t, e.At)
				require.NotEmpty(t, e.Client+e.Method+e.Target+r.Stats().Format)
			}
		}
	})
}
