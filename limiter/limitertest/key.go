package limitertest

import (
	"fmt"
	"strings"

	"github.com/weirgo/weir/limiter"
)

// keys test that clients are told apart.
var keys = []testCase{
	{
		name:   "rules and tiers count separately",
		why:    "The names of the rule and the tier and the key identify a counter. Joined, they must not collide.",
		limits: samples,
		run: func(t *trial) {
			var charges []limiter.Charge
			for _, names := range [][3]string{
				{"a", "", "k"}, {"b", "", "k"}, {"a", "a", "k"}, {"a", "b", "k"}, {"b", "a", "k"},
				{"ab", "", "k"}, {"a", "", "bk"}, {"ab", "c", "k"}, {"a", "bc", "k"}, {"abc", "", "k"},
				{"a", "", "b:k"}, {"a:b", "", "k"}, {"a", "b", ":k"}, {"a/b", "", "k"}, {"a", "b", "/k"}, {"a", "", "b/k"},
				{"a", "", ""}, {"a", "k", ""}, {"ak", "", ""}, {"a", "", "\x00k"}, {"A", "", "k"}, {"a", "", "K"},
				{"a", "", "a"}, {"{a}", "", "k"}, {"a", "{k}", ""}, {"a|b", "", "k"}, {"a", "", "|b|k"},
			} {
				charges = append(charges, limiter.Charge{Quota: t.named(names[0], names[1], t.limit), Key: names[2], Cost: 1})
			}
			t.distinct(charges)
		},
	},
	{
		name: "a key is any bytes",
		why:  "All bytes of a key count, whatever they are and however many. Hash the key if the length of the store's keys is limited.",
		run: func(t *trial) {
			q := t.quota(samples[0])
			long := strings.Repeat("k", 64<<10)
			var charges []limiter.Charge
			for _, key := range []string{
				"", " ", "  ", "\x00", "\x00\x00", "a", "a\x00", "\x00a", "a\x00b", "a\n", "a\r\n", "A", "a ", " a",
				"\xff", "\xfe\xff", "\xc3\x28", "\ufffd", "é", "e\u0301", "{", "}", "{}", "{a}", "{a}b", "{b}a", "a:b", "a::b",
				"*", "?", "[a]", "%", "%s", `\`, `"`, "'", "');--", "${a}", "nil", "null", "0", "00",
				long, long + "k", long[1:], "x" + long[1:], long[1:] + "x",
				long[:64], long[:63] + "x", long[:255], long[:256], long[:257], long[:4096], long[:4095] + "x",
			} {
				charges = append(charges, limiter.Charge{Quota: q, Key: key, Cost: 1})
			}
			t.distinct(charges)
		},
	},
	{
		name: "thousands of keys count separately",
		why:  "Keys collide if the store hashes them to fewer than 64 good bits.",
		run: func(t *trial) {
			q := t.quota(samples[1])
			for round := range int64(2) {
				for first := 0; first < 3000; first += limiter.MaxCharges {
					var charges []limiter.Charge
					for i := range limiter.MaxCharges {
						charges = append(charges, limiter.Charge{Quota: q, Key: fmt.Sprint("key ", first+i), Cost: 1})
					}
					for i, d := range t.decide(charges...) {
						if want := q.Capacity() - 1 - round; !d.Allowed || d.Remaining != want {
							t.broken("event %d of key %d: the decision is %+v, want it admitted with Remaining %d", round+1, first+i, d, want)
						}
					}
				}
			}
		},
	},
}

// distinct charges different costs to different keys, and then checks what remains of each.
func (t *trial) distinct(charges []limiter.Charge) {
	t.Helper()
	cost := func(i int, q *limiter.Quota) int64 { return int64(i)%q.Capacity() + 1 }
	for i, c := range charges {
		d := t.look(c.Quota, c.Key)
		if d.Remaining != d.Limit {
			t.broken("%s was never charged, and %d of %d remain: it collides with another key", describe(charges[i:i+1]), d.Remaining, d.Limit)
		}
		t.take(c.Quota, c.Key, cost(i, c.Quota))
	}
	for i, c := range charges {
		d := t.look(c.Quota, c.Key)
		if want := c.Quota.Capacity() - cost(i, c.Quota); d.Remaining != want {
			t.broken("%d units were taken for %s, and %d of %d remain, want %d: it collides with another key",
				cost(i, c.Quota), describe(charges[i:i+1]), d.Remaining, d.Limit, want)
		}
	}
}
