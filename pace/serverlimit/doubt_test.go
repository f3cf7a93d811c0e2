package serverlimit_test

import (
	"fmt"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weirgo/weir/pace/serverlimit"
)

// What cannot be read was not said; where fields disagree, the safe reading counts.
func TestDoubtIsReadOnTheSafeSide(t *testing.T) {
	t.Parallel()
	const date = "\nDate: Tue, 16 Jan 2024 15:50:00 GMT\n" // ten minutes before 1705420800
	for _, c := range []struct{ name, fields, want string }{
		// of Retry-After
		{"not a number", "Retry-After: soon", "limited"},
		{"NaN", "Retry-After: NaN", "limited"},
		{"infinite", "Retry-After: Infinity", "limited"},
		{"negative", "Retry-After: -5", "limited"},
		{"with an exponent", "Retry-After: 1e9", "limited"},
		{"empty", "Retry-After:", "limited"},
		{"zero", "Retry-After: 0", "limited"},
		{"a long time", "Retry-After: 100000", "limited, wait 24h0m0s ±1s"},
		{"a very long time", "Retry-After: 500000000", "limited, wait 24h0m0s ±1s"},
		{"more than an int64 has", "Retry-After: 99999999999999999999999999", "limited, wait 24h0m0s ±1s"},
		{"more milliseconds than there are", "Retry-After-Ms: 99999999999999999999999999", "limited, wait 24h0m0s ±1ms"},
		{"in the far future", date + "Retry-After: Fri, 31 Dec 9999 23:59:59 GMT", "limited, wait 24h0m0s ±1m0s"},
		{"in the past", date + "Retry-After: Tue, 16 Jan 2024 15:49:00 GMT", "limited"},
		{"an instant as a number", date + "Retry-After: 1705420800", "limited, wait 10m0s ±1s"},
		{"an instant in the past as a number", date + "Retry-After: 1705420000", "limited"},
		{"a duration beyond all bounds", "Retry-After: 2562047h", "limited, wait 24h0m0s ±1s"},
		{"spaces around it", "Retry-After: \t 7  ", "limited, wait 7s ±1s"},
		{"two that disagree", "Retry-After: 3\nRetry-After: 40", "limited, wait 40s ±1s"},
		{"two of which one is not readable", "Retry-After: x\nRetry-After: 3", "limited, wait 3s ±1s"},
		{"two that agree", "Retry-After: 1\nRetry-After-Ms: 350", "limited, wait 350ms ±1ms"},
		{"milliseconds that do not agree", "Retry-After: 30\nRetry-After-Ms: 350", "limited, wait 30s ±1s"},
		{"milliseconds that are longer", "Retry-After: 1\nRetry-After-Ms: 3500", "limited, wait 3.5s ±1ms"},
		{"beside a quota that lasts longer", date + "Retry-After: 5\nX-RateLimit-Remaining: 0\nX-RateLimit-Reset: 1705420800",
			"limited, wait 5s ±1s | - 0/? in 10m0s ±1s"},
		{"unreadable beside a quota", date + "Retry-After: -1\nX-RateLimit-Remaining: 0\nX-RateLimit-Reset: 1705420800",
			"limited, wait 10m0s ±1s | - 0/? in 10m0s ±1s"},

		// of instants
		{"no Date", "X-RateLimit-Remaining: 0\nX-RateLimit-Reset: Sat, 01 Jan 2000 00:01:00 GMT",
			"limited, wait 1m0s ±1m0s | - 0/? in 1m0s ±1m0s"},
		{"a Date that is unreadable", "Date: yesterday\nX-RateLimit-Remaining: 0\nX-RateLimit-Reset: Sat, 01 Jan 2000 00:01:00 GMT",
			"limited, wait 1m0s ±1m0s | - 0/? in 1m0s ±1m0s"},
		{"a Date of another age", "Date: Thu, 01 Jan 1970 00:00:00 GMT\nX-RateLimit-Remaining: 0\nX-RateLimit-Reset: Sat, 01 Jan 2000 00:01:00 GMT",
			"limited, wait 1m0s ±1m0s | - 0/? in 1m0s ±1m0s"},
		{"a Date that only our clock is far from", date + "X-RateLimit-Remaining: 0\nX-RateLimit-Reset: 1705420800",
			"limited, wait 10m0s ±1s | - 0/? in 10m0s ±1s"},
		{"a reset in the past", date + "X-RateLimit-Limit: 5\nX-RateLimit-Remaining: 0\nX-RateLimit-Reset: 1705420000", "limited | - 0/5"},
		{"a reset years ago", date + "X-RateLimit-Limit: 5\nX-RateLimit-Reset: Thu, 01 Jan 1970 00:00:00 GMT", "limited | - ?/5"},
		{"a reset in years", date + "X-RateLimit-Limit: 5\nX-RateLimit-Reset: Fri, 31 Dec 9999 23:59:59 GMT", "limited | - ?/5"},
		{"a reset that is no time", "X-RateLimit-Limit: 5\nX-RateLimit-Reset: 500000000", "limited | - ?/5"},
		{"a line of too many bytes", "RateLimit: " + strings.Repeat(`"a";r=1;t=9, `, 1000) + `"a";r=1`, "limited"},
		{"a time of thousands of bytes", "X-RateLimit-Limit: 5\nX-RateLimit-Reset: " + strings.Repeat("1", 5000), "limited | - ?/5"},

		// of counts
		{"nothing remains, by one of two", "X-RateLimit-Remaining: 7\nX-RateLimit-Remaining: 0", "limited | - 0/?"},
		{"nothing remains, by one of two that a proxy joined", "X-RateLimit-Remaining: 7, 0", "limited | - 0/?"},
		{"two limits", "X-RateLimit-Limit: 100, 50\nRateLimit-Limit: 70", "limited | - ?/50"},
		{"more remains than there is", "X-RateLimit-Limit: 10\nX-RateLimit-Remaining: 5000", "limited | - 5000/?"},
		{"some of nothing remain", "X-RateLimit-Limit: 0\nX-RateLimit-Remaining: 5", "limited | - 5/?"},
		{"thousands", "X-RateLimit-Limit: 5,000\nX-RateLimit-Remaining: 4,999", "limited"},
		{"counts joined without a space", "X-RateLimit-Limit: 1000,500,70", "limited"},
		{"thousands in other countries", "X-RateLimit-Limit: 5.000.000\nX-RateLimit-Remaining: 5'000", "limited"},
		{"less than nothing remains", "X-RateLimit-Limit: 10\nX-RateLimit-Remaining: -1", "limited | - ?/10"},
		{"half a request remains", "X-RateLimit-Remaining: 0.50", "limited"},
		{"NaN remain", "X-RateLimit-Limit: 10\nX-RateLimit-Remaining: NaN", "limited | - ?/10"},
		{"more remains than an int64 has", "X-RateLimit-Limit: 10\nX-RateLimit-Remaining: 99999999999999999999", "limited | - ?/10"},
		{"unlimited", "X-RateLimit-Limit: unlimited", "limited"},
		{"used up and more", "X-Shopify-Shop-Api-Call-Limit: 45/40", "limited | - 0/40"},
		{"used without a limit", "X-Shopify-Shop-Api-Call-Limit: 45", "limited"},

		// of the drafts' fields
		{"a trailing comma", `RateLimit: "a";r=0;t=60,`, "limited"},
		{"one good line of two", "RateLimit: \"a\";r=0;t=60,\nRateLimit: \"b\";r=1;t=9", "limited | b 1/? in 9s ±1s"},
		{"r is missing", `RateLimit: "a";t=60`, "limited"},
		{"r is negative", `RateLimit: "a";r=-1;t=60`, "limited"},
		{"r is a decimal", `RateLimit: "a";r=1.0;t=60`, "limited"},
		{"t is longer than a year", `RateLimit: "a";r=0;t=999999999999999`, "limited | a 0/?"},
		{"a policy twice", `RateLimit: "a";r=7;t=6, "a";r=0;t=60`, "limited, wait 1m0s ±1s | a 0/? in 1m0s ±1s"},
		{"policies alone", `RateLimit-Policy: "a";q=10;w=60`, "limited | a ?/10 per 1m0s of requests"},
		{"the list beside an older dialect that says the same", date + "RateLimit-Policy: \"ip\";q=10;w=60\n" +
			"RateLimit: \"ip\";r=0;t=2\nX-RateLimit-Limit: 10\nX-RateLimit-Remaining: 0\nX-RateLimit-Reset: 1705420800",
			"limited, wait 2s ±1s | ip 0/10 in 2s ±1s per 1m0s of requests"},
		{"the list beside an older dialect that says something else", date + "RateLimit-Policy: \"ip\";q=10;w=60\n" +
			"RateLimit: \"ip\";r=3;t=2\nX-RateLimit-Limit: 50\nX-RateLimit-Remaining: 0\nX-RateLimit-Reset: 1705420800",
			"limited, wait 10m0s ±1s | - 0/50 in 10m0s ±1s | ip 3/10 in 2s ±1s per 1m0s of requests"},

		// of names
		{"a quota beside a rate limit", "X-Quota-Limit: 250\nX-Quota-Remaining: 0\nX-Quota-Reset: 600\nX-Quota-Tier: free\nX-RateLimit-Limit: 300\nX-RateLimit-Remaining: 299\nX-RateLimit-Reset: 60",
			"limited, wait 10m0s ±1s | - 0/250 in 10m0s ±1s | - 299/300 in 1m0s ±1s"},
		{"a provider's quota", "X-Api-Quota-Limit: 50\nX-Api-Quota-Remaining: 7", "limited | - 7/50"},
		{"a quota for each day", "Acme-Quota-Limit-Day: 50\nAcme-Quota-Remaining-Day: 0", "limited, wait 24h0m0s ±0s | day 0/50 in 24h0m0s ±0s per 24h0m0s"},
		{"no quota of requests", "X-Quota: 5\nX-Quota-Policy: \"a\";q=5\nX-Account-Meta-Quota-Bytes: 0\nX-Quotas-Limit: 1", "limited"},
		{"no quota's name", "X-RateLimit-: 5\nX-RateLimit--Limit: 7\nXRateLimit-Limit: 8\nX-RateLimiting: 9", "limited | - ?/7"},
		{"should and should not be retried", "X-Should-Retry: true\nX-Should-Retry: false\nX-Should-Retry: maybe", "limited, do not retry"},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) { // in which the clock of this process says 2000-01-01
				require.Equal(t, c.want, tell(serverlimit.Read(parse(t, "429 Too Many Requests", c.fields))))
			})
		})
	}
}

