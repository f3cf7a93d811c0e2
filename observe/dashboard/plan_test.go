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

// An answer is what became of an action.
type answer struct {
	Error, Text string
	Plan        *struct {
		Until   int64
		Alone   bool
		Clients []struct {
			Key, Digest string
			Ban         *struct{ Reason, By string }
		}
	}
}

// ask has the page's own script ask for something.
func (s *service) ask(body map[string]any, edits ...func(*http.Request)) (int, answer) {
	s.t.Helper()
	text, err := json.Marshal(body)
	require.NoError(s.t, err)
	code, said := s.do(string(text), edits...)
	var a answer
	require.NoError(s.t, json.Unmarshal([]byte(said), &a), said)
	return code, a
}

func TestWhatABanWillDoIsSaidBeforeItIsDone(t *testing.T) {
	phase.Test(t, func(t *testing.T) {
		s := start(t, dashboard.Options{ShowKeys: true})
		require.NoError(t, s.bans.Ban(t.Context(), "203.0.113.9", time.Minute))
		keys := []string{"203.0.113.8", "203.0.113.9", "203.0.113.8"}
		code, said := s.ask(map[string]any{"action": "ban", "keys": keys, "for": "1h", "preview": true})
		require.Equal(t, http.StatusOK, code, said.Error)
		require.NotNil(t, said.Plan)
		require.Len(t, said.Plan.Clients, 2, "each is named once")
		assert.Equal(t, "203.0.113.8", said.Plan.Clients[0].Key)
		assert.Nil(t, said.Plan.Clients[0].Ban)
		assert.NotNil(t, said.Plan.Clients[1].Ban, "which it has already")
		assert.Equal(t, time.Now().Add(time.Hour).UnixMilli(), said.Plan.Until)
		assert.True(t, said.Plan.Alone, "its list is in memory")
		_, banned := s.bans.Find("203.0.113.8")
		assert.False(t, banned, "it was only said")
		assert.NotContains(t, s.log.String(), "action=ban")

		user := func(r *http.Request) {
			*r = *r.WithContext(keyfunc.WithUser(r.Context(), "ada\n<b>"))
		}
		code, said = s.ask(map[string]any{"action": "ban", "keys": keys, "for": "1h", "reason": "scrapes"}, user)
		require.Equal(t, http.StatusOK, code, said.Error)
		assert.Equal(t, "2 clients are banned for 1h.", said.Text)
		assert.Equal(t, 2, strings.Count(s.log.String(), "action=ban"))
		for _, key := range keys {
			ban, ok := s.bans.Find(key)
			require.True(t, ok)
			assert.Equal(t, [2]string{"scrapes", "ada?<b>"}, [2]string{ban.Reason, ban.By})
			assert.True(t, time.Now().Equal(ban.Since))
		}
		shown := s.figures().Bans.List[0]
		assert.Equal(t, [2]string{"scrapes", "ada?<b>"}, [2]string{shown.Reason, shown.By})
		assert.Equal(t, time.Now().UnixMilli(), shown.Since)
	})
}

func TestNoneIsBannedIfOneIsWrong(t *testing.T) {
	s := start(t, dashboard.Options{ShowKeys: true})
	many := make([]string, 51)
	for i := range many {
		many[i] = "203.0.113.8"
	}
	for want, body := range map[string]map[string]any{
		"no request can have this key": {"action": "ban", "keys": []string{"203.0.113.8", "foo"}, "for": "1h"},
		"enter a key":                  {"action": "ban", "keys": []string{"203.0.113.8", ""}, "for": "1h"},
		"does not know":                {"action": "ban", "keys": []string{"203.0.113.8", "AAAAAAAAAAAAAAAAAAAAAA"}},
		"at most 50":                   {"action": "ban", "keys": many},
		"fortnight":                    {"action": "ban", "keys": []string{"203.0.113.8"}, "for": "1 fortnight"},
		"Reason":                       {"action": "ban", "keys": []string{"203.0.113.8"}, "reason": strings.Repeat("a", 201)},
		"cannot be printed":            {"action": "ban", "key": "203.0.113.8", "reason": "a\x00"},
	} {
		code, said := s.ask(body)
		if want == "does not know" {
			want = "name the key"
		}
		assert.Equal(t, http.StatusBadRequest, code, want)
		assert.Contains(t, said.Error, want)
		assert.True(t, s.bans.Empty(), want)
	}
}
