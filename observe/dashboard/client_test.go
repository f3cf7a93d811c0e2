package dashboard_test

import (
	"encoding/json"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/weirgo/weir/internal/phase"
	"github.com/weirgo/weir/keyfunc"
	"github.com/weirgo/weir/observe/dashboard"
)

// A looked is what an operator learns of a client.
type looked struct {
	Error  string
	Client struct {
		Key, Digest string
		Ban         *struct{ Reason string }
		Seen        struct {
			Rule            string
			Shadow, Missed  bool
			Refused, Passed int64
		}
	}
	Counts []struct {
		Rule, Tier       string
		Limit, Remaining int
	}
}

// look looks at a key, or a digest, and at what it has left under a rule if one is named.
func (s *service) look(key, rule string, edits ...func(*http.Request)) (code int, l looked) {
	s.t.Helper()
	ask, err := json.Marshal(map[string]string{"action": "look", "key": key, "rule": rule})
	require.NoError(s.t, err)
	code, said := s.do(string(ask), edits...)
	if strings.HasPrefix(said, "{") {
		require.NoError(s.t, json.Unmarshal([]byte(said), &l))
	}
	return code, l
}

// Who may only look at the page would else learn of any client whether it is there and what
// refuses it.
func TestOnlyWhoMayActLooksAtAClient(t *testing.T) {
	s := start(t, dashboard.Options{ShowKeys: true, Authorize: anybodyLooks})
	for range 12 {
		s.send("GET", "/", "203.0.113.9", "acme")
	}
	code, l := s.look("header:X-Tenant:acme", "")
	assert.Equal(t, http.StatusForbidden, code)
	assert.Empty(t, l.Client.Seen.Rule)
	code, l = s.look("header:X-Tenant:acme", "", func(r *http.Request) { r.Header.Set("X-Admin", "1") })
	assert.Equal(t, http.StatusOK, code)
	assert.Equal(t, "tenant", l.Client.Seen.Rule)
	assert.Contains(t, s.log.String(), "action=look key=header:X-Tenant:acme", "and it is logged")
}

func TestAClientComesWithTheRuleThatRefusesIt(t *testing.T) {
	phase.Test(t, func(t *testing.T) {
		s := start(t, dashboard.Options{ShowKeys: true})
		time.Sleep(10 * time.Second)
		for range 13 {
			s.send("GET", "/", "203.0.113.9", "acme")
		}
		refused := time.Now().UnixMilli()
		time.Sleep(5 * time.Second)
		s.send("GET", "/", "203.0.113.9", "acme")
		for _, key := range []string{"header:X-Tenant:acme", keyfunc.NewDigester(nil).Digest("header:X-Tenant:acme").String()} {
			code, l := s.look(key, "")
			require.Equal(t, http.StatusOK, code, l.Error)
			assert.Equal(t, "header:X-Tenant:acme", l.Client.Key)
			assert.Equal(t, "tenant", l.Client.Seen.Rule)
			assert.InDelta(t, refused, l.Client.Seen.Refused, 1000)
			assert.InDelta(t, refused+5000, l.Client.Seen.Passed, 1000)
			require.Len(t, l.Counts, 2, "what is left of each tier's limit")
			assert.Equal(t, "tenant", l.Counts[0].Rule)
		}
		_, l := s.look("203.0.113.9", "")
		assert.Equal(t, "strict", l.Client.Seen.Rule)
		assert.True(t, l.Client.Seen.Shadow, "it refuses nothing")
		_, l = s.look("203.0.113.9", "ip")
		assert.Equal(t, "ip", l.Counts[0].Rule, "the operator's choice")
	})
}

func TestALookSaysIfABannedClientStillPasses(t *testing.T) {
	phase.Test(t, func(t *testing.T) {
		s := start(t, dashboard.Options{ShowKeys: true})
		code, l := s.look("203.0.113.9", "")
		require.Equal(t, http.StatusOK, code, l.Error)
		assert.Zero(t, l.Client.Seen.Refused+l.Client.Seen.Passed, "nothing is known of it")
		require.NoError(t, s.bans.Ban(t.Context(), "203.0.113.9", time.Hour))
		require.NoError(t, s.bans.Ban(t.Context(), "header:X-Tenant:acme", time.Hour)) // which no limiter looks up
		_, _ = s.look("header:X-Tenant:acme", "")
		time.Sleep(10 * time.Second)
		s.send("GET", "/", "203.0.113.9", "")
		s.send("GET", "/", "203.0.113.10", "acme")
		_, l = s.look("203.0.113.9", "")
		require.NotNil(t, l.Client.Ban)
		assert.False(t, l.Client.Seen.Missed)
		_, l = s.look("header:X-Tenant:acme", "")
		assert.True(t, l.Client.Seen.Missed)
	})
}

func TestAKeyThatIsTooLongIsFoundByItsDigest(t *testing.T) {
	s := start(t, dashboard.Options{})
	long := strings.Repeat("x", 200)
	for range 12 {
		s.send("GET", "/", "203.0.113.9", long)
	}
	code, l := s.look(keyfunc.NewDigester(nil).Digest("header:X-Tenant:"+long).String(), "tenant")
	require.Equal(t, http.StatusOK, code, l.Error)
	assert.Equal(t, "tenant", l.Client.Seen.Rule)
	assert.Equal(t, l.Client.Digest, l.Client.Key)
	assert.Empty(t, l.Counts, "what is counted in memory is not found by a digest: unknown is not all")
}
