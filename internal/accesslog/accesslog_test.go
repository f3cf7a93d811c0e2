package accesslog

import (
	"cmp"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

const first = `192.0.2.1 - - [17/May/2015:10:05:03 +0200] "GET /a%20b?c=d HTTP/1.1" 200 203023 "-" "An \"agent\" (like others)"`

func TestALineIsReadInFull(t *testing.T) {
	entries, err := Read(strings.NewReader(first + "\n"))
	require.NoError(t, err)
	require.Len(t, entries, 1)
	got := entries[0]
	require.True(t, time.Date(2015, 5, 17, 8, 5, 3, 0, time.UTC).Equal(got.Time), "%v", got.Time)
	got.Time = time.Time{}
	require.Equal(t, Entry{
		Client: "192.0.2.1", Method: "GET", Target: "/a%20b?c=d", Status: 200, UserAgent: `An "agent" (like others)`,
	}, got)
}

func TestALineThatWasCutOffIsRead(t *testing.T) {
	entries, err := Read(strings.NewReader(strings.TrimSuffix(first, ` others)"`)))
	require.NoError(t, err)
	require.Equal(t, `An "agent" (like`, entries[0].UserAgent)
}

func TestEntriesComeInTheOrderOfTheirTimes(t *testing.T) {
	at := func(client, second string) string {
		return client + ` - - [17/May/2015:10:05:` + second + ` +0000] "GET / HTTP/1.1" 200 - "-" "-"` + "\n"
	}
	entries, err := Read(strings.NewReader(at("c", "03") + at("a", "01") + at("d", "03") + at("b", "02")))
	require.NoError(t, err)
	order := ""
	for _, entry := range entries {
		order += entry.Client
	}
	require.Equal(t, "abcd", order, "those of one second stay in the order of the log")
}

func TestWhatIsNoLineIsAnError(t *testing.T) {
	for name, bad := range map[string]string{
		"empty line":     "",
		"too few fields": "192.0.2.1 - -",
		"open bracket":   `192.0.2.1 - - [17/May/2015:10:05:03 +0000 "GET / HTTP/1.1" 200 1 "-" "-"`,
		"bad quote":      strings.Replace(first, "An ", `\q`, 1),
		"time":           strings.Replace(first, "May", "Mai", 1),
		"status":         strings.Replace(first, " 200 ", " OK ", 1),
		"request":        strings.Replace(first, " HTTP/1.1", "", 1),
	} {
		_, err := Read(strings.NewReader(first + "\n" + bad + "\n" + first + "\n"))
		require.ErrorContains(t, err, "accesslog: line 2: ", name)
	}
}

func TestASeedAlwaysMakesTheSameRequests(t *testing.T) {
	require.Equal(t, Generate(1, 1000), Generate(1, 1000))
	require.NotEqual(t, Generate(1, 1000), Generate(2, 1000))
}

func TestMadeUpRequestsAreLikeRealOnes(t *testing.T) {
	for seed := range uint64(4) {
		entries := Generate(seed, 10_000)
		require.Len(t, entries, 10_000)
		require.True(t, slices.IsSortedFunc(entries, func(a, b Entry) int { return a.Time.Compare(b.Time) }))
		assert.Greater(t, entries[len(entries)-1].Time.Sub(entries[0].Time), 3*day)

		byClient := map[string]int{}
		pauses := map[time.Duration]int{}
		last := map[string]time.Time{}
		onBoundary := 0
		for _, e := range entries {
			byClient[e.Client]++
			if pause := e.Time.Sub(last[e.Client]); pause < 30*day {
				for _, longest := range []time.Duration{time.Second, time.Minute, time.Hour, day} {
					if pause < longest {
						pauses[longest]++
						break
					}
				}
			}
			last[e.Client] = e.Time
			if e.Time.Truncate(time.Minute).Equal(e.Time) {
				onBoundary++
			}
		}
		assert.Greater(t, len(byClient), 300, "clients")
		most := slices.SortedFunc(maps.Values(byClient), func(a, b int) int { return cmp.Compare(b, a) })
		busiest := 0
		for _, n := range most[:len(most)/10] {
			busiest += n
		}
		assert.Greater(t, busiest, 5_000, "requests of a tenth of the clients")
		assert.Less(t, most[0], 2_000, "requests of the busiest client")
		for longest, n := range pauses {
			assert.Greater(t, n, 100, "pauses of a client shorter than %v", longest)
		}
		assert.Len(t, pauses, 4)
		assert.Greater(t, onBoundary, 50, "requests where a minute begins")
	}
}
