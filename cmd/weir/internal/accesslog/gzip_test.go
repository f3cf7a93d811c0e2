package accesslog

import (
	"bytes"
	"compress/gzip"
	"io"
	"math/rand/v2"
	"strings"
	"testing"
	"testing/iotest"

	"github.com/stretchr/testify/require"
)

func zipped(t testing.TB, text string) string {
	var b bytes.Buffer
	w := gzip.NewWriter(&b)
	_, err := io.WriteString(w, text)
	require.NoError(t, err)
	require.NoError(t, w.Close())
	return b.String()
}

func readPlain(from io.Reader) (string, error) {
	r, err := decompressed(from)
	if err != nil {
		return "", err
	}
	text, err := io.ReadAll(r)
	return string(text), err
}

func TestWhatIsCompressedIsReadAsIfItWereNot(t *testing.T) {
	text := strings.Repeat(combinedLine+"\n", 20_000)
	part := text[:len(text)/3]
	for name, log := range map[string]string{
		"plain": text, "gzip": zipped(t, text), "gzip in parts": zipped(t, part) + zipped(t, "") + zipped(t, text[len(part):]),
	} {
		for _, from := range []io.Reader{strings.NewReader(log), iotest.HalfReader(strings.NewReader(log))} {
			got, err := readPlain(from)
			require.NoError(t, err, name)
			require.Equal(t, text, got, name)
		}
	}
	for _, short := range []string{"", "a", "\x28\xb5\x2f", "\x1f"} {
		got, err := readPlain(strings.NewReader(short))
		require.NoError(t, err)
		require.Equal(t, short, got, "too short to be anything else")
	}
}

// Wherever it is cut off, but between parts, it is said.
func TestWhatIsCutOffIsAnError(t *testing.T) {
	first := zipped(t, combinedLine)
	log := first + zipped(t, caddyLine)
	for n := 4; n < len(log); n++ {
		if n != len(first) {
			_, err := readPlain(strings.NewReader(log[:n]))
			require.EqualError(t, err, "the log is cut off: its gzip has no end", "%d of %d bytes", n, len(log))
		}
	}
}

func TestWhatIsDamagedIsAnErrorAndNeverMore(t *testing.T) {
	random := rand.New(rand.NewPCG(3, 4))
	log := zipped(t, strings.Repeat(caddyLine, 20))
	for range 300 {
		damaged := []byte(log)
		damaged[4+random.IntN(len(log)-4)] ^= 1 << random.IntN(8)
		if _, err := readPlain(bytes.NewReader(damaged)); err != nil {
			require.Regexp(t, `^the log('s gzip cannot be read: | is cut off)`, err.Error())
		}
	}
}

func TestOtherCompressionsAreNamedWithTheirCommand(t *testing.T) {
	for begin, want := range map[string]string{
		"\x28\xb5\x2f\xfd\x00": "compressed with zstd, which is not read here: zstdcat LOG | weir ... -",
		"BZh91AY&SY":           "bzip2 -dc LOG | weir ... -", "\xfd7zXZ\x00\x00\x04": "compressed with xz", "\x04\x22\x4d\x18\x64\x40": "compressed with lz4",
	} {
		_, err := readPlain(strings.NewReader(begin))
		require.ErrorContains(t, err, want)
	}
}
