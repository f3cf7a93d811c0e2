package main

import (
	"bytes"
	"encoding/xml"
	"fmt"
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

	"github.com/weirgo/weir/benchmarks/race"
)

// The race starts this program again for each contestant.
func TestMain(m *testing.M) {
	if race.IsChild() {
		main()
		return
	}
	os.Exit(m.Run())
}

func small(t *testing.T, args ...string) settings {
	s, err := parse(append([]string{"-quick", "-slice", "2ms"}, args...))
	require.NoError(t, err)
	s.progress = io.Discard
	s.many, s.fresh, s.held, s.strangers = []int{500}, 5000, []int{20_000}, 20_000
	return s
}

// Contestants tell how many were admitted, and it is an error if that is not as intended.
func TestEveryContestantDecidesAsIntendedInEveryCase(t *testing.T) {
	m := &benchmark{settings: small(t)}
	for _, h := range m.groups() {
		require.NoError(t, m.run(t.Context(), h))
	}
	assert.Empty(t, m.notes)
	for _, e := range contestants {
		for _, c := range m.cases {
			metric := perOp
			switch c.Name {
			case memory:
				metric = bytesPerKey
			case flooded, besieged:
				metric = floodPerOp
			}
			figure, ran := m.results.Figure(e.name, c, metric)
			assert.Equal(t, e.takesPart(c.Name), ran, "%s, %v", e.name, c)
			if ran && c.Name != requests { // echo's is a difference
				assert.Positive(t, figure, "%s, %v", e.name, c)
			}
			if allocations, _ := m.results.Figure(e.name, c, allocs); e.name == floor || e.name == weir && c.Name == allowed {
				assert.Zero(t, allocations, "%s, %v", e.name, c)
			}
			if refusals, _ := m.results.Figure(e.name, c, turnedAway); c.Name == flooded {
				assert.Zero(t, refusals, "of the customer, %v", c)
			}
		}
	}
	if overflowed, _ := m.results.Figure(weir, m.cases[len(m.cases)-1], overflowed); assert.Equal(t, besieged, m.cases[len(m.cases)-1].Name) {
		assert.Positive(t, overflowed)
	}
}

func TestEveryMiddlewareThatShouldSetsHeaderFields(t *testing.T) {
	for _, e := range contestants {
		if e.wrap == nil || e.name == echoStore { // which sets none
			continue
		}
		b, err := measureRequests(e, 1)
		require.NoError(t, err)
		_, err = b(1, time.Millisecond)
		assert.NoError(t, err)
		assert.Contains(t, headers(t, e), "Limit", e.name)
	}
}

func TestARaceEndsWithTablesJSONAndAPlot(t *testing.T) {
	dir := t.TempDir()
	figures, drawing := filepath.Join(dir, "figures.json"), filepath.Join(dir, "plot.svg")
	var out bytes.Buffer
	require.NoError(t, run(t.Context(), small(t, "-only", "weir,floor,go-limiter", "-json", figures, "-svg", drawing), &out))
	for _, part := range []string{"### hot key, allowed: 1 goroutine, 1 key", "× go-limiter", "### Goals", "evicted", "github.com/sethvargo/go-limiter v1"} {
		assert.Contains(t, out.String(), part)
	}
	text, err := os.ReadFile(figures)
	require.NoError(t, err)
	assert.Contains(t, string(text), `"ns/op"`)
	text, err = os.ReadFile(drawing)
	require.NoError(t, err)
	for d := xml.NewDecoder(bytes.NewReader(text)); err != io.EOF; _, err = d.Token() {
		require.NoError(t, err)
	}
	assert.Equal(t, 3*2*2, strings.Count(string(text), "<rect"))
}

func TestAContestantThatDoesNotDecideAsIntendedIsAnError(t *testing.T) {
	always := contestant{open: func(*environment) (func() race.Call, error) {
		return openFloor(&environment{quota: plenty, keys: 1})
	}}
	_, err := measurements[refused](always, 1)
	assert.ErrorContains(t, err, "still allowed")
	never := contestant{open: func(*environment) (func() race.Call, error) {
		return openFloor(&environment{quota: nothing, keys: 1})
	}}
	b, err := measurements[allowed](never, 1)
	require.NoError(t, err)
	_, err = b(1, time.Millisecond)
	assert.ErrorContains(t, err, "0 of 4096 were admitted")
}

// headers are the names of the header fields of one response.
func headers(t *testing.T, e contestant) string {
	t.Helper()
	w := httptest.NewRecorder()
	s := &environment{quota: plenty, keys: 1}
	defer s.close()
	h, _, err := e.wrap(s, http.NotFoundHandler())
	require.NoError(t, err)
	h.ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/", nil))
	return fmt.Sprint(slices.Collect(maps.Keys(w.Header())))
}
