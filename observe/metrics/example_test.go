package metrics_test

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"

	"github.com/weirgo/weir/keyfunc"
	"github.com/weirgo/weir/limiter"
	"github.com/weirgo/weir/middleware"
	"github.com/weirgo/weir/observe/metrics"
)

// A statsd writes a table's metrics in the format of StatsD. Call export every ten seconds, with a
// connection over UDP.
type statsd struct {
	table *metrics.Table
	last  map[string]float64 // of counters
}

func (s *statsd) export(to io.Writer) {
	s.table.Read(func(m *metrics.Metric, value float64, labels ...string) {
		name := strings.Join(append([]string{m.OpenTelemetry}, labels...), ".")
		if m.Gauge {
			fmt.Fprintf(to, "%s:%g|g\n", name, value)
		} else if added := value - s.last[name]; added != 0 { // StatsD counts what was added
			fmt.Fprintf(to, "%s:%g|c\n", name, added)
			s.last[name] = value
		}
	})
}

// An exporter to StatsD.
func ExampleTable_Read() {
	table := metrics.Must(metrics.New(metrics.Options{}))
	limits := middleware.Must(middleware.New(middleware.Config{Observer: table, Rules: []middleware.Rule{
		{Name: "ip", Key: keyfunc.IP(), Limit: limiter.PerHour(2)},
	}}))
	handler := limits.Handler(http.NotFoundHandler())
	for range 3 {
		handler.ServeHTTP(httptest.NewRecorder(), httptest.NewRequest("GET", "/", nil))
	}
	exporter := statsd{table: table, last: map[string]float64{}}
	exporter.export(os.Stdout)
	// Unordered output:
	// rate_limit.outcomes.allowed:2|c
	// rate_limit.outcomes.refused:1|c
	// rate_limit.requests.ip.allowed.:2|c
	// rate_limit.requests.ip.refused.:1|c
	// rate_limit.exceeded.ip:1|c
}
