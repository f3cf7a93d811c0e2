package main

import "github.com/weirgo/weir/benchmarks/race"

// goals are what weir is meant to reach, where so many keys are many. Those of contestants
// and cases that do not run stay open.
func goals(keys int) []race.Goal {
	many := func(goroutines int) race.Case { return race.Case{Goroutines: goroutines, Keys: keys} }
	hot := func(goroutines int) race.Case { return race.Case{Goroutines: goroutines, Keys: 1} }
	var goals []race.Goal
	compare := func(m race.Metric, c race.Case, of, to string, b race.Bound) {
		goals = append(goals, race.Goal{Metric: m, Case: c, Of: of, To: to, Bound: b})
	}

	compare(race.P50, many(1), weir, ownScript, race.AtMost(1.1))
	compare(race.P50, many(1), weir, redisRate, race.AtMost(1))

	compare(race.PerSecond, many(8), weir, redisRate, race.AtLeast(1.4))
	compare(race.PerSecond, many(64), weir, redisRate, race.AtLeast(3.5))
	compare(race.PerSecond, many(256), weir, redisRate, race.AtLeast(6))
	compare(race.PerSecond, many(64), weir, rueidisGCRA, race.AtLeast(1.3))
	compare(race.PerSecond, many(256), weir, rueidisGCRA, race.AtLeast(1.6))

	compare(race.PerSecond, hot(64), weir, redisRate, race.AtLeast(8))
	for _, goroutines := range []int{1, 8, 64, 256} {
		compare(race.Errors, hot(goroutines), weir, "", race.AtMost(0))
	}

	for _, goroutines := range []int{64, 256} {
		for _, c := range []race.Case{many(goroutines), hot(goroutines)} {
			compare(redisCPU, c, weir, redisRate, race.AtMost(0.35))
			compare(race.ClientCPU.Metric, c, weir, redisRate, race.AtMost(0.25))
		}
	}

	compare(race.P50, many(1), weirThreeRules, weir, race.AtMost(1.6))
	compare(race.PerSecond, many(64), weir, weirThreeRules, race.AtMost(1.6))

	compare(race.PerSecond, many(256), weirSettles, weir, race.AtLeast(0.45))
	compare(race.P99, many(64), weirSettles, weir, race.AtMost(2.2)) // as the decisions/s: what is settled takes no round trip

	compare(race.PerSecond, many(256), weirPlaces, weir, race.AtLeast(0.45))
	compare(race.PerSecond, many(256), weirPlaces, sortedSet, race.AtLeast(2))
	return goals
}
