package middleware_test

import (
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/weirgo/weir/keyfunc"
	"github.com/weirgo/weir/middleware"
)

func TestRulesOfARouteAreForTheSameRequests(t *testing.T) {
	byUser := middleware.Rule{Name: "account", Key: keyfunc.User, NoKey: middleware.NoKeySkip, Limit: logOf(2, plenty.Per)}
	l := limited(t, middleware.Config{
		ByRoute: map[string][]middleware.Rule{"/login": {{Name: "address", Key: keyfunc.IP(), Limit: logOf(10, plenty.Per)}, byUser}},
		Default: []middleware.Rule{{Name: "default", Limit: plenty}},
	})
	user := func(r *http.Request) { *r = *r.WithContext(keyfunc.WithUser(r.Context(), "7")) }
	assert.Equal(t, []string{"address", "account"}, namesOf(t, l, request(routedBy("/login"), user)))
	assert.Equal(t, []string{"address"}, namesOf(t, l, request(routedBy("/login"))), "the other one has no key")
	assert.Equal(t, []string{"default"}, namesOf(t, l, request(routedBy("/x"), user)))
	assert.Equal(t, []string{"address", "account"}, namesOf(t, l, request(routedBy("/login"), user)))
	result, refused := refusal(l, httptest.NewRecorder(), request(routedBy("/login"), user))
	assert.True(t, refused)
	assert.Equal(t, "account", result.Rule)
	assert.EqualValues(t, 7, result.Rules[0].Remaining, "all are charged, or none")
}

func TestAPatternOrTierWithoutRulesIsAnError(t *testing.T) {
	_, err := middleware.New(middleware.Config{
		ByRoute: map[string][]middleware.Rule{"/a": {}, "/b": {{Name: "a", Limit: plenty}, {Name: "a", Limit: plenty}}},
		ByTier:  map[string][]middleware.Rule{"free": nil}, Default: []middleware.Rule{},
	})
	for _, want := range []string{`ByRoute["/a"] has no rule`, `ByRoute["/b"]: there is another rule named "a"`, `ByTier["free"] has no rule`, "Default has no rule"} {
		require.ErrorContains(t, err, want)
	}
}
