package simulate

import (
	"fmt"
	"math/rand/v2"
	"os"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weirgo/weir/internal/phase"
	"github.com/weirgo/weir/keyfunc"
	"github.com/weirgo/weir/middleware/rules"
)

// Rules files that are made up have every field in every company. Those that a file may not have
// together are made up anew.
func TestASimulationIsAServiceWhateverItsRules(t *testing.T) {
	entries := traffic(250)
	for i := range entries {
		entries[i].Took *= time.Duration(1 + 4*(i/7%2)) // so that more are in progress at once
	}
	files := 10
	if os.Getenv("CI") != "" {
		files = 40
	}
	var allRefused atomic.Int64
	for seed := range files {
		text, tries := "", 0
		for random := rand.New(rand.NewPCG(1, uint64(seed))); ; tries++ {
			require.Less(t, tries, 500, "hardly any file is one")
			text = madeUp(random)
			if _, err := rules.Parse([]byte(text), rules.Options{Keys: map[string]keyfunc.Func{"tenant": tenant}}); err == nil {
				break
			}
		}
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			t.Parallel()
			phase.Test(t, func(t *testing.T) {
				t.Logf("%d tries\n%s", tries, text)
				allRefused.Add(int64(compare(t, text, fromNow(entries))))
			})
		})
	}
	t.Cleanup(func() {
		t.Logf("%d of %d requests refused", allRefused.Load(), files*len(entries))
		if !t.Failed() {
			require.Positive(t, allRefused.Load())
		}
	})
}

// madeUp is a file, or hardly one.
func madeUp(random *rand.Rand) string {
	g := &generator{Rand: random}
	var file strings.Builder
	line := func(format string, args ...any) { fmt.Fprintf(&file, format+"\n", args...) }
	line("version: 1")
	if g.some(8) {
		line("soft: {at: %d%%}", 50+g.IntN(40))
	}
	if g.some(12) {
		line("mode: shadow")
	}
	if g.some(4) {
		line("headers: {limit: X-Quota, reset: delta, send: %s}", g.one("legacy", "draft", "all"))
	}
	if g.some(4) {
		line("refusal: {status: %s, message: \"Again in {retry_after}.\"}", g.one("429", "503", "420"))
	}
	if g.some(3) {
		line("allow: {keys: [%s, 198.18.0.3], routes: [%q]}", g.one("user:1", "user:5"), g.one("GET /static/*", "POST /search"))
	}
	if g.some(3) {
		line("ban: {cidrs: [%s], keys: [\"user:2\"], status: %s}", g.one("198.18.0.7", "203.0.113.0/24"), g.one("403", "429"))
	}
	if g.some(2) {
		line("global: %s", g.rules("name"))
	}
	if g.some(3) {
		line("tiers:")
		line("  free: %s", g.rules("name"))
		line("  premium: %s", g.rule("name", 1))
	}
	line("endpoints:")
	for _, endpoint := range []string{"POST /login", "GET /articles/{id}", "/static/*", "a.example.org/*"} {
		if endpoint == "POST /login" || g.some(2) {
			line("  %q: %s", endpoint, g.rules(""))
		}
	}
	line("default: %s", g.rules(""))
	return file.String()
}

type generator struct {
	*rand.Rand
	names int
}

// some is true one time in n.
func (g *generator) some(n int) bool { return g.IntN(n) == 0 }

func (g *generator) one(of ...string) string { return of[g.IntN(len(of))] }

// rules are one, or several for the same requests.
func (g *generator) rules(name string) string {
	if !g.some(3) {
		return g.rule(name, 0)
	}
	return "[" + g.rule(name, 0) + ", " + g.rule("name", 1) + "]"
}

func (g *generator) limit() string {
	return fmt.Sprintf("%d/%s", 1+g.IntN(12)*g.IntN(4), g.one("1s", "10s", "1m", "10m", "1h"))
}

func (g *generator) rule(name string, nth int) string {
	var fields []string
	field := func(format string, args ...any) { fields = append(fields, fmt.Sprintf(format, args...)) }
	if name != "" {
		g.names++
		field("name: r%d", g.names)
	}
	hasLimit := !g.some(5)
	switch {
	case !hasLimit:
	case g.some(4):
		field("limits: [%s, %s]", g.limit(), g.limit())
	default:
		field("limit: %s", g.limit())
		switch g.IntN(6) {
		case 0:
			field("algorithm: leaky_bucket, burst: %d", 1+g.IntN(5))
		case 1:
			field("algorithm: token_bucket, burst: %d", 1+g.IntN(30))
		case 2:
			field("algorithm: %s", g.one("fixed_window", "sliding_log"))
		}
	}
	if !hasLimit || g.some(4) {
		field("concurrency: %d", 1+g.IntN(3))
	}
	if g.some(2) {
		field("key: %s", g.one("ip", "user|ip", "host", `"header:X-Device|ip"`, "tenant|ip", `"cookie:session|ip"`, `[ip, "query:none"]`, "user", "tenant"))
		field("no_key: %s", g.one("skip", "unauthorized", "bad_request", "count"))
	}
	if g.some(5) {
		field("cost: %s", g.one("2", "{header: X-Cost, missing: 2}", "{header: X-Cost, missing: 3, settle: true}"))
	}
	if g.some(4) {
		field("counts: %s", g.one("[401, 403]", `"!5xx"`, "2xx"))
		if g.some(2) {
			field("when: after")
		}
	}
	if g.some(4) {
		of := g.one("", ", of: outcomes")
		field("escalate: {after: %d, within: %s, ban: %s, factor: %d, max: 1d%s}", 1+g.IntN(6), g.one("10s", "10m", "1h"), g.one("5s", "2m", "1h"), 1+g.IntN(9), of)
	}
	if g.some(5) {
		field("soft: {at: %d%%}", 50+g.IntN(45))
	}
	if g.some(5) {
		field("refusal: {status: %s, title: Busy}", g.one("429", "503"))
	}
	if g.some(6) {
		field("overrides: {\"user:%d\": %s, 198.18.0.%d: %s}", g.IntN(7), g.limit(), g.IntN(30), g.limit())
	}
	if g.some(6) {
		field("tiers: {free: {limit: %s}, premium: {limit: %s}}", g.limit(), g.limit())
	}
	if g.some(8) {
		field("mode: %s", g.one("shadow", "off", "deny"))
	}
	return "{" + strings.Join(fields, ", ") + "}"
}
