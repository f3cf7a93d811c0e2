package dashboard

import (
	"time"

	"github.com/weirgo/weir/internal/operate"
	"github.com/weirgo/weir/limiter/failover"
)

// A serverView is a server of the store that does not answer.
type serverView struct {
	Server   string `json:"server,omitempty"` // empty: not known
	Cause    string `json:"cause,omitempty"`
	Unusable bool   `json:"unusable,omitempty"` // by a wrong configuration, which does not pass by itself
	Since    int64  `json:"since"`              // Unix milliseconds
}

// A mark is a moment on the chart.
type mark struct {
	At   int64  `json:"at"` // Unix milliseconds
	Text string `json:"text"`
	Bad  bool   `json:"bad,omitempty"`
}

// downOf returns the servers that do not answer, as far as the store knows.
func downOf(health failover.Stats) (down []serverView) {
	if !health.Degraded {
		return nil
	}
	last := map[string]failover.Event{}
	for _, e := range health.Events {
		last[e.Server] = e
	}
	for _, e := range health.Events {
		if !e.Degraded || last[e.Server].At != e.At {
			continue
		}
		s := serverView{Server: cut(e.Server), Unusable: e.Unusable, Since: e.At.UnixMilli()}
		if e.Err != nil {
			s.Cause = cut(e.Err.Error())
		}
		down = append(down, s)
	}
	return down
}

// marksOf returns the marks of the last minutes.
func marksOf(health failover.Stats) (marks []mark) {
	for _, e := range health.Events {
		if time.Since(e.At) > span*time.Second {
			continue
		}
		m := mark{At: e.At.UnixMilli(), Bad: e.Degraded}
		switch {
		case e.Degraded && e.Unusable:
			m.Text = "store cannot be used"
		case e.Degraded:
			m.Text = "store down"
		default:
			m.Text = "store back after " + operate.Duration(e.For)
		}
		marks = append(marks, m)
	}
	return marks
}
