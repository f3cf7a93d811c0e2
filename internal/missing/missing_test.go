package missing_test

import (
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/weirgo/weir/internal/missing"
)

func TestHealthChecksLackNothing(t *testing.T) {
	asked := func(path, agent string) *http.Request {
		r := httptest.NewRequest(http.MethodGet, path, nil)
		r.Header.Set("User-Agent", agent)
		return r
	}
	bare := httptest.NewRequest(http.MethodOptions, "/", nil) // HAProxy's option httpchk
	bare.Host, bare.Proto, bare.ProtoMinor = "", "HTTP/1.0", 0
	for name, c := range map[string]struct {
		r     *http.Request
		lacks bool
	}{
		"kubelet":             {asked("/", "kube-probe/1.34"), false},
		"AWS":                 {asked("/", "ELB-HealthChecker/2.0"), false},
		"Azure":               {asked("/", "Load Balancer Agent"), false},
		"a proxy in Go":       {asked("/healthz", "Go-http-client/1.1"), false},
		"curl in a container": {asked("/api/_health", "curl/8.14.1"), false},
		"a check of Rails":    {asked("/up", ""), false},
		"HAProxy":             {bare, false},
		"a browser":           {asked("/", "Mozilla/5.0"), true},
		"no User-Agent":       {asked("/", ""), true},
		"a path with more":    {asked("/health/insurance", "Mozilla/5.0"), true},
		"no URL":              {&http.Request{Host: "a.example"}, true},
	} {
		t.Run(name, func(t *testing.T) {
			var d missing.Detector
			var said []int
			for i := range 10 {
				if d.Lacks(c.r) {
					said = append(said, i)
				}
			}
			assert.Equal(t, map[bool][]int{true: {4}}[c.lacks], said)
		})
	}
}

func TestWhatARequestHadIsNotMissing(t *testing.T) {
	var d missing.Detector
	r := httptest.NewRequest(http.MethodGet, "/", nil)
	for range 4 {
		assert.False(t, d.Lacks(r))
	}
	d.Found()
	for range 10 {
		assert.False(t, d.Lacks(r))
	}
}
