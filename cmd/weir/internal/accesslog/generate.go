package accesslog

import (
	"net/http"

	"github.com/weirgo/weir/internal/traffic"
)

// Generate makes up what a log says about n requests to a website, for tests.
func Generate(seed uint64, n int) []Entry {
	entries := make([]Entry, 0, n)
	for _, r := range traffic.Generate(seed, n) {
		entries = append(entries, Entry{
			At: r.At, Client: r.Client, Method: r.Method, Target: r.Target, UserAgent: r.UserAgent, Status: http.StatusOK,
		})
	}
	return entries
}
