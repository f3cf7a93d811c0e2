package dashboard

import (
	"bytes"
	"crypto/sha256"
	"embed"
	"encoding/base64"
	"fmt"
	"html/template"
	"os"
	"strings"
)

//go:embed page
var parts embed.FS

// The page's script is one function, made of these files in this order, which share their names.
var (
	scripts = []string{
		"core.js", "live.js", "advice.js", "verdict.js", "store.js", "overload.js", "chart.js", "rules.js",
		"keys.js", "bans.js", "client.js",
	}
	script = "\"use strict\";\n(() => {\n" + join(scripts...) + "refresh();\n})();\n"
	style  = join("style.css")

	pageTemplate = template.Must(template.ParseFS(parts, "page/page.html"))
)

func join(names ...string) string {
	var b strings.Builder
	for _, name := range names {
		text, err := parts.ReadFile("page/" + name)
		if err != nil {
			panic(err) // it is embedded
		}
		b.Write(text)
		b.WriteByte('\n')
	}
	return b.String()
}

// render makes the page, and the policy under which browsers run this script and no other.
func render(o Options) (page []byte, policy string, err error) {
	var b bytes.Buffer
	err = pageTemplate.Execute(&b, struct {
		Title, Process string
		Style          template.CSS
		Script         template.JS
		Bans           bool
		Span, Judged   int
	}{o.Title, processName, template.CSS(style), template.JS(script), o.Bans != nil, span, judged})
	policy = "default-src 'none'; connect-src 'self'; img-src data:; " +
		"style-src " + digestOf(style) + "; script-src " + digestOf(script) + "; " +
		"base-uri 'none'; form-action 'none'; frame-ancestors 'none'; require-trusted-types-for 'script'"
	return b.Bytes(), policy, err
}

// processName is the process that the page shows, for operators.
var processName = func() string {
	host, err := os.Hostname()
	if err != nil {
		host = "unknown host"
	}
	return fmt.Sprintf("%.100s, process %d", host, os.Getpid())
}()

func digestOf(text string) string {
	sum := sha256.Sum256([]byte(text))
	return "'sha256-" + base64.StdEncoding.EncodeToString(sum[:]) + "'"
}
