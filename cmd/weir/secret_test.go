package main

import (
	"bytes"
	"encoding/json"
	"strings"
	"testing"
	"unicode"
	"unicode/utf8"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/weirgo/weir/limiter"
)

// secretArgs are command lines that have a credential and end with an error.
var secretArgs = [][]string{
	{"top", "--redis=URL"},
	{"top", "--redis=URL", "--cluster"},
	{"top", "--redis=URL", "--sentinel=main"},
	{"bans", "--redis=URL"},
	{"unban", "--redis=URL", "user:42"},
	{"top", "--cluster=URL"},
	{"top", "--n=URL"},
	{"top", "URL"},
	{"ban", "user:42", "--for", "1h", "URL"},
	{"ban", "SECRET"},
	{"ban", "usr:SECRET"},
	{"unban", "SECRET x"},
	{"peek", "-", "--key=SECRET"},
	{"reset", "-", "--key", "password:SECRET"},
	{"explain", "-", "--path=/", "--header", "Authorization SECRET"},
}

var secretURLs = []string{
	"redis://:SECRET@127.0.0.1:1", "redis://weir:SECRET@127.0.0.1:1/0", "rediss://weir:SECRET@127.0.0.1:1", "redis://weir:SECRET/x@127.0.0.1:1",
	"redis://weir:SECRET#x@127.0.0.1:1", "redis://weir:x?SECRET@127.0.0.1:1", "redis://weir:SECRET%zz@127.0.0.1:1", "redis://weir:SECRET x@127.0.0.1:1",
	"redis://weir:x:SECRET@127.0.0.1:1", "redis://weir:SECRET@127.0.0.1:1/SECRET", "redis://weir:x@127.0.0.1:1/0?password=SECRET",
	"redis://weir:x@127.0.0.1:1/0?db=SECRET", "redis://weir:x@127.0.0.1:SECRET", "http://weir:SECRET@127.0.0.1:1", "weir:SECRET@127.0.0.1:1", "SECRET",
	"redis://weir:x@127.0.0.1:1/0?sentinel_password=SECRET", "redis://weir:x@127.0.0.1:1/0?sentinel_username=SECRET&addr=SECRET", "redis://weir:1?SECRET=SECRET&SECRET@127.0.0.1:1",
	"SECRET:x@127.0.0.1", "redis:/weir:SECRET@127.0.0.1:1", "unix://weir:SECRET@/none.sock", "redis://weir:SECRET@127.0.0.1:1\x00",
}

func TestNoOutputHasACredentialOfTheCommandLineOrTheEnvironment(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		secret := rapid.StringMatching(`[b-y][b-y0-9]{15,30}`).Draw(rt, "secret")
		url := strings.ReplaceAll(rapid.SampledFrom(secretURLs).Draw(rt, "url"), "SECRET", secret)
		args := append([]string(nil), rapid.SampledFrom(secretArgs).Draw(rt, "args")...)
		if strings.Contains(url, "\x00") {
			t.Setenv("WEIR_REDIS", "") // the environment cannot hold this secret
		} else {
			t.Setenv("WEIR_REDIS", url)
		}
		inEnvironment := rapid.Bool().Draw(rt, "in the environment")
		for i, arg := range args {
			if inEnvironment && arg == "--redis=URL" {
				arg = "--redis="
			}
			args[i] = strings.ReplaceAll(strings.ReplaceAll(arg, "URL", url), "SECRET", secret)
		}
		if rapid.Bool().Draw(rt, "asks for help") {
			args = append(args, "--help")
		}
		_, out, err := weir(t, good, args...)
		require.NotContains(rt, strings.ToLower(out+err), secret)
		for i := range len(secret) - 8 { // nor a part
			require.NotContains(rt, strings.ToLower(out+err), secret[i:i+8])
		}
	})
}

// hostile has characters that a terminal would act on.
const hostile = "\x1b[2J\x1b]0;owned\x07\u009b31m\u202egnp.exe\xff\xfe\r\u2028\U000e0001"

func requirePrintable(t require.TestingT, text string) {
	require.True(t, utf8.ValidString(text), "%q", text)
	for _, c := range text {
		require.True(t, c == '\n' || c == '\t' || unicode.IsPrint(c), "%q in %q", c, text)
	}
}

func TestWhatIsInRedisIsShownAndNotDone(t *testing.T) {
	url, client := startRedis(t)
	use(t, patientStore(t, client, ""), "", limiter.PerHour(10), "key", 3)
	names, err := client.Keys(t.Context(), "*").Result()
	require.NoError(t, err)
	require.Len(t, names, 1)
	// Any client that can write to this Redis can leave this there.
	value, err := client.Dump(t.Context(), names[0]).Result()
	require.NoError(t, err)
	copies := []string{
		strings.Replace(names[0], ":default", ":"+hostile, 1),
		strings.Replace(names[0], ":default", ":default:"+hostile, 1),
		names[0][:len("weir:{")] + (hostile + strings.Repeat("x", 22))[:22] + "}:default",
	}
	for _, name := range copies {
		require.NoError(t, client.RestoreReplace(t.Context(), name, 0, value).Err())
	}
	exit, out, said := weir(t, "", "top", url)
	require.Equal(t, exitGood, exit, said)
	requirePrintable(t, out+said)
	assert.Len(t, strings.Split(strings.TrimSpace(out), "\n"), 1+3, "a line for each counter, and none for what is no digest: %s", out)
	exit, out, said = weir(t, "", "top", "--json", url)
	require.Equal(t, exitGood, exit, said)
	requirePrintable(t, out+said)
	require.True(t, json.Valid([]byte(out)), out)

	exit, _, said = weir(t, "", "ban", "user:42", url)
	require.Equal(t, exitGood, exit, said)
	lists, err := client.Keys(t.Context(), "*{bans}:list").Result()
	require.NoError(t, err)
	require.Len(t, lists, 1)
	require.NoError(t, client.HSet(t.Context(), lists[0], strings.Repeat("A", 22), `{"ends":0,"rule":"`+hostile, hostile, "{}").Err())
	_, out, _ = weir(t, "", "bans", url)
	require.Contains(t, out, strings.Repeat("A", 22), "a state that cannot be read is a ban")
	for _, args := range [][]string{{"bans", url}, {"bans", "--json", url}, {"unban", "user:" + hostile, url}, {"check", hostile}, {hostile}} {
		_, out, said := weir(t, "", args...)
		requirePrintable(t, out+said)
	}
}

func TestAPrintableWriterChangesOnlyWhatIsNotPrintable(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		text := rapid.OneOf(rapid.String(), rapid.Map(rapid.SliceOf(rapid.Byte()), func(b []byte) string { return string(b) })).Draw(t, "text")
		var whole bytes.Buffer
		p := &printable{to: &whole}
		n, err := p.Write([]byte(text))
		require.NoError(t, err)
		require.Equal(t, len(text), n)
		requirePrintable(t, whole.String())

		odd := func(c rune) bool { return c != '\n' && c != '\t' && !unicode.IsPrint(c) }
		if utf8.ValidString(text) && !strings.ContainsFunc(text, odd) {
			require.Equal(t, text, whole.String())
		}
		asJSON, err := json.Marshal(text)
		require.NoError(t, err)
		whole.Reset()
		p = &printable{to: &whole}
		_, _ = p.Write(asJSON)
		var want, got string
		require.NoError(t, json.Unmarshal(asJSON, &want))
		require.NoError(t, json.Unmarshal(whole.Bytes(), &got))
		require.Equal(t, want, got, "JSON says the same")
	})
}
