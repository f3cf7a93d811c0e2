package middleware_test

import (
	"fmt"
	"net/http"
	"reflect"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/weirgo/weir/internal/phase"
	"github.com/weirgo/weir/keyfunc"
	"github.com/weirgo/weir/limiter"
	"github.com/weirgo/weir/middleware"
	"github.com/weirgo/weir/middleware/bans"
)

// Each rule is called "a" and has a limit of one per hour, unless the row says otherwise.
func constant(*http.Request) (string, error) { return "same-for-all", nil }

func TestTheLongestNameCanHaveEveryCounter(t *testing.T) {
	longest := strings.Repeat("n", 128)
	limited(t, middleware.Config{Bans: middleware.Bans{List: bansOf(t)}, Rules: []middleware.Rule{
		{Name: longest, Key: keyfunc.IP(), Limit: limiter.All(limiter.PerSecond(1), limiter.PerHour(9), limiter.AtOnce(1)), Escalate: strict},
		{Name: longest[1:] + "d", Key: keyfunc.IP(), Limit: limiter.PerHour(1), Distinct: keyfunc.User},
	}})
}

func TestRulesThatCannotBeAreErrors(t *testing.T) {
	second, hour, few := limiter.PerSecond(1), limiter.PerHour(100), limiter.AtOnce(5)
	leaky := hour.With(limiter.LeakyBucket)
	two := func(*http.Request) int64 { return 2 }
	known := newLimit(t, middleware.Rule{Name: "known", Key: keyfunc.Global, Limit: hour})
	for want, rule := range map[string]middleware.Rule{
		`"é\n" has a character outside printable ASCII`: {Name: "é\n", Key: keyfunc.Global},
		`129 characters: at most 128`:                   {Name: strings.Repeat("n", 129), Key: keyfunc.Global},
		`NoKey is 7`:                                    {NoKey: 7},
		`OnOutage is 9`:                                 {OnOutage: 9},
		`Mode is 3`:                                     {Mode: 3},
		`SoftAt is -1`:                                  {SoftAt: -1},
		`SoftAt is 100`:                                 {SoftAt: 100},
		`Rules[0] "a": Events is 4611686018427387904`:                               {Limit: limiter.PerSecond(1 << 62)},
		`Algorithm is 200`:                                                          {Limit: hour.With(200)},
		`Rules[0] "a": All has 0 limits`:                                            {Limit: limiter.All()},
		`Rules[0] "a": Limit is a *limiter.Limit`:                                   {Limit: &hour},
		`Rules[0] "a": Limit is a middleware_test.plan`:                             {Limit: plan{hour, []string{"export"}}},
		`Events is 0: it must be from`:                                              {Limit: limiter.All(hour, limiter.Limit{})},
		`Max is -1`:                                                                 {Limit: limiter.AtOnce(-1)},
		`Max is 0`:                                                                  {Limit: limiter.AtOnce(0).Queue(5, 1)},
		`MaxWait is missing`:                                                        {Limit: few.Queue(5, 0)},
		`no queue`:                                                                  {Limit: few.Queue(0, 5)},
		`"a" tier "x": Limit is missing`:                                            {Tiers: middleware.Tiers{"x": nil}},
		`"a" tier "y": Events is 0`:                                                 {Tiers: middleware.Tiers{"y": limiter.Limit{}}},
		`"a" tier "z": Max is 0`:                                                    {Limit: few, Tiers: middleware.Tiers{"z": limiter.Concurrency{}}},
		`Tiers has a tier without a name`:                                           {Tiers: middleware.Tiers{"": few}},
		`"bad\x00" has a character outside printable ASCII`:                         {Tiers: middleware.Tiers{"bad\x00": hour}},
		`Units is 20: 10/1s allows at most 10 at once, so no request`:               {Limit: limiter.PerSecond(10), Cost: middleware.Units(20)},
		`Units is 4: 10/1s token-bucket burst 3 allows at most 3 at once`:           {Limit: limiter.PerSecond(10).WithBurst(3), Cost: middleware.Units(4)},
		`Units is 5: 1/1s allows at most 1 at once`:                                 {Limit: limiter.All(hour, second), Cost: middleware.Units(5)},
		`"a" tier "x": Units is 6: 1/1s allows at most 1 at once`:                   {Limit: hour, Tiers: middleware.Tiers{"x": limiter.All(hour, second)}, Cost: middleware.Units(6)},
		`Units is -1: it must be at least 1`:                                        {Cost: middleware.Units(-1)},
		`Units is 0`:                                                                {Cost: middleware.Units(0)},
		`CostOf needs a function`:                                                   {Cost: middleware.CostOf(nil)},
		`Reserve needs an estimate, such as fixed units,`:                           {Cost: middleware.Reserve(nil)},
		`Cost needs a limit`:                                                        {Limit: few, Cost: middleware.CostOf(two)},
		`Rules[0] "a": Cost needs a limit`:                                          {Limit: few, Cost: middleware.Units(2)},
		`"a": Cost needs a limit`:                                                   {Limit: few, Cost: middleware.Reserve(nil)},
		`Counts needs a limit`:                                                      {Limit: few, Counts: middleware.StatusClass(5)},
		`Afterwards needs a limit`:                                                  {Limit: few, Counts: middleware.Counts{}.Afterwards()},
		`Afterwards needs counts of answers, or a cost`:                             {Counts: middleware.Counts{}.Afterwards()},
		`Afterwards is set: a leaky-bucket cannot have it`:                          {Limit: leaky, Counts: middleware.Counts{}.Afterwards(), Cost: middleware.Reserve(nil)},
		`Counts is 401: a leaky-bucket cannot have it, as its requests have`:        {Limit: leaky, Counts: middleware.Statuses(401)},
		`Reserve cannot go with a leaky-bucket`:                                     {Limit: leaky, Cost: middleware.Reserve(two)},
		`Counts: the status 99 must be from 100 to 599`:                             {Counts: middleware.Statuses(401, 99)},
		`Counts: the status 600 must be from 100 to 599`:                            {Counts: middleware.Not(middleware.Statuses(600))},
		`Counts: the class of statuses 20 must be from 1 to 5`:                      {Counts: middleware.StatusClass(20)},
		`Counts: there are no statuses, so nothing would count`:                     {Counts: middleware.Statuses()},
		`Counts: there are no classes of statuses, so nothing would`:                {Counts: middleware.StatusClass()},
		`Counts: Not is of the zero Counts, so nothing would count`:                 {Counts: middleware.Not(middleware.Counts{})},
		`Escalate.Outcomes needs counts, which say which answers`:                   {Key: byIP[0], Escalate: bans.Escalation{After: 1, Within: time.Hour, Ban: time.Hour, Outcomes: true}},
		`Escalate.After is 0`:                                                       {Key: byIP[0], Escalate: bans.Escalation{Factor: 0.5}},
		`Within is 0s`:                                                              {Key: byIP[0], Escalate: bans.Escalation{After: 1, Ban: time.Hour}},
		`Escalate bans keys, and Key is keyfunc.Global`:                             {Escalate: strict},
		`Refusal.Status is 200: it must be from 400 to 599`:                         {Refusal: middleware.Refusal{Status: 200}},
		`Refusal.Type is "a b": it is not a URI`:                                    {Refusal: middleware.Refusal{Type: "a b"}},
		`Refusal.Title has a control character`:                                     {Refusal: middleware.Refusal{Title: "x\ny"}},
		`Refusal.Message has 1001 bytes`:                                            {Refusal: middleware.Refusal{Message: strings.Repeat("x", 1001)}},
		`Refusal.Message has a { that begins none of {retry_after}`:                 {Refusal: middleware.Refusal{Message: "in {hours}"}},
		`Refusal.RetryAfter is 1s: it is only for a rule that denies`:               {Refusal: middleware.Refusal{RetryAfter: time.Second}},
		`Refusal.RetryAfter is -1ns`:                                                {Mode: middleware.Deny, Refusal: middleware.Refusal{RetryAfter: -1}},
		`Refusal.Status is 404: it must be 403, 429 or 503 for a rule`:              {Mode: middleware.Deny, Refusal: middleware.Refusal{Status: 404}},
		`Overrides has the limits of single keys, and Key is keyfunc.Global`:        {Overrides: map[string]middleware.Override{"x": {Limit: hour}}},
		`Overrides has an empty key`:                                                {Key: constant, Overrides: map[string]middleware.Override{"": {Limit: hour}}},
		`Overrides.Events is 0`:                                                     {Key: constant, Overrides: map[string]middleware.Override{"secret": {Limit: limiter.Limit{}}}},
		`Overrides has the digest of a key: it must be the key`:                     {Key: constant, Overrides: map[string]middleware.Override{keyfunc.Digester{}.Digest("user:a").Key(): {Limit: hour}}},
		`Overrides.Units is 5: 4/1h allows at most 4 at once`:                       {Key: constant, Limit: hour, Cost: middleware.Units(5), Overrides: map[string]middleware.Override{"secret": {Limit: limiter.PerHour(4)}}},
		`Overrides.Counts is 401: a leaky-bucket cannot have it`:                    {Key: constant, Counts: middleware.Statuses(401), Overrides: map[string]middleware.Override{"secret": {Limit: leaky}}},
		`Distinct is set, and the limit is 100/1h, 1/1m: it must be a single limit`: {Distinct: constant, Limit: limiter.All(hour, limiter.PerMinute(1))},
		`Distinct is set, and the limit is`:                                         {Distinct: constant, Limit: limiter.All(hour, limiter.AtOnce(1))},
		`Distinct is set, and the limit is 1 at once: it must be a single limit`:    {Distinct: constant, Limit: limiter.AtOnce(1)},
		`: it must be a single limit, and not a leaky-bucket`:                       {Distinct: constant, Limit: leaky},
		`Overrides.Distinct is set`:                                                 {Key: constant, Distinct: constant, Overrides: map[string]middleware.Override{"secret": {Limit: leaky}}},
		`Cost is set, and a new distinct value costs one unit`:                      {Distinct: constant, Cost: middleware.Units(2)},
		`Afterwards is set, and distinct values`:                                    {Distinct: constant, Counts: middleware.Statuses(401).Afterwards()},
		`Match: Route: pattern "POST login" has no path: want something like`:       {Match: middleware.Route("/", "POST login")},
		`"a": Match: Route: pattern "get /x"`:                                       {Mode: middleware.Deny, Match: middleware.Route("get /x")},
	} {
		if rule.Name == "" {
			rule.Name = "a"
		}
		if rule.Limit == nil {
			rule.Limit = limiter.PerHour(1)
		}
		if rule.Key == nil {
			rule.Key = keyfunc.Global
		}
		c := middleware.Config{Bans: middleware.Bans{List: bansOf(t), Keys: byIP}, Rules: []middleware.Rule{rule}}
		_, err := middleware.New(c)
		require.ErrorContains(t, err, want)
		assert.ErrorContains(t, err, `Rules[0] `, want)
		assert.NotContains(t, err.Error(), "secret")
		assert.ErrorContains(t, known.Reconfigure(c), want)
	}
}

