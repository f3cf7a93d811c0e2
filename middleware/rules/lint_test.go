package rules_test

import (
	"log/slog"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/weirgo/weir/middleware"
	"github.com/weirgo/weir/middleware/rules"
	"github.com/weirgo/weir/middleware/shed"
)

func TestWhatIsHardlyMeantIsWarnedOfWithItsPlace(t *testing.T) {
	for text, want := range map[string][]string{
		"default: {limit: 3/s, key: ip|user}": {
			`2:28: default.key: every request has ip, so that user is never reached: write it first`},
		"default: {limit: 3/s, key: [user, fingerprint | ip]}": {
			`2:28: default.key: a client that sends another fingerprint|ip each time has a new key each time: no limit holds it (one under global with key: ip would)`,
			`2:35: default.key.1: every request has fingerprint, so that ip is never reached: write it first`},
		"endpoints: {\"/users/$id\": 3/s, \"/it's\": 3/s, \"/{$}\": 3/s}": {
			`2:13: endpoints."/users/$id": has ' or $ in its path, and is for a route that is registered just so: write a parameter as {id}`,
			`2:32: endpoints."/it's": has ' or $ in its path, and is for a route that is registered just so: write a parameter as {id}`},
		"proxies: {trusted: [10.0.0.0/8]}\nallow: {cidrs: [192.0.2.0/24, 10.1.0.0/16]}\ndefault: 3/s": {
			`3:31: allow.cidrs.1: has the proxies of 10.0.0.0/8: a request without their header, which a client may be able to have dropped, is taken for the proxy's own and never limited`},
		"default: {limit: 3/s, key: user|ip}":                 nil,
		"allow: {routes: [\"GET /a\", \"/*\"]}\ndefault: 3/s": {`2:28: allow.routes.1: is for every request, so nothing is limited: name some routes, or write mode: shadow`},
		"ban: {cidrs: [10.1.0.0/16, 192.0.2.7]}\nallow: {cidrs: [10.0.0.0/8, 192.0.2.8, 192.0.2.0/24]}\ndefault: 3/s": {
			`3:17: allow.cidrs.0: has clients of 10.1.0.0/16, which is in ban.cidrs, and a ban goes first`,
			`3:40: allow.cidrs.2: has clients of 192.0.2.7/32, which is in ban.cidrs, and a ban goes first`},
		"default: {limit: 90/s, cost: {header: X-Tokens, max: 9}}": {
			`2:39: default.cost.header: is what the client says, and one that says less pays less: have your proxy set it, or settle what a request really cost`},
		"default: {limit: 90/s, cost: {header: X-Tokens, max: 9, settle: true}}": nil,
		"default: {limit: 3/s, key: \"apikey:X-Api-Key\"}": {
			`2:28: default.key: a client that sends another apikey each time has a new key each time: no limit holds it (one under global with key: ip would)`},
		"default: [{limit: 3/s, key: \"apikey:X-Api-Key\"}, {limit: 9/s, key: ip}]":               nil,
		"global: {limit: 9/s, key: ip}\ndefault: {limit: 3/s, key: \"apikey:X-Api-Key\"}":         nil,
		"global: {limit: 9/s, key: ip, mode: shadow}\ndefault: {limit: 3/s, key: \"header:X-A\"}": {`3:28: default.key: a client that sends another header:X-A each time has a new key each time: no limit holds it (one under global with key: ip would)`},
	} {
		var warnings []string
		for _, w := range parse(t, "version: 1\n"+text+"\n", rules.Options{}).Warnings() {
			warnings = append(warnings, w.String())
		}
		assert.ElementsMatch(t, want, warnings, text)
	}
}

// What is made of the rules warns when it is made; to read them first is not to warn twice.
func TestReadingRulesLogsNothing(t *testing.T) {
	var log strings.Builder
	o := rules.Options{Config: middleware.Config{Logger: slog.New(slog.NewTextHandler(&log, nil))}}
	r := parse(t, "version: 1\ndefault: {limits: [10/s, 600/m]}\n", o)
	assert.Empty(t, log.String())
	assert.Len(t, r.Warnings(), 1)
	_, err := middleware.New(r.Config())
	assert.NoError(t, err)
	assert.Equal(t, 1, strings.Count(log.String(), "weir-idle-limit"))
}

func TestARuleThatSkipsClientsThatNothingElseLimitsIsWarnedOf(t *testing.T) {
	const says = `is skip, and nothing else limits a request without a key here: a client that leaves the key out is unlimited. Give global a limit, or write no_key: share`
	for text, want := range map[string][]string{
		"default: {limit: 3/s, key: user, no_key: skip}":                                                                              {"2:42: default.no_key: " + says},
		"global: {limit: 3/s, key: user, no_key: skip}":                                                                               {"2:41: global.no_key: " + says},
		"tiers: {free: {limit: 3/s, key: user, no_key: skip}}":                                                                        {"2:47: tiers.free.no_key: " + says},
		"endpoints: {\"/a\": [{limit: 3/s, key: user, no_key: skip}, {limit: 9/s, key: bearer, no_key: skip}]}\ndefault: 9/s":         {`2:52: endpoints."/a".0.no_key: ` + says, `2:93: endpoints."/a".1.no_key: ` + says},
		"global: {limit: 9/s, mode: shadow}\ndefault: {limit: 3/s, key: user, no_key: skip}":                                          {"3:42: default.no_key: " + says},
		"global: 9/s\ndefault: {limit: 3/s, key: user, no_key: skip}":                                                                 nil,
		"global: {limit: 3/s, key: user, no_key: skip}\ndefault: 3/s":                                                                 nil,
		"tiers: {free: {limit: 3/s, key: user, no_key: skip}}\ndefault: 3/s":                                                          nil,
		"default: {limit: 3/s, key: user|ip, no_key: skip}":                                                                           nil,
		"default: {limit: 3/s, key: [user, ip], no_key: skip}":                                                                        nil,
		"default: [{limit: 3/s, key: user, no_key: skip}, {limit: 9/s, key: ip}]":                                                     nil,
		"default: [{limit: 3/s, key: user, no_key: skip, mode: shadow}]":                                                              nil,
		"endpoints: {\"/a\": [{limit: 3/s, key: user, no_key: skip}, {limit: 3/s, key: bearer, no_key: unauthorized}]}\ndefault: 1/s": nil,
	} {
		var warnings []string
		for _, w := range parse(t, "version: 1\n"+text+"\n", rules.Options{}).Warnings() {
			warnings = append(warnings, w.String())
		}
		assert.ElementsMatch(t, want, warnings, text)
	}
}

func TestAnExemptionOfAllRoutesFromOverloadIsWarnedOf(t *testing.T) {
	r := parse(t, "version: 1\noverload: {exempt: [\"/*\"]}\n", rules.Options{Overload: shed.FromRules})
	assert.Len(t, r.Warnings(), 1)
	assert.Equal(t, `2:21: overload.exempt.0: is for every request, so nothing is bounded: name some routes, or leave overload out`, r.Warnings()[0].String())
}
