package dashboard_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/weirgo/weir/internal/phase"
	"github.com/weirgo/weir/internal/redistest"
	"github.com/weirgo/weir/keyfunc"
	"github.com/weirgo/weir/middleware/bans"
	"github.com/weirgo/weir/observe/dashboard"
	"github.com/weirgo/weir/redis/redisbans"
)

// A client is what the page is told of one.
type client struct {
	Error, Key, Digest string
	Since              int64
	Step, Known        int
	Asked, Refused     []int
	Rules              []struct {
		Rule, Tier     string
		Asked, Refused int
	}
	Routes []struct {
		Route          string
		Others         bool
		Asked, Refused int
	}
	Latest []struct {
		At                  int64
		Became, Route, Rule string
		Shadow              bool
	}
	Hour []struct {
		Rule           string
		Asked, Refused int
	}
	Ban    *struct{ Reason string }
	Passed bool
}

// client asks about a key, or a digest.
func (s *service) client(text string, edits ...func(*http.Request)) (code int, c client) {
	s.t.Helper()
	r := accepting("application/json")
	r.Header.Set("Weir-Client", url.PathEscape(text))
	for _, edit := range edits {
		edit(r)
	}
	w := httptest.NewRecorder()
	s.mux.ServeHTTP(w, r)
	if strings.HasPrefix(w.Header().Get("Content-Type"), "application/json") {
		require.NoError(s.t, json.Unmarshal(w.Body.Bytes(), &c))
	}
	return w.Code, c
}

func TestOneClientHasItsLastMinutes(t *testing.T) {
	phase.Test(t, func(t *testing.T) {
		s := start(t, dashboard.Options{ShowKeys: true})
		for range 12 {
			s.send("GET", "/export", "203.0.113.9", "acme")
		}
		begun := time.Now()
		time.Sleep(60 * time.Second) // and there are ten again
		s.send("GET", "/export", "203.0.113.9", "acme")
		const key = "header:X-Tenant:acme"
		for _, text := range []string{key, keyfunc.NewDigester(nil).Digest(key).String()} {
			code, c := s.client(text)
			require.Equal(t, http.StatusOK, code, c.Error)
			assert.Equal(t, key, c.Key)
			assert.Equal(t, 2+1, sum(c.Asked), "from its first refusal on")
			assert.Equal(t, 2, sum(c.Refused))
			assert.InDelta(t, begun.UnixMilli(), c.Since, 1000)
			assert.Equal(t, 10, c.Step)
			assert.InDelta(t, 7, c.Known, 1, "steps, of what was before nothing is known")
			assert.Len(t, c.Asked, 31)
			require.Len(t, c.Rules, 1)
			assert.Equal(t, "tenant", c.Rules[0].Rule)
			assert.Equal(t, 2, c.Rules[0].Refused)
			require.NotEmpty(t, c.Latest)
			assert.Equal(t, [3]string{"allowed", "/", ""}, [3]string{c.Latest[0].Became, c.Latest[0].Route, c.Latest[0].Rule})
			last := c.Latest[len(c.Latest)-1]
			assert.Equal(t, [3]string{"refused", "/", "tenant"}, [3]string{last.Became, last.Route, last.Rule})
			assert.Equal(t, 13, c.Hour[0].Asked, "the offenders know of all")
		}
	})
}

func TestAClientOfWhichNothingIsKnownIsFollowedFromThenOn(t *testing.T) {
	phase.Test(t, func(t *testing.T) {
		s := start(t, dashboard.Options{ShowKeys: true})
		s.send("GET", "/", "203.0.113.9", "")
		time.Sleep(time.Minute)
		code, c := s.client("203.0.113.9")
		require.Equal(t, http.StatusOK, code, c.Error)
		assert.Zero(t, sum(c.Asked))
		assert.Equal(t, 1, c.Known, "the present step alone")
		assert.InDelta(t, time.Now().UnixMilli(), c.Since, 1000)
		s.send("GET", "/", "203.0.113.9", "")
		_, c = s.client("203.0.113.9")
		assert.Equal(t, 1, sum(c.Asked))

		// A ban is told, and that no request passes since.
		require.NoError(t, s.bans.Ban(t.Context(), "203.0.113.9", time.Hour))
		time.Sleep(10 * time.Second)
		s.send("GET", "/", "203.0.113.9", "")
		_, c = s.client("203.0.113.9")
		require.NotNil(t, c.Ban)
		assert.Equal(t, "banned", c.Latest[0].Became)
		assert.False(t, c.Passed)
		require.NoError(t, s.bans.Ban(t.Context(), "header:X-Tenant:acme", time.Hour)) // which no limiter looks up
		_, _ = s.client("header:X-Tenant:acme")
		time.Sleep(10 * time.Second)
		s.send("GET", "/", "203.0.113.10", "acme")
		_, c = s.client("header:X-Tenant:acme")
		assert.True(t, c.Passed)
	})
}