func TestAQuotaIsReadFromAResponseThatWasServed(t *testing.T) {
	said := serverlimit.Read(parse(t, "200 OK", "X-Api-Quota-Limit: 50\nX-Api-Quota-Remaining: 0\nX-Api-Quota-Reset: 30"))
	require.Equal(t, "served, wait 30s ±1s | - 0/50 in 30s ±1s", tell(said))
	said = serverlimit.Read(parse(t, "200 OK", "X-Api-Quota-Limit: 50"))
	require.Equal(t, "served | - ?/50", tell(said))
}

func TestInstantsAreReadInManyForms(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		"Tue, 16 Jan 2024 16:00:00 GMT":   "10m0s ±1s",
		"Tue, 16 Jan 2024 17:00:00 +0100": "10m0s ±1s",
		"Tue, 16 Jan 2024 16:00:00 UTC":   "10m0s ±1s",
		"2024-01-16T16:00:00Z":            "10m0s ±1s",
		"2024-01-16T16:00:00.250Z":        "10m0.25s ±1s",
		"2024-01-16T17:00:00+01:00":       "10m0s ±1s",
		"2024-01-16T17:00:00+0100":        "10m0s ±1s",
		"2024-01-16T16:00:00":             "10m0s ±1s",
		"2024-01-16 16:00:00":             "10m0s ±1s",
		"2024-01-16 16:00:00 UTC":         "10m0s ±1s",
		"2024-01-16 16:00:00 +0000":       "10m0s ±1s",
		"2024-01-16 17:00:00 +0100 CET":   "",
		"2024-01-16T16:00Z":               "10m0s ±1m0s",
		"2024-01-16T17:00+01:00":          "10m0s ±1m0s",
		"2024-01-16 16:00":                "10m0s ±1m0s",
		"Tue Jan 16 2024 17:00:00 GMT+0100 (Central European Standard Time)": "10m0s ±1s",
		"2024-01-16": "",
		"16:00Z":     "",
	} {
		got := tell(serverlimit.Read(parse(t, "429 Too Many Requests", "Date: Tue, 16 Jan 2024 15:50:00 GMT\nRetry-After: "+text)))
		if want = "limited, wait " + want; want == "limited, wait " {
			want = "limited"
		}
		require.Equal(t, want, got, text)
	}
}

