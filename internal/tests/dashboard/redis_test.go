package dashboard_test

import (
	"encoding/json"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/weirgo/weir/internal/redistest"
	"github.com/weirgo/weir/keyfunc"
	"github.com/weirgo/weir/limiter"
	"github.com/weirgo/weir/limiter/failover"
	"github.com/weirgo/weir/middleware"
	"github.com/weirgo/weir/middleware/bans"
	"github.com/weirgo/weir/observe/dashboard"
	"github.com/weirgo/weir/redis/redisbans"
	"github.com/weirgo/weir/redis/redisstore"
)

func post(page http.Handler, body string) (code int, said string) {
	r := httptest.NewRequest("POST", "/ops/limits", strings.NewReader(body))
	r.Header.Set("Content-Type", "application/json")
	r.Header.Set("Sec-Fetch-Site", "same-origin")
	w := httptest.NewRecorder()
	page.ServeHTTP(w, r)
	return w.Code, w.Body.String()
}

func act(page http.Handler, action, key string) (code int, said string) {
	return post(page, fmt.Sprintf(`{"action":%q,"key":%q}`, action, key))
}

// A listedBan is a ban as the page shows it.
type listedBan struct {
	Key, Name string
	Until     int64
}

func bansOf(t *testing.T, page http.Handler) []listedBan {
	t.Helper()
	r := httptest.NewRequest("GET", "/ops/limits", nil)
	r.Header.Set("Accept", "application/json")
	w := httptest.NewRecorder()
	page.ServeHTTP(w, r)
	var said struct {
		State struct{ Bans struct{ List []listedBan } }
	}
	require.NoError(t, json.Unmarshal(w.Body.Bytes(), &said))
	return said.State.Bans.List
}

// A list may have a digest in place of a key, and Find does not know it.
func TestABanThatIsListedIsLiftedAndSaidToBe(t *testing.T) {
	server := redistest.Start(t)
	client := redis.NewClient(&redis.Options{Addr: server.Addr})
	t.Cleanup(func() { _ = client.Close() })
	shared, err := redisbans.New(t.Context(), client, redisbans.Options{})
	require.NoError(t, err)
	for _, shown := range []bool{false, true} {
		page := dashboard.Must(dashboard.New(dashboard.Options{Authorize: anybody, Bans: shared, ShowKeys: shown, Logger: slog.New(slog.DiscardHandler)}))
		for _, key := range []string{"203.0.113.9", "user:" + strings.Repeat("x", 300)} {
			require.NoError(t, shared.Ban(t.Context(), key, 0))
			listed := bansOf(t, page)
			require.Len(t, listed, 1)
			assert.Zero(t, listed[0].Until)
			code, said := act(page, "unban", listed[0].Key)
			assert.Equal(t, http.StatusOK, code)
			assert.Contains(t, said, `"The ban is lifted."`)
			_, banned := shared.Find(key)
			assert.False(t, banned)
			code, said = act(page, "unban", key)
			assert.Equal(t, http.StatusNotFound, code)
			assert.Contains(t, said, "was not banned")
		}
	}
}

func TestALookAtWhatNobodyCountsShowsNoNumbers(t *testing.T) {
	client := redis.NewClient(&redis.Options{Addr: "127.0.0.1:1"})
	t.Cleanup(func() { _ = client.Close() })
	store := redisstore.New(client, redisstore.Options{Failover: failover.Options{Failures: 1, Replicas: 4, OnDegraded: func(failover.Event) {}}})
	page := dashboard.Must(dashboard.New(dashboard.Options{Authorize: anybody, Store: store, Logger: slog.New(slog.DiscardHandler)}))
	limits := middleware.Must(middleware.New(middleware.Config{Store: store, Rules: []middleware.Rule{
		{Name: "open", Key: keyfunc.IP(), Limit: limiter.PerMinute(8), OnOutage: limiter.FailOpen},
		{Name: "local", Key: keyfunc.IP(), Limit: limiter.PerMinute(8)},
	}}))
	page.Add(limits)
	_, said := post(page, `{"action":"look","rule":"open","key":"203.0.113.9"}`)
	assert.Contains(t, said, `"limit":0,"remaining":0,"degraded":true,"uncounted":true`)
	_, said = post(page, `{"action":"look","rule":"local","key":"203.0.113.9"}`)
	assert.Contains(t, said, `"limit":2,"remaining":2,"degraded":true}`)
}

func TestABanInRedisHasANameWhereTheKeyWasMet(t *testing.T) {
	server := redistest.Start(t)
	rdb := redis.NewClient(&redis.Options{Addr: server.Addr})
	t.Cleanup(func() { rdb.Close() })
	list, err := redisbans.New(t.Context(), rdb, redisbans.Options{})
	require.NoError(t, err)
	for _, shown := range []bool{true, false} {
		page := dashboard.Must(dashboard.New(dashboard.Options{Authorize: anybody, Bans: list, ShowKeys: shown}))
		for _, key := range []string{"203.0.113.9", "203.0.113.10"} {
			require.NoError(t, list.Ban(t.Context(), key, time.Hour, bans.By("ada")))
		}
		page.Observe(&middleware.Observation{Rules: []middleware.RuleResult{{Rule: &middleware.RuleInfo{Name: "ip"}, Key: "203.0.113.9"}}})
		names := map[string]string{}
		for _, ban := range bansOf(t, page) {
			names[ban.Key] = ban.Name
		}
		met, other := keyfunc.NewDigester(nil).Digest("203.0.113.9"), keyfunc.NewDigester(nil).Digest("203.0.113.10")
		assert.Equal(t, map[string]string{met.String(): map[bool]string{true: "203.0.113.9"}[shown], other.String(): ""}, names)
	}
}
