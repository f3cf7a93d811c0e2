package decompress

import (
	"bytes"
	"compress/gzip"
	"io"
	"math/rand/v2"
	"runtime"
	"strings"
	"testing"
	"testing/iotest"

	"github.com/klauspost/compress/zstd"
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

func zstded(t testing.TB, text string) string {
	var b bytes.Buffer
	w, err := zstd.NewWriter(&b, zstd.WithEncoderConcurrency(1))
	require.NoError(t, err)
	_, err = io.WriteString(w, text)
	require.NoError(t, err)
	require.NoError(t, w.Close())
	return b.String()
}

// lines are as a log has them: of some length, and never the same.
func lines(n int) string {
	random := rand.New(rand.NewPCG(1, 2))
	var b strings.Builder
	for range n {
		b.WriteString(`192.0.2.1 - - [17/May/2015:10:05:03 +0000] "GET /`)
		for range random.IntN(40) {
			b.WriteByte('a' + byte(random.IntN(26)))
		}
		b.WriteString(" HTTP/1.1\" 200 17\n")
	}
	return b.String()
}

// skippable is a frame of zstd's that says nothing about the content; pzstd begins with one.
const skippable = "\x50\x2a\x4d\x18\x04\x00\x00\x00weir"

func TestWhatIsCompressedIsReadAsIfItWereNot(t *testing.T) {
	text := lines(20_000)
	part := text[:len(text)/3]
	for name, log := range map[string]string{
		"plain":                     text,
		"gzip":                      zipped(t, text),
		"gzip in parts":             zipped(t, part) + zipped(t, "") + zipped(t, text[len(part):]),
		"zstd":                      zstded(t, text),
		"zstd in parts":             zstded(t, part) + zstded(t, text[len(part):]),
		"zstd with what is skipped": skippable + zstded(t, part) + skippable + zstded(t, text[len(part):]),
	} {
		for way, from := range map[string]io.Reader{
			"a file": strings.NewReader(log),
			"a pipe": iotest.HalfReader(strings.NewReader(log)),
		} {
			r, err := NewReader(from)
			require.NoError(t, err, name)
			got, err := io.ReadAll(r)
			require.NoError(t, err, name)
			require.Equal(t, text, string(got), "%s from %s", name, way)
		}
	}
	for _, short := range []string{"", "a", "\x28\xb5\x2f", "\x50\x2a", "\x1f"} {
		r, err := NewReader(strings.NewReader(short))
		require.NoError(t, err)
		got, err := io.ReadAll(r)
		require.NoError(t, err)
		require.Equal(t, short, string(got), "too short to be anything else")
	}
}

// Wherever it is cut off, but between parts, it is said.
func TestWhatIsCutOffIsAnError(t *testing.T) {
	text := lines(40)
	for name, compress := range map[string]func(testing.TB, string) string{"gzip": zipped, "zstd": zstded} {
		first := compress(t, text[:1000])
		log := first + compress(t, text[1000:])
		for n := 4; n < len(log); n++ {
			if n == len(first) {
				continue
			}
			r, err := NewReader(strings.NewReader(log[:n]))
			if err == nil {
				_, err = io.ReadAll(r)
			}
			require.EqualError(t, err, "the log is cut off: its "+name+" has no end", "%d of %d bytes", n, len(log))
		}
	}
}

func TestWhatIsDamagedIsAnErrorAndNeverMore(t *testing.T) {
	random := rand.New(rand.NewPCG(3, 4))
	for _, log := range []string{zipped(t, lines(200)), zstded(t, lines(200))} {
		for range 300 {
			damaged := []byte(log)
			damaged[4+random.IntN(len(log)-4)] ^= 1 << random.IntN(8)
			r, err := NewReader(bytes.NewReader(damaged))
			if err == nil {
				_, err = io.Copy(io.Discard, io.LimitReader(r, 1<<24))
			}
			if err != nil {
				require.Regexp(t, `^the log('s (gzip|zstd) (cannot be read: |needs more than 128 MiB)| is cut off)`, err.Error())
			}
		}
	}
}

func TestOtherCompressionsAreNamedWithTheirCommand(t *testing.T) {
	for begin, want := range map[string]string{
		"BZh91AY&SY":               "compressed with bzip2, which is not read here: bzip2 -dc LOG | weir ... -",
		"\xfd7zXZ\x00\x00\x04":     "compressed with xz",
		"\x04\x22\x4d\x18\x64\x40": "compressed with lz4",
	} {
		_, err := NewReader(strings.NewReader(begin))
		require.ErrorContains(t, err, want)
	}
}

// A few bytes that ask for gigabytes are refused, and those that ask for what is allowed get it
// once.
func TestAFrameCannotTakeMoreMemoryThanIsAllowed(t *testing.T) {
	header := func(exponent byte) string { // a window of 2^(10+exponent) bytes, and a block that is not the last, of one byte 2^17 times
		return "\x28\xb5\x2f\xfd\x00" + string([]byte{exponent << 3}) + strings.Repeat("\x02\x00\x10a", 1<<12)
	}
	_, err := read(header(18))
	require.ErrorContains(t, err, "needs more than 128 MiB of memory: zstd -dc --long=31")

	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	n, err := read(header(17))
	runtime.ReadMemStats(&after)
	require.ErrorContains(t, err, "cut off")
	require.EqualValues(t, 1<<29, n)
	require.Less(t, after.TotalAlloc-before.TotalAlloc, uint64(1<<29), "in all, and so at once")
}

func read(log string) (int64, error) {
	r, err := NewReader(strings.NewReader(log))
	if err != nil {
		return 0, err
	}
	return io.Copy(io.Discard, r)
}