func TestWhatIsAskedOfAClientIsNamed(t *testing.T) {
	s := start(t, dashboard.Options{})
	for text, want := range map[string]struct {
		code int
		says string
	}{
		"foo": {http.StatusBadRequest, "no request can have this key"},
		keyfunc.NewDigester(nil).Digest("nobody").String(): {http.StatusNotFound, "this process knows no key with this digest"},
		"203.0.113.0/24": {http.StatusBadRequest, "network"},
		`""`:             {http.StatusBadRequest, "which client?"},
	} {
		code, c := s.client(text)
		assert.Equal(t, want.code, code, text)
		assert.Contains(t, c.Error, want.says)
	}
	code, _ := s.client("203.0.113.9", func(r *http.Request) { r.Header.Set("Sec-Fetch-Site", "cross-site") })
	assert.Equal(t, http.StatusForbidden, code)
	closed := start(t, dashboard.Options{Authorize: func(*http.Request) bool { return false }})
	code, _ = closed.client("203.0.113.9")
	assert.Equal(t, http.StatusForbidden, code)
	_, c := s.client("203.0.113.9")
	assert.Equal(t, c.Digest, c.Key, "keys are not shown")
}

func TestClientsThatAreFollowedAreBounded(t *testing.T) {
	phase.Test(t, func(t *testing.T) {
		s := start(t, dashboard.Options{ShowKeys: true})
		_, _ = s.client("198.51.100.1") // an operator looks at it
		for i := range 20 {
			for n := range 200 { // "strict" is in shadow, and says no to the sixth
				for range 6 {
					s.send("GET", "/", fmt.Sprintf("192.0.%d.%d", i, n), "")
				}
			}
			s.send("GET", "/", "198.51.100.1", "")
			time.Sleep(time.Second)
		}
		known := 0
		for n := range 200 {
			if _, c := s.client(keyfunc.NewDigester(nil).Digest(fmt.Sprint("192.0.19.", n)).String()); sum(c.Asked) > 0 {
				known++
			}
		}
		assert.Positive(t, known, "some of the latest are followed")
		assert.Less(t, known, 100, "a few in each second")
		_, c := s.client("198.51.100.1")
		assert.Equal(t, 20, sum(c.Asked), "it does not give way to those that rotate addresses")
	})
}

func TestAKeyThatIsTooLongIsFoundByItsDigest(t *testing.T) {
	s := start(t, dashboard.Options{})
	long := strings.Repeat("x", 200)
	for range 12 {
		s.send("GET", "/", "203.0.113.9", long)
	}
	code, c := s.client(keyfunc.NewDigester(nil).Digest("header:X-Tenant:" + long).String())
	require.Equal(t, http.StatusOK, code, c.Error)
	assert.Equal(t, 2, sum(c.Asked))
	assert.Equal(t, c.Digest, c.Key)
}

func TestABanInRedisHasANameWhereTheKeyWasMet(t *testing.T) {
	server := redistest.Start(t)
	rdb := redis.NewClient(&redis.Options{Addr: server.Addr})
	t.Cleanup(func() { rdb.Close() })
	list, err := redisbans.New(t.Context(), rdb, redisbans.Options{})
	require.NoError(t, err)
	for _, shown := range []bool{true, false} {
		page, err := dashboard.New(dashboard.Options{Authorize: anybody, Bans: list, ShowKeys: shown})
		require.NoError(t, err)
		s := &service{t: t, page: page, mux: page}
		for _, key := range []string{"203.0.113.9", "203.0.113.10"} {
			require.NoError(t, list.Ban(t.Context(), key, time.Hour, bans.By("ada")))
		}
		_, _ = s.client("203.0.113.9")
		names := map[string]string{}
		for _, ban := range s.figures().Bans.List {
			names[ban.Key] = ban.Name
		}
		met, other := keyfunc.NewDigester(nil).Digest("203.0.113.9"), keyfunc.NewDigester(nil).Digest("203.0.113.10")
		assert.Equal(t, map[string]string{met.String(): map[bool]string{true: "203.0.113.9"}[shown], other.String(): ""}, names)
	}
}
