package dashboard_test

import (
	"crypto/sha256"
	"encoding/base64"
	"fmt"
	"math"
	"net/http"
	"net/http/httptest"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/weirgo/weir/observe/dashboard"
)

func TestThePageIsClosedUnlessSomebodyIsAuthorized(t *testing.T) {
	s := start(t, dashboard.Options{})
	without := dashboard.Must(dashboard.New(dashboard.Options{Bans: s.bans}))
	refusing := start(t, dashboard.Options{Authorize: func(*http.Request) bool { return false }}).page
	for name, page := range map[string]*dashboard.Dashboard{"without Authorize": without, "refused by it": refusing} {
		for _, r := range []*http.Request{
			httptest.NewRequest("GET", "/", nil),
			httptest.NewRequest("HEAD", "/", nil),
			httptest.NewRequest("DELETE", "/", nil),
			accepting("application/json"),
			httptest.NewRequest("POST", "/", strings.NewReader(`{"action":"ban","key":"203.0.113.9"}`)),
		} {
			r.Header.Set("Content-Type", "application/json")
			w := httptest.NewRecorder()
			page.ServeHTTP(w, r)
			assert.Equal(t, http.StatusForbidden, w.Code, "%s: %s", name, r.Method)
			assert.NotContains(t, w.Body.String(), "script")
			assert.NotContains(t, w.Body.String(), "tenant")
		}
	}
	assert.True(t, s.bans.Empty())
}

func accepting(kind string) *http.Request {
	r := httptest.NewRequest("GET", "/ops/limits", nil)
	r.Header.Set("Accept", kind)
	return r
}

func anybodyLooks(r *http.Request) bool {
	return r.Method == http.MethodGet || r.Header.Get("X-Admin") != ""
}

func TestOneMayLookAndAnotherAct(t *testing.T) {
	s := start(t, dashboard.Options{Authorize: anybodyLooks})
	assert.False(t, s.figures().Acts)
	assert.True(t, start(t, dashboard.Options{}).figures().Acts)
	assert.Equal(t, http.StatusOK, s.send("GET", "/ops/limits", "192.0.2.1", ""))
	code, _ := s.do(`{"action":"ban","key":"203.0.113.9"}`)
	assert.Equal(t, http.StatusForbidden, code)
	assert.True(t, s.bans.Empty())
	code, _ = s.do(`{"action":"ban","key":"203.0.113.9"}`, func(r *http.Request) { r.Header.Set("X-Admin", "1") })
	assert.Equal(t, http.StatusOK, code)
	assert.False(t, s.bans.Empty())
}

func TestThePageIsWholeInItselfAndRunsNothingElse(t *testing.T) {
	page := dashboard.Must(dashboard.New(dashboard.Options{Authorize: anybody, Title: `</title><script>alert(1)</script>`}))
	w := httptest.NewRecorder()
	page.ServeHTTP(w, httptest.NewRequest("GET", "/", nil))
	html := w.Body.String()
	assert.Equal(t, "text/html; charset=utf-8", w.Header().Get("Content-Type"))

	assert.NotContains(t, html, "<script>alert", "a title is text")
	for _, link := range regexp.MustCompile(`https?://[^'" )]*`).FindAllString(html, -1) {
		assert.Equal(t, "http://www.w3.org/2000/svg", link, "a name, not an address")
	}
	assert.NotRegexp(t, `(?i)<[^>]+\s(on[a-z]+|style|src)=`, html, "handlers, styles and sources inside of elements")

	policy := w.Header().Get("Content-Security-Policy")
	assert.Contains(t, policy, "default-src 'none'")
	assert.Contains(t, policy, "frame-ancestors 'none'")
	assert.NotContains(t, policy, "unsafe")
	for _, tag := range []string{"style", "script"} {
		parts := regexp.MustCompile(`(?s)<`+tag+`>(.*?)</`+tag+`>`).FindAllStringSubmatch(html, -1)
		require.Len(t, parts, 1, tag)
		sum := sha256.Sum256([]byte(parts[0][1]))
		assert.Contains(t, policy, fmt.Sprintf("%s-src 'sha256-%s'", tag, base64.StdEncoding.EncodeToString(sum[:])))
	}
	assert.Equal(t, "no-store", w.Header().Get("Cache-Control"))
	assert.Equal(t, "nosniff", w.Header().Get("X-Content-Type-Options"))
	assert.Less(t, len(html), 96<<10)
}

func TestOtherMethodsAreToldWhatThereIs(t *testing.T) {
	s := start(t, dashboard.Options{})
	for _, method := range []string{"PUT", "DELETE", "OPTIONS"} {
		assert.Equal(t, http.StatusMethodNotAllowed, s.send(method, "/ops/limits", "192.0.2.1", ""))
	}
	assert.Panics(t, func() { s.page.Add(nil) }, "which no New returns without an error")
}

func TestAnotherSiteGetsNoFigures(t *testing.T) {
	s := start(t, dashboard.Options{})
	for site, want := range map[string]int{"": 200, "none": 200, "same-origin": 200, "same-site": 403, "cross-site": 403} {
		r := accepting("application/json")
		r.Header.Set("Sec-Fetch-Site", site)
		w := httptest.NewRecorder()
		s.mux.ServeHTTP(w, r)
		assert.Equal(t, want, w.Code, "Sec-Fetch-Site: %s", site)
	}
}

// WCAG 2.2 asks for a contrast of 4.5 for text.
func TestTextStandsOutFromItsGroundInLightAndDark(t *testing.T) {
	page := dashboard.Must(dashboard.New(dashboard.Options{Authorize: anybody}))
	w := httptest.NewRecorder()
	page.ServeHTTP(w, httptest.NewRequest("GET", "/", nil))
	schemes := regexp.MustCompile(`(?s):root \{(.*?)\}`).FindAllStringSubmatch(w.Body.String(), -1)
	require.Len(t, schemes, 2)
	for i, name := range []string{"light", "dark"} {
		colour := map[string]float64{}
		for _, m := range regexp.MustCompile(`--([a-z-]+): #([0-9a-f]{6})`).FindAllStringSubmatch(schemes[i][1], -1) {
			colour[m[1]] = luminance(t, m[2])
		}
		for text, grounds := range map[string]string{
			"ink": "ground sheet bad-ground", "soft": "ground sheet bad-ground", "bad": "ground sheet bad-ground",
			"refuse": "ground sheet", "shadow": "ground sheet", "warn": "ground sheet", "good": "ground sheet",
		} {
			for _, ground := range strings.Fields(grounds) {
				require.Contains(t, colour, text)
				a, b := colour[text], colour[ground]
				assert.GreaterOrEqual(t, (max(a, b)+0.05)/(min(a, b)+0.05), 4.5, "%s: %s on %s", name, text, ground)
			}
		}
	}
}

func luminance(t *testing.T, hex string) float64 {
	var rgb [3]int
	_, err := fmt.Sscanf(hex, "%02x%02x%02x", &rgb[0], &rgb[1], &rgb[2])
	require.NoError(t, err)
	var sum float64
	for i, weight := range []float64{0.2126, 0.7152, 0.0722} {
		c := float64(rgb[i]) / 255
		if c <= 0.04045 {
			c /= 12.92
		} else {
			c = math.Pow((c+0.055)/1.055, 2.4)
		}
		sum += weight * c
	}
	return sum
}
