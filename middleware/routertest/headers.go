package routertest

import (
	"net/http"
	"strconv"
	"time"

	"github.com/dunglas/httpsfv"
	"github.com/stretchr/testify/require"
)

// fields is what a response says about limits.
type fields struct {
	limit, remaining int64
	policies         map[string]int64 // q by name
	left             map[string]int64 // r by name
	order            []string         // names in RateLimit
}

// readFields reads the fields and checks what is true of every response.
func readFields(s *suite, h http.Header) fields {
	s.Helper()
	legacy := func(name string) int64 {
		require.Len(s, h.Values(name), 1, "%s is there once", name)
		n, err := strconv.ParseInt(h.Get(name), 10, 64)
		require.NoError(s, err, name)
		return n
	}
	f := fields{
		limit: legacy("X-RateLimit-Limit"), remaining: legacy("X-RateLimit-Remaining"),
		policies: map[string]int64{}, left: map[string]int64{},
	}
	reset := time.Unix(legacy("X-RateLimit-Reset"), 0)
	require.False(s, reset.Before(time.Now().Add(-time.Minute)), "X-RateLimit-Reset is seconds since 1970, not behind us: %v", reset)
	require.False(s, reset.After(time.Now().Add(3*time.Hour)), "X-RateLimit-Reset is within two periods: %v", reset)

	list := func(name, param string, into map[string]int64) (names []string) {
		members, err := httpsfv.UnmarshalList(h.Values(name))
		require.NoError(s, err, "%s is a list of RFC 9651: %q", name, h.Values(name))
		for _, member := range members {
			item, ok := member.(httpsfv.Item)
			require.True(s, ok, "%s has items: %v", name, member)
			rule, ok := item.Value.(string)
			require.True(s, ok, "%s has strings: %v", name, item.Value)
			require.NotContains(s, into, rule, "%s lists a policy once: %q", name, h.Values(name))
			value, ok := item.Params.Get(param)
			require.True(s, ok, "%s has %s: %q", name, param, h.Values(name))
			into[rule], ok = value.(int64)
			require.True(s, ok, "%s is an integer: %v", param, value)
			names = append(names, rule)
		}
		return names
	}
	names := list("RateLimit-Policy", "q", f.policies)
	f.order = list("RateLimit", "r", f.left)
	require.Equal(s, names, f.order, "RateLimit and RateLimit-Policy list the same rules")
	return f
}
