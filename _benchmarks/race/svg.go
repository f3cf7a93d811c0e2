package race

import (
	"fmt"
	"html"
	"strings"
)

// An SVG is a drawing in the making, for light pages and dark ones.
type SVG struct{ strings.Builder }

// NewSVG begins one of so many pixels. Label says what it shows to readers that do not see it;
// style and dark are CSS of the classes that the drawing uses beside title, head and small.
func NewSVG(width, height int, label, style, dark string) *SVG {
	s := new(SVG)
	fmt.Fprintf(s, `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %d %d" width="%d" height="%d" role="img" aria-label="%s">
<style>
text { font: 12px system-ui, -apple-system, "Segoe UI", sans-serif; fill: #1f2328 }
.title { font-size: 14px; font-weight: 600 }
.head { font-weight: 600 }
.small { font-size: 10px; fill: #59636e }
%s
@media (prefers-color-scheme: dark) {
	text { fill: #e6edf3 }
	.small { fill: #9198a1 }
	%s
}
</style>
`, width, height, width, height, html.EscapeString(label), style, strings.ReplaceAll(dark, "\n", "\n\t"))
	return s
}

// Text writes at a place.
func (s *SVG) Text(x, y int, class, text string) {
	fmt.Fprintf(s, `<text x="%d" y="%d" class="%s">%s</text>`+"\n", x, y, class, html.EscapeString(text))
}

// End is the whole drawing.
func (s *SVG) End() string { return s.String() + "</svg>\n" }