func TestConfigsThatCannotBeAreErrors(t *testing.T) {
	hour := limiter.PerHour(100)
	one := func(edit ...func(*middleware.Rule)) []middleware.Rule {
		rule := middleware.Rule{Name: "a", Key: keyfunc.IP(), Limit: hour}
		for _, f := range edit {
			f(&rule)
		}
		return []middleware.Rule{rule}
	}
	full := func(n int) (rules []middleware.Rule) {
		for i := range n {
			rules = append(rules, middleware.Rule{Name: fmt.Sprint(i), Key: keyfunc.Global, Limit: limiter.Join(distinct(8), limiter.Concurrency{})})
		}
		return rules
	}
	most := limiter.Join(distinct(8), limiter.AtOnce(1))
	const tooMany = "one request can meet at most 64 limits"
	for _, test := range []struct {
		c    middleware.Config
		want []string
	}{
		{middleware.Config{}, []string{"Config.Rules is empty"}},
		{middleware.Config{Allow: always}, []string{"Config.Rules is empty"}},
		{middleware.Config{Rules: []middleware.Rule{{}, {Name: "b", Key: keyfunc.Global, NoKey: 7}}, Headers: middleware.Headers{Send: 9}},
			[]string{"Rules[0]", "name is empty", "Limit is missing", `Rules[0] "": Key is required; keyfunc.Global counts all requests together`, `Rules[1] "b": NoKey is 7`, "Headers.Send is 9"}},
		{middleware.Config{Headers: middleware.Headers{Send: middleware.HeadersDraft11, Prefix: "RateLimit"}, Rules: one()}, []string{"Headers.Send excludes the legacy fields"}},
		{middleware.Config{Headers: middleware.Headers{Send: middleware.HeadersNone, RetryAfter: true}, Rules: one()}, []string{"Headers.Send excludes the legacy fields"}},
		{middleware.Config{Headers: middleware.Headers{Prefix: "X-Limit-Retry-After"}, Rules: one()}, []string{`it must be the prefix of the names, such as "X-Limit"`}},
		{middleware.Config{Headers: middleware.Headers{Prefix: "X-Limit-Limit"}, Rules: one()}, []string{`Headers.Prefix is "X-Limit-Limit"`}},
		{middleware.Config{Refusal: middleware.Refusal{RetryAfter: time.Second}, Rules: one()}, []string{`Config.Refusal.RetryAfter is 1s: it is only for a rule that denies`}},
		{middleware.Config{Allow: middleware.Route("health"), Rules: one()}, []string{"Config.Allow: Route: "}},
		{middleware.Config{Allow: middleware.MatchFunc(nil), Rules: one()}, []string{"Config.Allow: it is a nil middleware.MatchFunc"}},
		{middleware.Config{Bans: middleware.Bans{Deny: middleware.Route("health")}, Rules: one()}, []string{"Config.Bans.Deny: Route: "}},
		{middleware.Config{Bans: middleware.Bans{Status: 429}, Rules: one()}, []string{"Config.Bans.Status is 429, and nothing bans: it needs List or Deny"}},
		{middleware.Config{Overload: incomparable{}}, []string{"Config.Overload is a middleware_test.incomparable"}},
		{middleware.Config{Store: new(limiter.Memory), Rules: one()}, []string{"Config.Store"}},
		{middleware.Config{Store: plain{limiter.Must(limiter.NewMemory(limiter.MemoryOptions{}))}, Rules: one(func(r *middleware.Rule) { r.Limit = limiter.AtOnce(5) })}, []string{"cannot count slots"}},

		{middleware.Config{Headers: middleware.Headers{Send: middleware.HeadersNone}, Rules: one(func(r *middleware.Rule) { r.SoftAt = 80 })},
			[]string{"SoftAt is 80, and with HeadersNone and without Config.Results nobody would see the warning"}},

		// Bans.
		{middleware.Config{Bans: middleware.Bans{Status: 404}, Rules: one()}, []string{"Config.Bans.Status is 404"}},
		{middleware.Config{Bans: middleware.Bans{List: bansOf(t), Keys: []keyfunc.Func{keyfunc.IP(), nil}}, Rules: one()}, []string{"Config.Bans.Keys[1] is nil"}},
		{middleware.Config{Bans: middleware.Bans{Keys: byIP}, Rules: one()}, []string{"Config.Bans.Keys is set, and needs a List"}},
		{middleware.Config{Bans: middleware.Bans{List: bansOf(t)}, Rules: one()}, []string{"Config.Bans has a List, but no key is looked up"}},
		{middleware.Config{Rules: one(func(r *middleware.Rule) { r.Escalate = strict })}, []string{"Escalate needs Config.Bans.List", "Bans: middleware.Bans{List: bans.Must(bans.New(bans.Options{}))}"}},

		// Where rules are.
		{middleware.Config{ByTier: map[string][]middleware.Rule{"": one(), "free": nil, "x": {{Name: "b", Key: keyfunc.Global}}}},
			[]string{"ByTier has a tier without a name", `ByTier["free"] has no rule`, `ByTier["x"] "b": Limit is missing`}},
		{middleware.Config{ByRoute: map[string][]middleware.Rule{"/a": {}, "GET/a": one(), "get /b": one(), "/c": {{Name: "c", Key: keyfunc.Global}}}, Default: []middleware.Rule{}},
			[]string{`ByRoute["/a"] has no rule`, `ByRoute: pattern "GET/a" has no space behind its method`, `ByRoute: pattern "get /b" does not begin with a method in capitals`,
				`ByRoute["/c"] "c": Limit is missing`, "Default has no rule"}},
		{middleware.Config{ByRoute: map[string][]middleware.Rule{"/a/{id}": one(), "/a/:name": {{Name: "b", Key: keyfunc.Global, Limit: hour}}}}, []string{`ByRoute["/a/{id}"] "a": it is the same route as for "b"`}},

		// Names of counters.
		{middleware.Config{Rules: append(one(), one()...), ByTier: map[string][]middleware.Rule{"free": one()}, ByRoute: map[string][]middleware.Rule{"/a": one()}, Default: one()},
			[]string{`Rules[1] "a": there is another rule named "a"`, `ByTier["free"] "a": there is another rule named "a"`, `ByRoute["/a"] "a": there is another rule named "a"`, `Default "a": there is another rule named "a"`}},
		{middleware.Config{Rules: []middleware.Rule{{Name: "a.1", Key: keyfunc.Global, Limit: hour}, {Name: "a", Key: keyfunc.Global, Limit: limiter.All(hour, limiter.PerSecond(1))}}}, []string{`there is another rule named "a.1"`}},
		{middleware.Config{Rules: []middleware.Rule{{Name: "a", Key: keyfunc.Global, Limit: limiter.All(hour, limiter.AtOnce(5))}, {Name: "a.concurrent", Key: keyfunc.Global, Limit: hour}}}, []string{`there is another rule named "a.concurrent"`}},
		{middleware.Config{Rules: []middleware.Rule{
			{Name: "api", Key: keyfunc.Global, Limit: hour, Tiers: middleware.Tiers{"pro": limiter.All(limiter.PerSecond(10), limiter.PerHour(1000))}},
			{Name: "api.3600", Key: keyfunc.Global, Limit: hour, Tiers: middleware.Tiers{"pro": hour, "free": hour}}}},
			[]string{`Rules[1] "api.3600": there is another rule named "api.3600"`}},
		{middleware.Config{Rules: []middleware.Rule{
			{Name: "api", Key: keyfunc.User, Limit: hour, Overrides: map[string]middleware.Override{"user:a": {Limit: limiter.All(limiter.PerSecond(10), hour)}}},
			{Name: "api.3600", Key: keyfunc.Global, Limit: hour}}},
			[]string{`Rules[1] "api.3600": there is another rule named "api.3600"`}},
		{middleware.Config{Rules: []middleware.Rule{
			{Name: "api.3600", Key: keyfunc.Global, Limit: hour, Tiers: middleware.Tiers{"pro": hour}},
			{Name: "api", Key: keyfunc.User, Limit: hour, Tiers: middleware.Tiers{"pro": hour}, Overrides: map[string]middleware.Override{"user:a": {Limit: limiter.All(limiter.PerSecond(10), hour)}}}}},
			[]string{`Rules[1] "api": there is another rule named "api.3600"`}},
		{middleware.Config{Bans: middleware.Bans{List: bansOf(t)}, Rules: append([]middleware.Rule{{Name: "a strikes", Key: keyfunc.Global, Limit: hour}}, one(func(r *middleware.Rule) { r.Escalate = strict })...)},
			[]string{`Rules[1] "a": there is another rule named "a strikes"`}},

		// A request meets at most 64 limits.
		{middleware.Config{Rules: named(65)}, []string{"65 rules: " + tooMany}},
		{middleware.Config{Rules: named(64), ByTier: map[string][]middleware.Rule{"free": one()}}, []string{tooMany}},
		{middleware.Config{Rules: named(64), ByRoute: map[string][]middleware.Rule{"/": one()}}, []string{tooMany}},
		{middleware.Config{Rules: named(64), Default: one()}, []string{tooMany}},
		{middleware.Config{Rules: append(full(8), one()...)}, []string{tooMany}},
		{middleware.Config{Rules: append(full(7), one(func(r *middleware.Rule) { r.Overrides = map[string]middleware.Override{"x": {Limit: most}} })...)}, []string{tooMany}},
		{middleware.Config{Rules: full(7), ByRoute: map[string][]middleware.Rule{"/": one(func(r *middleware.Rule) { r.Tiers = middleware.Tiers{"x": most} })}}, []string{tooMany}},
	} {
		test.c.Logger = quiet
		l, err := middleware.New(test.c)
		assert.Nil(t, l)
		for _, want := range test.want {
			assert.ErrorContains(t, err, want)
		}
		assert.Panics(t, func() { middleware.Must(middleware.New(test.c)) })
	}
}

