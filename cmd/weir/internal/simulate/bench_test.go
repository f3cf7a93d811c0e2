package simulate

import (
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weirgo/weir/cmd/weir/internal/accesslog"
)

// What a line costs, from the text of a log to what is counted. The goal is 300,000 lines/s on one
// core.
func BenchmarkLog(b *testing.B) {
	var combined, caddy strings.Builder
	const lines = 200_000
	for _, e := range generate(1, lines) {
		const agent = "Mozilla/5.0 (X11; Linux x86_64; rv:26.0) Gecko/20100101 Firefox/26.0"
		fmt.Fprintf(&combined, "%s - - [%s] \"%s %s HTTP/1.1\" 200 5120 \"https://example.org/\" %q\n",
			e.Client, e.Time().UTC().Format("02/Jan/2006:15:04:05 -0700"), e.Method, e.Target, agent)
		fmt.Fprintf(&caddy, `{"level":"info","ts":%.6f,"logger":"http.log.access","msg":"handled request","request":{"remote_ip":%q,"remote_port":"41342","client_ip":%[2]q,"proto":"HTTP/2.0","method":%[3]q,"host":"example.org","uri":%[4]q,"headers":{"User-Agent":[%[5]q],"Accept":["*/*"]}},"bytes_read":0,"user_id":"","duration":0.0009,"size":10900,"status":200}`+"\n",
			float64(e.At)/1e6, e.Client, e.Method, e.Target, agent)
	}
	for name, log := range map[string]string{"combined": combined.String(), "caddy": caddy.String()} {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			b.SetBytes(int64(len(log) / lines))
			for n := b.N; n > 0; {
				s := simulate(b, "version: 1\nendpoints: {\"POST /login\": 10/1m}\ndefault: 60/1m\n")
				tally := NewTally(s.Rules())
				r, err := accesslog.NewReader(strings.NewReader(log), accesslog.Options{})
				require.NoError(b, err)
				for ; n > 0; n-- {
					e, err := r.Next()
					if err != nil {
						break
					}
					tally.Add(e, e.At, s.Do(e, e.At))
				}
			}
			b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "lines/s")
		})
	}
}
