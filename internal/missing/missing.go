// Package missing notices that the first requests all lack something which clients usually have, such as a route.
package missing

import (
	"net/http"
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
// no client.
func isProbe(r *http.Request) bool {
	agent := r.UserAgent()
	return strings.HasPrefix(agent, "kube-probe/") || strings.HasPrefix(agent, "GoogleHC/") || strings.HasPrefix(agent, "Envoy/HC") ||
		strings.Contains(agent, "Health")
}