// Who adds a field takes another one back, or finds the noun that has both.
func TestAConfigAndARuleHaveFewFields(t *testing.T) {
	assert.LessOrEqual(t, reflect.TypeFor[middleware.Config]().NumField(), 14)
	assert.LessOrEqual(t, reflect.TypeFor[middleware.Rule]().NumField(), 15)
}

func TestAConfigNeedsARuleOnlyIfItRefusesNothingElse(t *testing.T) {
	rule := middleware.Rule{Name: "r", Key: keyfunc.Global, Limit: limiter.PerHour(1)}
	for name, config := range map[string]middleware.Config{
		"Bans":          {Bans: middleware.Bans{List: bansOf(t), Keys: []keyfunc.Func{keyfunc.IP()}}},
		"ByTier":        {ByTier: map[string][]middleware.Rule{"free": {rule}}},
		"ByRoute":       {ByRoute: map[string][]middleware.Rule{"/": {rule}}},
		"Default":       {Default: []middleware.Rule{rule}},
		"all that fits": {Rules: named(62), ByTier: map[string][]middleware.Rule{"free": {rule}}, ByRoute: map[string][]middleware.Rule{"/": {{Name: "s", Key: keyfunc.Global, Limit: rule.Limit}}}},
	} {
		_, err := middleware.New(config)
		assert.NoError(t, err, name)
	}
}

