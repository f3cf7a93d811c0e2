package dashboard_test

import (
	"encoding/json"
	"fmt"
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
			Claimed     bool
			Senders     []string
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

// Somebody sends the names of real tenants from one address, and a tenant sends a little too much.
func TestABanIsOfferedForTheAddressBehindAKeyAnyoneCanSend(t *testing.T) {
	for _, shown := range []bool{true, false} {
		phase.Test(t, func(t *testing.T) {
			s := start(t, dashboard.Options{ShowKeys: shown})
			text := func(key string) string {
				if shown {
					return key
				}
				return keyfunc.NewDigester(nil).Digest(key).String()
			}
			for i := range 100 {
				for n := range 5 {
					s.send("GET", "/export", "203.0.113.9", fmt.Sprint("tenant-", n))
				}
				if i%5 == 0 {
					s.send("GET", "/export", "198.51.100.1", "tenant-1")
				}
			}
			time.Sleep(time.Second)
			found := s.figures().Verdict.Findings
			require.Len(t, found, 1)
			require.Len(t, found[0].Known, 5)
			for _, k := range found[0].Known {
				assert.True(t, k.Claimed)
				assert.Equal(t, []string{text("203.0.113.9")}, k.Senders)
			}

			forged := text("header:X-Tenant:tenant-1")
			code, said := s.ask(map[string]any{"action": "ban", "key": forged, "for": "1h", "preview": true})
			require.Equal(t, http.StatusOK, code, said.Error)
			assert.True(t, said.Plan.Clients[0].Claimed)
			assert.Equal(t, []string{text("203.0.113.9")}, said.Plan.Clients[0].Senders)

			code, said = s.ask(map[string]any{"action": "ban", "keys": found[0].Known[0].Senders, "for": "1h"})
			require.Equal(t, http.StatusOK, code, said.Error)
			assert.Equal(t, http.StatusForbidden, s.send("GET", "/", "203.0.113.9", ""))
			assert.Equal(t, http.StatusOK, s.send("GET", "/", "198.51.100.1", ""))
			assert.Empty(t, s.figures().Verdict.Findings[0].Known[0].Senders, "it is banned already")

			code, said = s.ask(map[string]any{"action": "ban", "key": forged, "for": "1h"})
			require.Equal(t, http.StatusOK, code, said.Error)
			assert.Contains(t, said.Text, "the ban locks out its owner")
		})
	}
}

func TestAKeyIsClaimedBeforeItsFirstRequest(t *testing.T) {
	s := start(t, dashboard.Options{ShowKeys: true})
	for key, claimed := range map[string]bool{
		"header:X-Tenant:acme": true, "cookie:session:8f3a": true, "query:tenant:acme": true, "path:id:42": true, `"body:account:jane"`: true,
		"user:42": false, "203.0.113.9": false, "apikey:k": false, "bearer:t": false,
	} {
		_, said := s.ask(map[string]any{"action": "ban", "key": key, "preview": true})
		assert.Equal(t, claimed, said.Plan.Clients[0].Claimed, key)
	}
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
