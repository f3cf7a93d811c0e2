package dashboard

import (
	"bytes"
	"crypto/sha256"
	_ "embed"
	"encoding/base64"
	"html/template"
)

var (
	//go:embed page.html
	pageHTML string

	//go:embed style.css
	styleCSS string

	//go:embed script.js
	scriptJS string

	pageTemplate = template.Must(template.New("page").Parse(pageHTML))
)

// render makes the page, which is whole in itself, and the policy under which browsers run
// this script and no other.
func render(o Options) (page []byte, policy string, err error) {
	var b bytes.Buffer
	err = pageTemplate.Execute(&b, struct {
		Title           string
		Style           template.CSS
		Script          template.JS
		Bans, Offenders bool
		Span            int
	}{o.Title, template.CSS(styleCSS), template.JS(scriptJS), o.Bans != nil, o.Offenders != nil, span})
	policy = "default-src 'none'; connect-src 'self'; img-src data:; " +
		"style-src " + digestOf(styleCSS) + "; script-src " + digestOf(scriptJS) + "; " +
		"base-uri 'none'; form-action 'none'; frame-ancestors 'none'; require-trusted-types-for 'script'"
	return b.Bytes(), policy, err
}

func digestOf(text string) string {
	sum := sha256.Sum256([]byte(text))
	return "'sha256-" + base64.StdEncoding.EncodeToString(sum[:]) + "'"
}
