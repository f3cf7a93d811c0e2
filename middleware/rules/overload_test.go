package rules_test

import (
	"errors"
	"net/http"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/weirgo/weir/middleware"
	"github.com/weirgo/weir/middleware/rules"
	"github.com/weirgo/weir/middleware/shed"
)

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
			assert.Equal(t, exempt, o.Exempt.Matches(call{route: route}.request()), route)
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
		"2:1: overload: needs rules.Options.Overload, such as shed.FromRules, which this program does not set": {},
		"2:1: overload: is set, and so is the application's Config.Overload: keep one":                         own,
		"2:11: overload: needs a limiter, and rules.Options.Overload returned nil": {
			Overload: func(middleware.OverloadOptions) (middleware.Overload, error) { return nil, nil }},
		"2:11: overload: no capacity": {
			Overload: func(middleware.OverloadOptions) (middleware.Overload, error) { return nil, errors.New("no capacity") }},
	} {
		_, err := rules.Parse([]byte(text), o)
		require.Error(t, err)
		assert.Equal(t, []string{want}, problemsOf(t, err))
	}
}

// What a limit has learned is kept over reloads, and over attempts that are refused.
func TestAReloadKeepsTheOverloadThatItDoesNotChange(t *testing.T) {
	const section = "overload: {priority: [premium]}\n"
	bubble(t, func(t *testing.T) {
		w := watch(t, map[string]string{"limits.yaml": limitOf("10/s") + section}, rules.Options{Overload: shed.FromRules})
		reloads := func(text string) error {
			w.write(text)
			settle()
			return w.Status().Err
		}
		first := w.RateLimit.Overload()
		require.NoError(t, reloads(limitOf("20/s")+section))
		assert.Same(t, first, w.RateLimit.Overload())
		require.Error(t, reloads(limitOf("20/x")+"overload: {priority: [vip]}\n"))
		require.Error(t, reloads(limitOf("20/s")+"overload: {priority: [vip], max_wait: 1h}\n"))
		require.NoError(t, reloads("soft: 80%\n"+limitOf("20/s")+section))
		assert.Same(t, first, w.RateLimit.Overload(), "what was refused changes nothing")

		require.NoError(t, reloads(limitOf("20/s")+"overload: {priority: [vip]}\n"))
		assert.NotSame(t, first, w.RateLimit.Overload())
		assert.Equal(t, "vip", w.RateLimit.Overload().(*shed.Limiter).Stats()[0].Levels[0].Name)
		require.NoError(t, reloads(limitOf("20/s")))
		assert.Nil(t, w.RateLimit.Overload())
		assert.Equal(t, http.StatusOK, w.status(call{}))
	})
}
