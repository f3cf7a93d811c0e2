package serverlimit

import (
	"errors"
	"strings"
	"testing"

	"github.com/dunglas/httpsfv"
	"github.com/stretchr/testify/require"
)

// lines seed the fuzz targets with what servers send, and with what is near to it.
var lines = []string{
	`"default";r=50;t=30`, `"burst";q=100;w=60, "daily";q=1000;w=86400`, `limit=100, remaining=50, reset=50`,
	`100;w=60`, `10, 10;w=1, 50;w=60`, `default;r=1`, `"a\"b\\c";r=1`, `"a;r=1`, `"a";r=1,`, `"a";r=-1`, `"a";r=1.5`,
	`"a";r=999999999999999`, `"a";r=9999999999999999`, `("a" "b");r=1`, `("a""b")`, `"a";pk=:sdfjLJUOUH==:;r=2`, `"a" ;r=1`,
	`"a"; r=1;r=2`, `"a";r;t`, `"a";R=1`, `?1`, `@1659578233`, `%"f%c3%bc"`, ``, ` `, "\t", `"a"` + "\t,\t" + `"b"`, `a=(1 2);b, c="x"`,
}

// Those that httpsfv is not asked about.
func TestTheParserReadsDatesAndDisplayStrings(t *testing.T) {
	t.Parallel()
	for line, want := range map[string]bool{
		`@1659578233`: true, `@-1`: true, `a;d=@0;r=1`: true, `@`: false, `@-`: false, `@1.5`: false, `@1234567890123456`: false, `@a`: false,
		`%"%"%"`: false, `%"%c3"`: false, `%"%C3%BC"`: false, `%"%f`: false, `%"%+1"`: false, `%"\"`: true, `%"a"b`: false,
		`%"f%c3%bc"`: true, `%"`: false, `%a`: false, `"a";s=%"b";r=1`: true,
	} {
		require.Equal(t, want, isList(line), line)
	}
}

func FuzzTheParserReadsListsAsAnotherDoes(f *testing.F) {
	for _, line := range lines {
		f.Add(line)
	}
	f.Fuzz(func(t *testing.T, line string) {
		want, err := theirs(t, httpsfv.UnmarshalList, line)
		if isOther(line, err) {
			t.Skip(err)
		}
		require.Equal(t, err == nil, isList(line), "%q: %v", line, err)
		if err != nil {
			return
		}
		p := parser{rest: line}
		for _, other := range want {
			m, more := p.member()
			require.True(t, more, "%q", line)
			wanted := member{integer: Unsaid, params: noParams}
			switch other := other.(type) {
			case httpsfv.Item:
				wanted.name, wanted.integer = textOf(other.Value), integerOf(other.Value)
				wanted.name = wanted.name[:min(len(wanted.name), maxName)]
				wanted.params = paramsOf(other.Params)
			case httpsfv.InnerList:
				wanted.params = paramsOf(other.Params)
			}
			require.Equal(t, wanted, m, "%q", line)
		}
		_, more := p.member()
		require.False(t, more, "%q", line)
	})
}

func FuzzTheParserReadsDictionariesAsAnotherDoes(f *testing.F) {
	for _, line := range lines {
		f.Add(line)
	}
	f.Fuzz(func(t *testing.T, line string) {
		want, err := theirs(t, httpsfv.UnmarshalDictionary, line)
		if isOther(line, err) {
			t.Skip(err)
		}
		got := map[string]int64{}
		p := parser{rest: line}
		for {
			key, n, more := p.entry()
			if !more {
				break
			}
			got[key] = n
		}
		require.Equal(t, err == nil, !p.failed, "%q: %v", line, err)
		if err != nil {
			return
		}
		wanted := map[string]int64{}
		for _, key := range want.Names() {
			value, _ := want.Get(key)
			wanted[key] = Unsaid
			if item, ok := value.(httpsfv.Item); ok {
				wanted[key] = integerOf(item.Value)
			}
		}
		require.Equal(t, wanted, got, "%q", line)
	})
}

// theirs is what httpsfv reads. Version 1.1.0 panics at some display strings and dates.
func theirs[T any](t *testing.T, read func([]string) (T, error), line string) (T, error) {
	defer func() {
		if p := recover(); p != nil {
			t.Skipf("httpsfv panics at %q: %v", line, p)
		}
	}()
	return read([]string{line})
}

// isOther reports whether httpsfv may refuse what ours takes: ours does not look into byte
// sequences, and httpsfv refuses integers of 15 digits unless they are at the end.
func isOther(line string, err error) bool {
	return err != nil && strings.Contains(line, ":") || errors.Is(err, httpsfv.ErrNumberOutOfRange)
}

func textOf(v any) string {
	switch v := v.(type) {
	case string:
		return v
	case httpsfv.Token:
		return string(v)
	}
	return ""
}

func integerOf(v any) int64 {
	if n, ok := v.(int64); ok && n >= 0 {
		return n
	}
	return Unsaid
}

func paramsOf(p *httpsfv.Params) params {
	all := noParams
	for _, key := range p.Names() {
		v, _ := p.Get(key)
		switch key {
		case "r":
			all.r = integerOf(v)
		case "t":
			all.t = integerOf(v)
		case "q":
			all.q = integerOf(v)
		case "w":
			all.w = integerOf(v)
		case "qu":
			all.unit = textOf(v)
		}
	}
	return all
}
