package rules_test

import (
	"errors"
	"net/http"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/weirgo/weir/middleware"
	"github.com/weirgo/weir/middleware/rules"
	"github.com/weirgo/weir/middleware/shed"
)

const overloadFile = `version: 1
proxies: {trusted: [127.0.0.1]}
overload: {priority: [premium, free], max_wait: 10s, exempt: ["GET /healthz"]}
default: 1000/h
`

func TestOverloadWorksOnEveryRouterAndStore(t *testing.T) {
	t.Parallel()
	holdOnEveryRouterAndStore(t, []lineClaim{
		{line: "priority:", claim: "the first tier goes before others where there is no room", run: priorityIsKept, file: overloadFile},
		{line: "exempt:", claim: "a route takes no place, and an edit of other lines keeps what was learned", run: exemptTakesNoPlace, file: overloadFile},
	})
}

// full fills all places with requests that go on until free is called, once for each or, the
// last time, for all.
func (s *lineService) full(t *testing.T) (places int, free func(all bool)) {
	places = s.stats().Limit
	next, began := make(chan struct{}), make(chan struct{}, places)
	lineHeld.Store(t.Name(), func() { began <- struct{}{}; <-next })
	var asking sync.WaitGroup
	for range places {
		asking.Go(func() { s.passes(t, "GET /news?held="+t.Name(), lineClient{}, 1) })
	}
	for range places {
		<-began
	}
	return places, func(all bool) {
		if !all {
			next <- struct{}{}
			return
		}
		close(next)
		asking.Wait()
		lineHeld.Delete(t.Name())
	}
}

func (s *lineService) stats() shed.Stats { return s.watcher.Overload().(*shed.Limiter).Stats()[0] }

func priorityIsKept(t *testing.T, s *lineService) {
	_, free := s.full(t)
	served := make(chan string, 3)
	var waiting sync.WaitGroup
	for i, tier := range []string{"", "free", "premium"} {
		name := t.Name() + tier
		lineHeld.Store(name, func() { served <- tier })
		defer lineHeld.Delete(name)
		waiting.Go(func() { s.passes(t, "GET /news?held="+name, lineClient{tier: tier}, 1) })
		require.Eventually(t, func() bool { return s.stats().Waiting == i+1 }, long, time.Millisecond)
	}
	free(false)
	require.Equal(t, "premium", <-served)
	require.Equal(t, "free", <-served, "in the place that premium left")
	require.Equal(t, "", <-served)
	free(true)
	waiting.Wait()
	require.Eventually(t, func() bool { return s.stats().InFlight == 0 }, long, time.Millisecond)
}

func exemptTakesNoPlace(t *testing.T, s *lineService) {
	places, free := s.full(t)
	s.passes(t, "GET /healthz", lineClient{}, 3)
	s.edit(t, s.text+"soft: 80%\n")
	require.NoError(t, s.reloaded(t))
	require.Equal(t, places, s.stats().InFlight, "a reload forgets none that are in flight")
	free(true)
}

func TestWhatAFileSaysOfOverloadIsWhatItsConstructorIsGiven(t *testing.T) {
	for text, want := range map[string]middleware.OverloadOptions{
		"{}": {},
		"{priority: premium, max_wait: 1s, per_route: true}":            {Priority: []string{"premium"}, MaxWait: time.Second, PerRoute: true},
		"{priority: [premium, free], max_wait: 50ms, per_route: false}": {Priority: []string{"premium", "free"}, MaxWait: 50 * time.Millisecond},
	} {
		made := shed.Must(shed.New(shed.Options{}))
		var given []middleware.OverloadOptions
		c := parse(t, "version: 1\noverload: "+text+"\n", rules.Options{Overload: func(o middleware.OverloadOptions) (middleware.Overload, error) {
			given = append(given, o)
			return made, nil
		}}).Config()
		assert.Equal(t, []middleware.OverloadOptions{want}, given, text)
		assert.Same(t, made, c.Overload)
	}
	c := parse(t, "version: 1\noverload: {exempt: [\"GET /poll\", /live/*]}\n", rules.Options{Overload: func(o middleware.OverloadOptions) (middleware.Overload, error) {
		for route, exempt := range map[string]bool{"GET /poll": true, "POST /poll": false, "GET /live/{id}": true, "GET /": false} {
			assert.Equal(t, exempt, o.Exempt(call{route: route}.request()), route)
		}
		return shed.FromRules(o)
	}}).Config()
	assert.NotNil(t, c.Overload)
}

