package main

import (
	"cmp"
	"fmt"
	"io"
	"runtime"
	"slices"
	"strings"

	"github.com/weirgo/weir/benchmarks/peers"
	"github.com/weirgo/weir/benchmarks/race"
)

var (
	serverMetrics = []race.Metric{aboveBare, fieldsCPU, ownShare, serverCPU, perSecond}
	loopMetrics   = []race.Metric{perRequest, cpuPerRequest, allocs}
)

func (s settings) report(w io.Writer, results *race.Results) {
	fmt.Fprintf(w, "# Limiters in HTTP servers\n\n")
	fmt.Fprintf(w, "- %s on %s/%s, GOMAXPROCS %d\n", runtime.Version(), runtime.GOOS, runtime.GOARCH, runtime.GOMAXPROCS(0))
	fmt.Fprintf(w, "- medians over %d rounds of about %v; ratios are medians of each round's\n", s.Rounds, s.Slice)
	fmt.Fprintf(w, "- %s and %s: CPU time of the server per request, asked by a client in another process on the same machine; a goroutine is a connection\n\n", allowed, refused)
	for _, e := range contestants {
		if len(s.Only) == 0 || slices.Contains(s.Only, e.Name) {
			fmt.Fprintf(w, "- **%s**: %s%s\n", e.Name, e.About, version(e.Module, " (", ")"))
		}
	}
	for _, kind := range s.kinds {
		c, metrics := s.caseOf(kind), serverMetrics
		if strings.HasSuffix(kind, inProcess) {
			metrics = loopMetrics
		}
		fmt.Fprintf(w, "\n### %v\n\n", c)
		results.WriteCase(w, c, metrics, []race.Comparison{{Title: "× " + peers.GoLimiter, To: peers.GoLimiter}})
	}
	fmt.Fprintf(w, "\n### Goals\n\nIn parentheses: the lowest and the highest ratio of a single round.\n")
	results.WriteGoals(w, s.goals(results))
}

// goals are what weir is meant to reach.
func (s settings) goals(results *race.Results) (goals []race.Goal) {
	for _, kind := range s.kinds {
		c := s.caseOf(kind)
		atMost := func(m race.Metric, of, to string, bound float64) {
			goals = append(goals, race.Goal{Metric: m, Case: c, Of: of, To: to, Bound: race.AtMost(bound)})
		}
		switch kind {
		case allowed:
			atMost(ownShare, weir, "", 0.06)
		case refused:
			lowest, _ := results.Lowest(c, aboveBare, isPeer)
			best := cmp.Or(lowest, peers.GoLimiter)
			atMost(ownShare, weir, "", 0.05)
			atMost(aboveBare, weir, best, 1.5)
			atMost(aboveBare, weirLegacy, best, 1.1)
		case allowed + inProcess:
			atMost(perRequest, weir, peers.GoLimiter, 0.75)
			atMost(allocs, weir, "", 1)
			atMost(perRequest, weirLegacy, peers.GoLimiter, 0.6)
			atMost(perRequest, weirLean, peers.Echo, 1.1)
			atMost(allocs, weirLean, "", 0)
			atMost(perRequest, weirThreeRules, weir, 1.6)
		case refused + inProcess:
			atMost(perRequest, weir, peers.GoLimiter, 0.7)
			atMost(allocs, weir, "", 3)
			atMost(perRequest, weirBan, weir, 0.8)
		}
		if strings.HasSuffix(kind, inProcess) {
			atMost(perRequest, weirGin, weir, 1.1)
			atMost(perRequest, weirEcho, weir, 1.1)
		}
	}
	return goals
}

// version is a module's with its path, between two texts; empty where there is none.
func version(module, before, after string) string {
	if v := peers.Version(module); v != "" {
		return before + module + " " + v + after
	}
	return ""
}

func versions() (list []string) {
	for _, e := range contestants {
		if v := version(e.Module, "", ""); v != "" && !slices.Contains(list, v) {
			list = append(list, v)
		}
	}
	return list
}
