// Package site tests the site that `make site` builds of the docs.
package site_test

import (
	"fmt"
	"maps"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/weirgo/weir/internal/tests/browser"
)

const (
	base     = "/weir/"
	patience = time.Minute // of a busy machine
)

// built returns the folder of the site.
func built(t testing.TB) string {
	t.Helper()
	dir := os.Getenv("WEIR_SITE")
	if dir == "" {
		t.Skip("the site is not built: make site builds it and runs this test")
	}
	return dir
}

// file returns the file of an address, as GitHub Pages does: /rules is rules.html.
func file(site, address string) string {
	path := filepath.Join(site, filepath.FromSlash(strings.TrimPrefix(address, base)))
	if info, err := os.Stat(path); err == nil && info.IsDir() {
		return filepath.Join(path, "index.html")
	} else if err != nil {
		return path + ".html"
	}
	return path
}

// serve returns the site's address on a server of its own.
func serve(t testing.TB) string {
	t.Helper()
	site := built(t)
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		http.ServeFile(w, &http.Request{Method: r.Method, Header: r.Header, URL: &url.URL{Path: "/"}}, file(site, r.URL.Path))
	}))
	t.Cleanup(server.Close)
	return server.URL + base
}

// pages returns the site's pages by their address.
func pages(t testing.TB) map[string]string {
	t.Helper()
	paths, err := filepath.Glob(filepath.Join(built(t), "*.html"))
	require.NoError(t, err)
	pages := map[string]string{}
	for _, path := range paths {
		name := strings.TrimSuffix(filepath.Base(path), ".html")
		if name == "404" || name == "playground" {
			continue
		}
		text, err := os.ReadFile(path)
		require.NoError(t, err)
		pages[base+strings.TrimSuffix(name, "index")] = string(text)
	}
	require.Greater(t, len(pages), 20)
	return pages
}

var (
	href = regexp.MustCompile(`<a [^>]*href="([^"]+)"`)
	id   = regexp.MustCompile(` id="([^"]+)"`)
	code = regexp.MustCompile(`(?m)^### (weir-[a-z-]+)$`)
)

func ids(page string) (found []string) {
	for _, match := range id.FindAllStringSubmatch(page, -1) {
		found = append(found, match[1])
	}
	return found
}

func TestEveryLinkOfTheSiteLeadsSomewhere(t *testing.T) {
	pages := pages(t)
	for address, page := range pages {
		for _, match := range href.FindAllStringSubmatch(page, -1) {
			link, err := url.Parse(match[1])
			require.NoError(t, err, address)
			if link.IsAbs() {
				continue
			}
			target := (&url.URL{Path: address}).ResolveReference(link)
			if _, err := os.Stat(file(built(t), target.Path)); err != nil {
				t.Errorf("%s: %s leads nowhere", address, match[1])
			} else if target.Fragment != "" {
				assert.Contains(t, ids(pages[target.Path]), target.Fragment, "%s: %s", address, match[1])
			}
		}
	}
}

// Log records name these addresses by their code.
func TestEveryWarningHasAnAddress(t *testing.T) {
	text, err := os.ReadFile("../../../docs/warnings.md")
	require.NoError(t, err)
	anchors := ids(pages(t)[base+"warnings"])
	codes := code.FindAllStringSubmatch(string(text), -1)
	require.Greater(t, len(codes), 20)
	for _, match := range codes {
		assert.Contains(t, anchors, match[1])
	}
}

func TestLanguageModelsFindEveryPage(t *testing.T) {
	text, err := os.ReadFile(filepath.Join(built(t), "llms.txt"))
	require.NoError(t, err)
	for address := range pages(t) {
		assert.Contains(t, string(text), ": https://weirgo.github.io"+address+"\n")
	}
}

// On a phone in the light, and on a desk in the dark.
func TestPagesAreLegible(t *testing.T) {
	site := serve(t)
	b := browser.Start(t, 1280, 900, false)
	for _, address := range slices.Sorted(maps.Keys(pages(t))) {
		t.Run(strings.TrimPrefix(address, base), func(t *testing.T) {
			b.Visit(site + strings.TrimPrefix(address, base))
			b.Await(patience, `document.querySelector("#app").__vue_app__ !== undefined && !document.querySelector("pre.diagram")`)
			for width, dark := range map[int64]bool{360: false, 1280: true} {
				b.Look(width, 900, dark)
				b.Await(patience, fmt.Sprint(`document.documentElement.classList.contains("dark") === `, dark))
				assert.LessOrEqual(t, browser.Eval[int64](b, "document.documentElement.scrollWidth"), width)
				assert.Empty(t, b.Axe(), "%d pixels wide", width)
			}
			b.Picture("site-" + strings.Trim(strings.ReplaceAll(address, "/", "-"), "-"))
		})
	}
	assert.False(t, slices.ContainsFunc(b.Requests(), func(address string) bool {
		return strings.HasPrefix(address, "http") && !strings.HasPrefix(address, site)
	}), "pages load nothing from elsewhere")
}

func TestDiagramsAreDrawn(t *testing.T) {
	b := browser.Open(t, serve(t)+"migrating", 1280, 900, false)
	b.Await(patience, `document.querySelectorAll(".diagram svg").length === 1`)
	assert.Contains(t, b.Text(".diagram"), "limit by address")
}

func TestTheSearchFindsAWarning(t *testing.T) {
	b := browser.Open(t, serve(t), 1280, 900, false)
	b.Click(".VPNavBarSearch button")
	b.Await(patience, `document.querySelector("#localsearch-input") !== null`)
	b.Write("#localsearch-input", "weir-unrouted")
	b.Await(patience, `[...document.querySelectorAll(".result")].some((a) => a.href.endsWith("/warnings#weir-unrouted"))`)
}

func TestThePlaygroundWorksInTheSite(t *testing.T) {
	b := browser.Open(t, serve(t)+"performance", 1280, 900, false)
	b.Visit(browser.Eval[string](b, `[...document.querySelectorAll(".VPNavBar a")].find((a) => a.innerText === "Playground").href`))
	b.Await(patience, `document.querySelector("#board")?.getAttribute("aria-busy") === "false"`)
	assert.NotZero(t, browser.Eval[int](b, `document.querySelectorAll(".lane .figures").length`))
	assert.Regexp(t, `\d+ of \d+`, b.Text(".lane .figures"))
	assert.Empty(t, b.Axe())
}
