package accesslog

import (
	"strings"
	"testing"
	"time"

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