// named is so many rules.
func named(n int) (rules []middleware.Rule) {
	for i := range n {
		rules = append(rules, middleware.Rule{Name: strconv.Itoa(i), Key: keyfunc.Global, Limit: limiter.PerHour(1)})
	}
	return rules
}

func TestAConfigCanBeChangedAfterNew(t *testing.T) {
	phase.Test(t, func(t *testing.T) {
		tiers := middleware.Tiers{"premium": limiter.PerHour(2)}
		rules := []middleware.Rule{{Name: "a", Key: keyfunc.Global, Limit: limiter.PerHour(1), Tiers: tiers}}
		l, err := middleware.New(middleware.Config{Rules: rules})
		require.NoError(t, err)
		rules[0] = middleware.Rule{}
		delete(tiers, "premium")
		w := serve(l.Handler(ok), request().WithContext(middleware.WithTier(t.Context(), "premium")))
		assert.Equal(t, "2", w.Header().Get("X-RateLimit-Limit"))

		c := middleware.Config{Headers: bothHeaders, Bans: middleware.Bans{List: bansOf(t), Keys: []keyfunc.Func{keyfunc.IP()}}, Default: []middleware.Rule{{Name: "d", Key: keyfunc.Global, Limit: limiter.PerHour(3)}},
			ByTier: map[string][]middleware.Rule{"premium": {{Name: "t", Key: keyfunc.Global, Limit: limiter.PerHour(4)}}}, ByRoute: map[string][]middleware.Rule{"/a": {{Name: "r", Key: keyfunc.Global, Limit: limiter.PerHour(5)}}}}
		l = limited(t, c)
		require.NoError(t, c.Bans.List.Ban(t.Context(), "192.0.2.1", 0))
		clear(c.ByTier)
		clear(c.ByRoute)
		c.Default[0], c.Bans.Keys[0] = middleware.Rule{}, keyfunc.User
		assert.Equal(t, 403, serve(l.Handler(ok), request()).Code)
		w = serve(l.Handler(ok), request(from("192.0.2.2:1"), routedBy("/a"), inTier("premium")))
		assert.Contains(t, w.Header().Get("RateLimit-Policy"), `"t";q=4;w=3600, "r";q=5;w=3600`)
		assert.Equal(t, "3", serve(l.Handler(ok), request(from("192.0.2.2:1"))).Header().Get("X-RateLimit-Limit"))
	})
}