func TestNoneOfManyQuotasHidesThatItIsUsedUp(t *testing.T) {
	t.Parallel()
	list, others := "", ""
	for i := range 400 {
		list += fmt.Sprintf(`, "q%d";r=%d;t=%d`, i, 399-i, 1+i)
		others += fmt.Sprintf("X-RateLimit-Remaining-Q%d: 7\n", i)
	}
	said := serverlimit.Read(parse(t, "200 OK", others+"RateLimit: "+list[2:]))
	require.Len(t, said.Others, 15)
	require.Zero(t, said.Quota.Remaining)
	require.Equal(t, 400*time.Second, said.Wait)
}

func TestAStatusAloneDoesNotMakeALimit(t *testing.T) {
	t.Parallel()
	for status, want := range map[string][2]string{ // alone, and with Retry-After
		"200 OK":                    {"served", "served"},
		"301 Moved":                 {"served", "served"},
		"401 Unauthorized":          {"served", "served, wait 7s ±1s"},
		"403 Forbidden":             {"served", "limited, wait 7s ±1s"},
		"404 Not Found":             {"served", "served, wait 7s ±1s"},
		"418 I'm a teapot":          {"served", "limited, wait 7s ±1s"},
		"420 Enhance Your Calm":     {"limited", "limited, wait 7s ±1s"},
		"429 Too Many Requests":     {"limited", "limited, wait 7s ±1s"},
		"500 Internal Server Error": {"served", "limited, wait 7s ±1s"},
		"502 Bad Gateway":           {"served", "limited, wait 7s ±1s"},
		"503 Service Unavailable":   {"served", "limited, wait 7s ±1s"},
		"504 Gateway Timeout":       {"served", "limited, wait 7s ±1s"},
		"529 Overloaded":            {"served", "limited, wait 7s ±1s"},
	} {
		for i, fields := range []string{"", "Retry-After: 7"} {
			require.Equal(t, want[i], tell(serverlimit.Read(parse(t, status, fields))), status)
		}
	}
}

