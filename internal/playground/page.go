package main

import (
	"bytes"
	"crypto/sha256"
	"embed"
	"encoding/base64"
	"strings"
	"text/template"
)

//go:embed page
var parts embed.FS

// scripts are the files of the page's script. Each follows the files that it needs.
var scripts = []string{"engine.js", "words.js", "traffic.js", "log.js", "chart.js", "gauge.js", "page.js"}

// An engine is the WebAssembly module of the page, and the Go version that built it.
type engine struct {
	Engine    string // as gzip in base64
	Toolchain string // the Go version
}

// join returns the page. Browsers run its script, style and engine, and load nothing else.
func join(e engine) ([]byte, error) {
	style, err := parts.ReadFile("page/style.css")
	if err != nil {
		return nil, err
	}
	script := "\n"
	for _, name := range scripts {
		text, err := parts.ReadFile("page/" + name)
		if err != nil {
			return nil, err
		}
		script += string(text) + "\n"
	}
	page, err := template.ParseFS(parts, "page/page.html")
	if err != nil {
		return nil, err
	}
	var b bytes.Buffer
	err = page.Execute(&b, struct {
		engine
		Policy, Style, Script string
	}{
		e,
		"default-src 'none'; img-src data:; style-src " + digestOf(string(style)) + "; script-src " + digestOf(script) +
			" 'wasm-unsafe-eval'; base-uri 'none'; form-action 'none'; require-trusted-types-for 'script'",
		string(style), script,
	})
	return b.Bytes(), err
}

func digestOf(text string) string {
	sum := sha256.Sum256([]byte(text))
	return "'sha256-" + base64.StdEncoding.EncodeToString(sum[:]) + "'"
}

// lines breaks a long text into lines, for editors and diffs.
func lines(text string) string {
	const width = 160
	var b strings.Builder
	for ; len(text) > width; text = text[width:] {
		b.WriteString(text[:width] + "\n")
	}
	b.WriteString(text)
	return b.String()
}