func TestWhatIsWrongWithOverloadIsTold(t *testing.T) {
	const text = "version: 1\noverload: {priority: [premium, free]}\ndefault: 3/s\n"
	own := rules.Options{Overload: shed.FromRules}
	own.Config.Overload = shed.Must(shed.New(shed.Options{}))
	for want, o := range map[string]rules.Options{
		"2:1: overload: is nothing that this program can do: its rules.Options need Overload, such as shed.FromRules": {},
		"2:1: overload: stands beside the application's own Config.Overload: keep one":                                own,
		"2:11: overload: is nothing that this program can do: Overload of its rules.Options returned nil": {
			Overload: func(middleware.OverloadOptions) (middleware.Overload, error) { return nil, nil }},
		"2:11: overload: no capacity": {
			Overload: func(middleware.OverloadOptions) (middleware.Overload, error) { return nil, errors.New("no capacity") }},
	} {
		_, err := rules.Parse([]byte(text), o)
		require.Error(t, err)
		assert.Equal(t, []string{want}, problemsOf(t, err))
	}
}

func TestOverloadIsExplained(t *testing.T) {
	r := parse(t, "version: 1\noverload: {priority: [premium, free], exempt: \"GET /poll\"}\ndefault: 3/s\nallow: {routes: /healthz}\n", rules.Options{Overload: shed.FromRules})
	for _, of := range []struct {
		q    rules.Request
		want string
	}{
		{rules.Request{Path: "/", Tier: "free"}, `2 overload: takes a place of the service's overload limit, in level "free", 2 of 3`},
		{rules.Request{Path: "/"}, `2 overload: takes a place of the service's overload limit, in level "others", 3 of 3`},
		{rules.Request{Path: "/poll"}, "2 overload: exempt from the overload limit"},
		{rules.Request{Path: "/healthz"}, "4 allow: on the list: not limited"},
	} {
		said := steps(t, r, of.q)
		assert.Equal(t, of.want, said[len(said)-1])
	}
}

// What a limit has learned is kept over reloads, and over attempts that are refused.
func TestAReloadKeepsTheOverloadThatItDoesNotChange(t *testing.T) {
	const section = "overload: {priority: [premium]}\n"
	w := watch(t, map[string]string{"limits.yaml": limitOf("10/s") + section}, rules.Options{Overload: shed.FromRules, Poll: 100 * time.Millisecond})
	reloads := func(text string) error {
		before := len(w.all())
		w.write(text)
		require.Eventually(t, func() bool { return len(w.all()) > before }, long, time.Millisecond)
		return w.all()[before].Err
	}
	first := w.Overload()
	require.NoError(t, reloads(limitOf("20/s")+section))
	assert.Same(t, first, w.Overload())
	require.Error(t, reloads(limitOf("20/x")+"overload: {priority: [vip]}\n"))
	require.Error(t, reloads(limitOf("20/s")+"overload: {priority: [vip], max_wait: 1h}\n"))
	require.NoError(t, reloads("soft: 80%\n"+limitOf("20/s")+section))
	assert.Same(t, first, w.Overload(), "what was refused changes nothing")

	require.NoError(t, reloads(limitOf("20/s")+"overload: {priority: [vip]}\n"))
	assert.NotSame(t, first, w.Overload())
	assert.Equal(t, "vip", w.Overload().(*shed.Limiter).Stats()[0].Levels[0].Name)
	require.NoError(t, reloads(limitOf("20/s")))
	assert.Nil(t, w.Overload())
	assert.Equal(t, http.StatusOK, w.status(call{}))
}
