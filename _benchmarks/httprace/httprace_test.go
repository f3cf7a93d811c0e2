package main

import (
	"bytes"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/weirgo/weir/benchmarks/peers"
	"github.com/weirgo/weir/benchmarks/race"
)

// The race starts this program again for each contestant.
func TestMain(m *testing.M) {
	if len(os.Args) == 4 && os.Args[1] == contestantFlag {
		main()
		return
	}
	os.Exit(m.Run())
}

func small(t *testing.T, args ...string) settings {
	s, err := parse(append([]string{"-quick", "-slice", "16ms"}, args...))
	require.NoError(t, err)
	s.progress = io.Discard
	return s
}

// A response of another status than intended is an error.
func TestEveryContestantServesInEveryCase(t *testing.T) {
	s := small(t)
	results, err := s.measure(t.Context())
	require.NoError(t, err)
	for _, e := range contestants {
		for kind, metric := range map[string]race.Metric{allowed: serverCPU, refused: perSecond, allowed + inProcess: perRequest, refused + inProcess: perRequest} {
			figure, ran := results.Figure(e.Name, s.caseOf(kind), metric)
			assert.Equal(t, e.only == "" || e.only == kind || e.only+inProcess == kind, ran, "%s, %s", e.Name, kind)
			if ran && e.Name != bare {
				assert.Positive(t, figure, "%s, %s", e.Name, kind)
			}
		}
	}
}

func TestEveryResponseTellsItsLimit(t *testing.T) {
	legacy := []string{"X-Ratelimit-Limit", "X-Ratelimit-Remaining", "X-Ratelimit-Reset"}
	both := append([]string{"Ratelimit", "Ratelimit-Policy"}, legacy...)
	for name, want := range map[string][]string{
		bare: nil, weir: both, weirLegacy: legacy, "weir-none": nil, weirBan: nil, weirThreeRules: both, weirGin: both, weirEcho: both,
		peers.GoLimiter: legacy, "httprate": legacy, "ulule": legacy, peers.Echo: nil,
	} {
		for _, stage := range []string{allowed, refused} {
			e, _ := named(name)
			if !e.takesPart(stage) {
				continue
			}
			h, err := e.handlers(stage)
			require.NoError(t, err)
			header := record(h[limited]).Header()
			fields := slices.DeleteFunc(slices.Collect(maps.Keys(header)), func(name string) bool { return !strings.Contains(name, "Ratelimit") })
			assert.ElementsMatch(t, want, fields, "%s, %s", name, stage)
			if stage == refused && !isPeer(name) {
				assert.NotEmpty(t, header.Get("Retry-After"), name)
			}
		}
	}
}

func TestAConstantIsTheContestantsResponse(t *testing.T) {
	for _, e := range contestants {
		for _, stage := range []string{allowed, refused} {
			if !e.takesPart(stage) {
				continue
			}
			h, err := e.handlers(stage)
			require.NoError(t, err)
			got, want := record(h[constant]), record(h[limited])
			assert.Equal(t, e.statusOf(limited, stage), got.Code, "%s, %s", e.Name, stage)
			assert.Equal(t, want.Body.Len(), got.Body.Len(), "%s, %s", e.Name, stage)
			assert.ElementsMatch(t, slices.Collect(maps.Keys(want.Header())), slices.Collect(maps.Keys(got.Header())), "%s, %s", e.Name, stage)
			assert.Equal(t, http.StatusOK, record(h[frame]).Code, "%s, %s", e.Name, stage)
		}
	}
}

func TestARaceEndsWithTablesAndJSON(t *testing.T) {
	figures := filepath.Join(t.TempDir(), "figures.json")
	var out bytes.Buffer
	require.NoError(t, run(t.Context(), small(t, "-only", "bare,weir,go-limiter", "-connections", "2", "-json", figures), &out))
	for _, part := range []string{"### allowed: 2 goroutines, 1 key", "× go-limiter", "### Goals", "not measured", "github.com/sethvargo/go-limiter v1"} {
		assert.Contains(t, out.String(), part)
	}
	text, err := os.ReadFile(figures)
	require.NoError(t, err)
	assert.Contains(t, string(text), `"server CPU µs"`)
}

func TestAContestantThatDoesNotRefuseIsAnError(t *testing.T) {
	_, err := contestant{Peer: peers.Peer{Wrap: wrapNothing}}.handlers(refused)
	require.ErrorContains(t, err, "answers 200 where it should answer 429")
}

func TestTheClientTakesNoOtherAnswerForOne(t *testing.T) {
	for want, h := range map[string]http.HandlerFunc{
		"answers 404":       http.NotFound,
		"no Content-Length": func(w http.ResponseWriter, _ *http.Request) { w.(http.Flusher).Flush() },
		"EOF":               func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) },
	} {
		server := httptest.NewServer(h)
		c, err := dial(server.Listener.Addr().String())
		require.NoError(t, err)
		_, _, err = load([]*connection{c}, http.StatusOK, time.Millisecond)
		require.ErrorContains(t, err, want)
		_ = c.Close()
		server.Close()
	}
}