func TestAResponseFromACacheTellsNothing(t *testing.T) {
	t.Parallel()
	const fields = "RateLimit: \"a\";r=0;t=60\n"
	for age, want := range map[string]string{
		"":     "served, wait 1m0s ±1s | a 0/? in 1m0s ±1s",
		"0":    "served, wait 1m0s ±1s | a 0/? in 1m0s ±1s",
		"1":    "served",
		"3600": "served",
	} {
		require.Equal(t, want, tell(serverlimit.Read(parse(t, "200 OK", fields+"Age: "+age))), "Age: %s", age)
	}
	require.Equal(t, "limited, wait 1m0s ±1s | a 0/? in 1m0s ±1s",
		tell(serverlimit.Read(parse(t, "429 Too Many Requests", fields+"Age: 3600"))), "a refusal is obeyed")
}

// seeds are values that servers send, and that they should not.
var seeds = []string{
	"", "0", "1", "-1", "0.5", "2.0", "64.57", "1470173023.123", "1705420800", "1705420800000", "99999999999999999999", "NaN", "+Inf", "1e9",
	"6m0s", "12ms", "-5s", "9999999h", "32/40", "45/40", "100, 100;w=10", "100;w=21600", "7, 0", "true", "false", "global",
	"Fri, 31 Dec 1999 23:59:59 GMT", "Fri, 31 Dec 9999 23:59:59 GMT", "2025-10-25T12:00:00Z", "0001-01-01T00:00:00Z",
	`"default";r=50;t=30`, `"burst";q=100;w=60`,
	`limit=100, remaining=50, reset=50`, `"a";r=0;t=999999999999999`, strings.Repeat(`"a";r=1,`, 300) + `"a";r=0`, strings.Repeat("9", 3000),
}

