package bans

import (
	"errors"
	"unicode"
	"unicode/utf8"

	"github.com/weirgo/weir/internal/invalid"
)

// A Note is a remark on a ban by hand: [Reason] or [By].
type Note func(*Ban)

// Reason says why a key is banned, in one line of at most [MaxReason] printable bytes.
func Reason(text string) Note { return func(b *Ban) { b.Reason = text } }

// By names the operator or program that banned the key, in one line of at most [MaxBy] printable bytes.
func By(name string) Note { return func(b *Ban) { b.By = name } }

// MaxReason and MaxBy bound a ban's notes, in bytes.
const MaxReason, MaxBy = 200, 100

// Noted returns a Ban that has only these notes, or an error. Implementations of [List] call it.
func Noted(notes ...Note) (Ban, error) {
	var b Ban
	for _, note := range notes {
		note(&b)
	}
	return Ban{Reason: b.Reason, By: b.By}, errors.Join(checkNote("Reason", b.Reason, MaxReason), checkNote("By", b.By, MaxBy))
}

func checkNote(field, text string, most int) error {
	if len(text) > most {
		return invalid.New("bans", "%s has %d bytes: it may have %d", field, len(text), most)
	}
	if !utf8.ValidString(text) {
		return invalid.New("bans", "%s is %q: it must be UTF-8", field, text)
	}
	for _, c := range text {
		if !unicode.IsPrint(c) {
			return invalid.New("bans", "%s is %q: it has %U, which cannot be printed in a line", field, text, c)
		}
	}
	return nil
}
