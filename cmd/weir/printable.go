package main

import (
	"fmt"
	"io"
	"sync"
	"unicode"
	"unicode/utf16"
	"unicode/utf8"

	"github.com/weirgo/weir/cmd/weir/internal/serving"
)

// A printable writes text that is safe on a terminal. It escapes control characters, characters that
// change the direction of text, and bytes that are not UTF-8: keys in Redis hold what clients sent. In
// JSON the escapes are JSON's. Each Write must hold whole characters.
type printable struct {
	mu     sync.Mutex // weir serve logs in many goroutines
	to     io.Writer
	failed error          // the first error of to
	lines  *serving.Lines // nil: Write waits for the reader
}

// inBackground makes Write drop lines rather than wait for their reader. Each Write must hold whole lines.
func (p *printable) inBackground() *serving.Lines {
	if p.lines == nil {
		p.lines = serving.NewLines(p.to)
		p.to = p.lines
	}
	return p.lines
}

// Write escapes text. It stops at the first error, so that no text is missing in between.
func (p *printable) Write(text []byte) (int, error) {
	var shown []byte
	for rest := text; len(rest) > 0; {
		c, size := utf8.DecodeRune(rest)
		shown = appendShown(shown, c, rest[:size])
		rest = rest[size:]
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.failed == nil && len(shown) > 0 {
		_, p.failed = p.to.Write(shown)
	}
	if p.failed != nil {
		return 0, p.failed
	}
	return len(text), nil
}

func appendShown(shown []byte, c rune, text []byte) []byte {
	switch {
	case c == utf8.RuneError && len(text) == 1:
		return fmt.Appendf(shown, `\x%02x`, text[0])
	case c == '\n', c == '\t', unicode.IsPrint(c):
		return append(shown, text...)
	case c > 0xffff:
		high, low := utf16.EncodeRune(c)
		return fmt.Appendf(shown, `\u%04x\u%04x`, high, low)
	}
	return fmt.Appendf(shown, `\u%04x`, c)
}
