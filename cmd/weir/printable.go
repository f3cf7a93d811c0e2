package main

import (
	"fmt"
	"io"
	"unicode"
	"unicode/utf16"
	"unicode/utf8"
)

// A printable passes on text that a terminal only shows: control characters, those that turn
// the direction of text, and bytes that are no UTF-8 are escaped. What clients send ends up in
// keys of Redis and from there here. In JSON the escapes are JSON's.
type printable struct {
	to     io.Writer
	part   []byte // of a character that is not complete yet
	failed error  // the first, which writers need not look for
}

func (p *printable) Write(text []byte) (int, error) {
	n := len(text)
	if len(p.part) > 0 {
		text = append(p.part, text...)
		p.part = nil
	}
	var shown []byte
	for len(text) > 0 {
		if !utf8.FullRune(text) {
			p.part = append([]byte(nil), text...)
			break
		}
		c, size := utf8.DecodeRune(text)
		shown = appendShown(shown, c, text[:size])
		text = text[size:]
	}
	if err := p.pass(shown); err != nil {
		return 0, err
	}
	return n, nil
}

// flush writes what is no character after all.
func (p *printable) flush() {
	var shown []byte
	for _, b := range p.part {
		shown = appendShown(shown, utf8.RuneError, []byte{b})
	}
	p.part = nil
	_ = p.pass(shown)
}

// pass writes text, unless that failed before: there is no hole in what is written.
func (p *printable) pass(shown []byte) error {
	if p.failed == nil && len(shown) > 0 {
		_, p.failed = p.to.Write(shown)
	}
	return p.failed
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
