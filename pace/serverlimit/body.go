package serverlimit

import (
	"net/http"
	"regexp"
	"strings"
	"time"
)

// readBody reads what two providers say only in the bodies of errors. Bodies of other providers are
// ignored. A nil body has not been read yet.
func (said *Reading) readBody(r *http.Response, body []byte) {
	h := r.Header
	switch {
	case len(h["X-Github-Request-Id"]) > 0:
		if r.StatusCode == http.StatusForbidden && !said.Limited {
			said.Limited = gitHubLimit.Match(body)
			said.BodyTells = body == nil
		}
		if said.Limited && said.Wait == 0 {
			said.Wait, said.Unsure = time.Minute, time.Second // as GitHub's documentation requires
		}
	case said.Limited && said.Wait > 0:
	case said.Limited && strings.HasPrefix(h.Get("Content-Type"), "application/json"):
		said.BodyTells = body == nil
		if delay := googleDelay.FindSubmatch(body); delay != nil {
			if d, err := time.ParseDuration(string(delay[1])); err == nil {
				said.Wait, said.Unsure = min(d, MaxWait), precisionOf(d)
			}
		}
	}
}

var (
	// The second is in the documentation_url, the third what it was called before.
	gitHubLimit = regexp.MustCompile(`secondary rate limit|secondary-rate-limit|abuse detection`)

	// googleDelay is how google.rpc.RetryInfo says how long to wait, in JSON.
	googleDelay = regexp.MustCompile(`"retryDelay"\s*:\s*"([0-9]{1,9}(?:\.[0-9]{1,9})?s)"`)
)
