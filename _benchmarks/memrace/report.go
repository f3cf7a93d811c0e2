package main

import (
	"fmt"
	"io"
	"slices"

	"github.com/weirgo/weir/benchmarks/race"
)

func (m *benchmark) report(w io.Writer) {
	fmt.Fprintf(w, "# Limiters that count in memory\n\n- %s\n", race.Machine())
	fmt.Fprintf(w, "- medians over %d rounds of about %v; ratios are medians of each round's\n", m.Rounds, m.Slice)
	fmt.Fprintf(w, "- ns/op is the time that n calls took by n, however many goroutines made them\n\n")
	for _, e := range contestants {
		if len(m.Only) == 0 || slices.Contains(m.Only, e.name) {
			fmt.Fprintf(w, "- **%s**: %s%s\n", e.name, e.about, version(e.module))
		}
	}
	var attacks []race.Case
	for _, c := range m.cases {
		metrics, comparisons := []race.Metric{perOp, allocs}, m.comparisons(c)
		switch c.Name {
		case flooded, besieged:
			attacks = append(attacks, c)
			continue
		case memory:
			metrics, comparisons = []race.Metric{bytesPerKey, collection, excess}, nil
		}
		if m.anyErrors(c) {
			metrics = append(metrics, race.Errors)
		}
		fmt.Fprintf(w, "\n### %s%v\n\n", title(c), c)
		m.results.WriteCase(w, c, metrics, comparisons)
	}
	m.reportAttacks(w, attacks)
	if len(m.notes) > 0 {
		fmt.Fprintf(w, "\n### Not measured\n\n")
		for _, note := range m.notes {
			fmt.Fprintf(w, "- %s\n", note)
		}
	}
	fmt.Fprintf(w, "\n### Goals\n\nThe fastest peer is that of the case. In parentheses: the lowest and the highest ratio of a single round.\n")
	m.results.WriteGoals(w, m.goals())
}

// anyErrors says whether a contestant gave up on a decision.
func (m *benchmark) anyErrors(c race.Case) bool {
	return slices.ContainsFunc(contestants, func(e contestant) bool {
		n, _ := m.results.Figure(e.name, c, race.Errors)
		return n > 0
	})
}

// title is what goes before the case itself.
func title(c race.Case) string {
	if c.Keys == 1 && (c.Name == allowed || c.Name == refused) {
		return "hot key, "
	}
	return ""
}

func (m *benchmark) fastestPeer(c race.Case) string {
	name, _ := m.results.Lowest(c, perOp, peer)
	return name
}

func (m *benchmark) comparisons(c race.Case) []race.Comparison {
	switch c.Name {
	case rules:
		return []race.Comparison{{Title: "× " + weir, To: weir}}
	case requests:
		return []race.Comparison{{Title: "× " + goLimiter, To: goLimiter}, {Title: "× " + echoStore, To: echoStore}}
	}
	fastest := m.fastestPeer(c)
	return []race.Comparison{{Title: "× " + fastest, To: fastest}, {Title: "× " + floor, To: floor}}
}

func (m *benchmark) reportAttacks(w io.Writer, attacks []race.Case) {
	if len(attacks) == 0 {
		return
	}
	fmt.Fprintf(w, "\n### A flood of new keys into weir's store, MaxKeys %d\n\n", maxKeys)
	fmt.Fprintf(w, "The customer has %d keys. %s: the keys that fill the store came once. %s: they are being refused.\n\n", customerKeys, flooded, besieged)
	header, rows := []string{""}, make([][]string, len(attackMetrics))
	for i, metric := range attackMetrics {
		rows[i] = []string{string(metric)}
	}
	for _, c := range attacks {
		header = append(header, c.String())
		for i, metric := range attackMetrics {
			figure, _ := m.results.Figure(weir, c, metric)
			rows[i] = append(rows[i], race.Number(figure))
		}
	}
	race.WriteTable(w, header, rows)
}

// goals are what weir is meant to reach.
func (m *benchmark) goals() []race.Goal {
	var goals []race.Goal
	for _, c := range m.cases {
		serial := c.Goroutines == 1
		atMost := func(metric race.Metric, to string, bound float64) {
			goals = append(goals, race.Goal{Metric: metric, Case: c, Of: weir, To: to, Bound: race.AtMost(bound)})
		}
		pick := func(serially, parallel float64) float64 {
			if serial {
				return serially
			}
			return parallel
		}
		switch c.Name {
		case allowed:
			switch {
			case c.Keys == 1:
				atMost(perOp, m.fastestPeer(c), pick(0.60, 0.65))
			case c.Keys < 1_000_000:
				atMost(perOp, m.fastestPeer(c), 0.60)
			default:
				atMost(perOp, m.fastestPeer(c), pick(0.55, 0.50))
			}
			atMost(allocs, "", 0)
		case refused:
			if c.Keys == 1 {
				atMost(perOp, m.fastestPeer(c), pick(0.55, 0.25))
			}
			atMost(allocs, "", 0)
		case newKeys:
			atMost(perOp, m.fastestPeer(c), 0.55)
		case memory:
			atMost(bytesPerKey, "", 36)
			atMost(excess, "", 1.5)
		case requests:
			atMost(perOp, goLimiter, 0.30)
			atMost(perOp, echoStore, 1.2)
			atMost(allocs, "", 2)
		case rules:
			goals = append(goals, race.Goal{Metric: perOp, Case: c, Of: weirThreeRules, To: weir, Bound: race.AtMost(2)})
		case flooded, besieged:
			atMost(heapRatio, "", 1.05)
			atMost(p99Ratio, "", 3)
			atMost(turnedAway, "", 0)
			atMost(forgotten, "", 0)
		}
	}
	return goals
}

// version is a module's, as " (path version)".
func version(module string) string {
	if module == "" || module == weirModule {
		return ""
	}
	for _, v := range race.Versions(func(path string) bool { return path == module }) {
		return " (" + v + ")"
	}
	return ""
}

func versions() []string { return race.Versions(isPeers) }

// isPeers reports whether a module is that of a contestant other than Weir.
func isPeers(path string) bool {
	return path != weirModule && slices.ContainsFunc(contestants, func(e contestant) bool { return e.module == path })
}
