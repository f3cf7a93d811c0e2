// Package missing notices that the first requests all lack something which clients usually have, such as a route.
package missing

import (
	"net/http"
	"path"
	"slices"
	"strings"
	"sync/atomic"
)

// enough is how many requests must lack it. Whoever tries a new rule sends as many.
const enough = 5

// A Detector notices that it is missing. It is for many goroutines.
type Detector struct {
	found   atomic.Bool
	lacking atomic.Int32
}

// Found notes that a request has it.
func (d *Detector) Found() {
	if !d.found.Load() {
		d.found.Store(true)
	}
}

// Lacks notes that r lacks it. It returns true once: for the fifth request, if none has had it.
func (d *Detector) Lacks(r *http.Request) bool {
	return !d.found.Load() && d.lacking.Load() < enough && !isProbe(r) && d.lacking.Add(1) == enough
}

// isProbe reports whether r is probably a health check. Those come first, directly from the load balancer, and have
// no client. Many have a User-Agent of any program, or none, and HAProxy's have no Host.
func isProbe(r *http.Request) bool {
	agent := strings.ToLower(r.UserAgent())
	if agent == "" && r.Host == "" && !r.ProtoAtLeast(1, 1) {
		return true
	}
	for _, begins := range [...]string{"kube-probe/", "googlehc/", "envoy/hc", "load balancer agent"} {
		if strings.HasPrefix(agent, begins) {
			return true
		}
	}
	return strings.Contains(agent, "health") || r.URL != nil && isProbed(path.Base(r.URL.Path))
}

// isProbed reports whether the last segment of a path is one of those that health checks ask for.
func isProbed(segment string) bool {
	segment = strings.ToLower(strings.Trim(segment, "_-"))
	return strings.HasPrefix(segment, "health") ||
		slices.Contains([]string{"alive", "live", "liveness", "livez", "ping", "readiness", "ready", "readyz", "up"}, segment)
}
