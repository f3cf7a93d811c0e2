package rules_test

import (
	"fmt"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"
	_ "time/tzdata"

	"github.com/stretchr/testify/require"

	"github.com/weirgo/weir/internal/phase"
	"github.com/weirgo/weir/limiter"
)

func TestACalendarWorksOnEveryRouterAndStore(t *testing.T) {
	t.Parallel()
	zone := phase.NoonZone()
	file := strings.ReplaceAll(`version: 1
proxies: {trusted: [127.0.0.1]}
endpoints:
  "GET /news": {limit: 4/day ZONE, key: user}
  "POST /login": {limits: [100/1h, 6/month ZONE], key: user}
  "GET /login": {requests: 3, window: week from sunday ZONE, key: user}
`, "ZONE", zone)
	window := func(l limiter.Limit) (length, left int64) {
		q, err := limiter.NewQuota("rule", "", l.In(zone))
		require.NoError(t, err)
		now := time.Now().UnixMicro()
		start, end := q.WindowAt(now)
		return (end - start) / 1e6, (end - now + 999_999) / 1e6
	}
	inTime := func(t *testing.T, seconds string, left int64) {
		t.Helper()
		n, err := strconv.ParseInt(seconds, 10, 64)
		require.NoError(t, err)
		require.InDelta(t, left, n, 60)
	}
	told := regexp.MustCompile(`;t=(\d+)`)

	ends := func(t *testing.T, s *lineService) {
		ann := lineClient{ip: "203.0.113.1", user: "ann"}
		_, left := window(limiter.Daily(4))
		h := s.passes(t, "GET /news", ann, 3)
		require.Equal(t, `"GET /news";q=4;w=86400`, h.Get("RateLimit-Policy"))
		require.Contains(t, h.Get("RateLimit"), `"GET /news";r=1;t=`)
		inTime(t, told.FindStringSubmatch(h.Get("RateLimit"))[1], left)
		s.passes(t, "GET /news", ann, 1)
		inTime(t, s.refuses(t, "GET /news", ann).Get("Retry-After"), left)
		s.passes(t, "GET /news", lineClient{ip: "203.0.113.1", user: "ben"}, 4)
	}
	several := func(t *testing.T, s *lineService) {
		ann := lineClient{ip: "203.0.113.1", user: "ann"}
		length, left := window(limiter.Monthly(6))
		h := s.passes(t, "POST /login", ann, 6)
		require.Equal(t, fmt.Sprintf(`"POST /login";q=100;w=3600, "POST /login.2678400";q=6;w=%d`, length), h.Get("RateLimit-Policy"))
		inTime(t, s.refuses(t, "POST /login", ann).Get("Retry-After"), left)
	}
	weeks := func(t *testing.T, s *lineService) {
		ann := lineClient{ip: "203.0.113.1", user: "ann"}
		_, left := window(limiter.Weekly(3).From(time.Sunday))
		s.passes(t, "GET /login", ann, 3)
		inTime(t, s.refuses(t, "GET /login", ann).Get("Retry-After"), left)
	}
	reload := func(t *testing.T, s *lineService) {
		ann := lineClient{ip: "203.0.113.1", user: "ann"}
		s.passes(t, "GET /news", ann, 4)
		s.refuses(t, "GET /news", ann)
		for _, step := range []struct{ limit, member string }{
			{"8/day " + zone, "r=3"}, // of 4 more one is taken each time
			{"1000/month", "r=994"},
			{"10/year " + zone, "r=3"},
			{"20/day " + zone, "r=12"},
			{"20/day fixed-window", "r=11"},
		} {
			s.edit(t, strings.Replace(file, "4/day "+zone, step.limit, 1))
			require.NoError(t, s.reloaded(t))
			require.Contains(t, s.passes(t, "GET /news", ann, 1).Get("RateLimit"), step.member, step.limit)
		}
	}
	holdOnEveryRouterAndStore(t, []lineClaim{
		{line: "limit: 4/day", claim: "a day ends at midnight there", run: ends, file: file},
		{line: "limits:", claim: "a month beside an hour", run: several, file: file},
		{line: "window: week", claim: "a week", run: weeks, file: file},
		{line: "limit:", claim: "what was used of a day stays used when the limit changes", run: reload, file: file},
	})
}