// names are of fields of every kind.
var names = []string{
	"Retry-After", "Retry-After-Ms", "Ratelimit", "Ratelimit-Policy", "Ratelimit-Limit", "X-Ratelimit-Remaining", "X-Ratelimit-Reset", "X-Rate-Limit-Reset",
	"X-Ratelimit-Reset-After", "X-Ratelimit-Reset-Tokens", "Anthropic-Ratelimit-Requests-Remaining", "X-Hubspot-Ratelimit-Daily", "X-Ratelimit-Name",
	"X-Ratelimit-Bucket", "X-Shopify-Shop-Api-Call-Limit", "X-Should-Retry", "Date", "Age", "X-Github-Request-Id", "X-Ratelimit-Interval-Milliseconds",
}

func FuzzReadingsKeepTheirBounds(f *testing.F) {
	for i, value := range seeds {
		f.Add(429, names[i%len(names)], value, names[(i+6)%len(names)], seeds[(i+8)%len(seeds)], "")
		f.Add(403, names[(i+1)%len(names)], value, names[(i*7+2)%len(names)], seeds[(i*3)%len(seeds)], "secondary rate limit")
		f.Add(200, names[(i*3)%len(names)], value, names[(i*11)%len(names)], seeds[(i*5)%len(seeds)], "")
	}
	f.Fuzz(func(t *testing.T, status int, name, value, other, second, body string) {
		h := http.Header{"X-Ratelimit-Limit": {"10"}}
		h[http.CanonicalHeaderKey(name)] = append(h[http.CanonicalHeaderKey(name)], value)
		h[http.CanonicalHeaderKey(other)] = append(h[http.CanonicalHeaderKey(other)], second, value)
		said := serverlimit.ReadWithBody(&http.Response{StatusCode: status, Header: h}, []byte(body))

		require.True(t, 0 <= said.Wait && said.Wait <= serverlimit.MaxWait, "%v", said)
		require.True(t, 0 <= said.Unsure && said.Unsure <= time.Minute && (said.Wait > 0 || said.Unsure == 0), "%v", said)
		require.True(t, said.Limited || status != http.StatusTooManyRequests, "a 429 is a refusal: %v", said)
		require.False(t, said.Limited && status < 400, "%v", said)
		require.Less(t, len(said.Others), 16)
		for _, q := range append([]serverlimit.Quota{said.Quota}, said.Others...) {
			require.True(t, 0 <= q.Reset && q.Reset <= 366*24*time.Hour, "%v", q)
			require.True(t, 0 <= q.Window && q.Window <= 366*24*time.Hour, "%v", q)
			require.True(t, 0 <= q.Unsure && q.Unsure <= time.Minute && (q.Reset > 0 || q.Unsure == 0), "%v", q)
			require.True(t, q.Limit >= 0 || q.Limit == serverlimit.Unsaid, "%v", q)
			require.True(t, q.Remaining >= 0 || q.Remaining == serverlimit.Unsaid, "%v", q)
			require.True(t, q.Limit == serverlimit.Unsaid || q.Remaining <= q.Limit, "%v", q)
			require.LessOrEqual(t, len(q.Name), 128)
		}
	})
}

// Of two fields that say how long to wait, no reading is shorter than either by more than that
// one was rounded.
func FuzzNoFieldShortensAWait(f *testing.F) {
	for i, value := range seeds {
		f.Add(value, seeds[(i+1)%len(seeds)])
		f.Add(value, seeds[(i+13)%len(seeds)])
	}
	f.Fuzz(func(t *testing.T, seconds, milliseconds string) {
		read := func(h http.Header) serverlimit.Reading {
			h["Date"] = []string{"Fri, 31 Dec 1999 23:58:59 GMT"}
			return serverlimit.Read(&http.Response{StatusCode: http.StatusTooManyRequests, Header: h})
		}
		both := read(http.Header{"Retry-After": {seconds}, "Retry-After-Ms": {milliseconds}})
		for _, alone := range []serverlimit.Reading{
			read(http.Header{"Retry-After": {seconds}}), read(http.Header{"Retry-After-Ms": {milliseconds}}),
		} {
			require.GreaterOrEqual(t, both.Wait, alone.Wait-alone.Unsure)
		}
	})
}
