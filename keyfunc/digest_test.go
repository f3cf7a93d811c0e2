package keyfunc_test

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/weirgo/weir/keyfunc"
)

// The text is in Redis and in logs: another one would be another client. These are from another program:
//
//	printf 203.0.113.7 | openssl dgst -sha256 -binary | head -c 16 | basenc --base64url
func TestTheTextOfADigestStays(t *testing.T) {
	assert.Equal(t, "_sUlZaoM8Y9X189bOscoUA", keyfunc.NewDigester(nil).Digest("203.0.113.7").String())
	assert.Equal(t, "4l56oV8Y55o_0CqPo1sRwg", keyfunc.NewDigester(secret).Digest("203.0.113.7").String())
}

func TestADigestIsOfTheWholeKeyUnderTheSecretOfThen(t *testing.T) {
	for _, secret := range []string{"", "a secret of 16 bytes"} {
		wiped := []byte(secret)
		d := keyfunc.NewDigester(wiped)
		clear(wiped)
		hasNoClass := func(key []byte) bool { return len(key) == 0 || key[0] != 0 }
		keys := rapid.SliceOfN(rapid.Byte(), 0, 600).Filter(hasNoClass)
		rapid.Check(t, func(t *rapid.T) {
			key := keys.Draw(t, "key")
			digest := sha256.New()
			if secret != "" {
				digest = hmac.New(sha256.New, []byte(secret))
			}
			digest.Write(key)
			require.Equal(t, base64.RawURLEncoding.EncodeToString(digest.Sum(nil)[:16]), d.Digest(string(key)).String())
		})
	}
}

func TestADigestIsOfAKeysTextAndNotOfItsClass(t *testing.T) {
	d := keyfunc.NewDigester(secret)
	for _, class := range []keyfunc.Class{keyfunc.Own, keyfunc.Shared, keyfunc.InDoubt} {
		assert.Equal(t, d.Digest("key"), d.Digest(class.Mark("key")), class.String())
	}
}

func TestAKeyMadeOfADigestHasThatDigestUnderEverySecret(t *testing.T) {
	digest := keyfunc.NewDigester(secret).Digest("203.0.113.7")
	key := digest.Key()
	for _, secret := range [][]byte{nil, secret} {
		assert.Equal(t, digest, keyfunc.NewDigester(secret).Digest(key))
	}
	back, ok := keyfunc.DigestOf(key)
	assert.True(t, ok)
	assert.Equal(t, digest, back)
	for _, key := range []string{"", "\x00", digest.String(), "\x00digest:" + digest.String(), key[:len(key)-1], key + "x"} {
		_, ok := keyfunc.DigestOf(key)
		assert.False(t, ok, "%q", key)
	}
}

func TestOnlyWhatCanBeADigestIsParsed(t *testing.T) {
	digest := keyfunc.NewDigester(nil).Digest("key")
	back, ok := keyfunc.ParseDigest(digest.String())
	assert.True(t, ok)
	assert.Equal(t, digest, back)
	for _, text := range []string{"", "key", digest.String()[1:], digest.String() + "A", strings.Repeat("+", 22), strings.Repeat("/", 22),
		strings.Repeat("A", 21) + "B", strings.Repeat("A", 20) + "\n\n", strings.Repeat("A", 18) + "\r\nAA", strings.Repeat("A", 21) + "="} {
		_, ok := keyfunc.ParseDigest(text)
		assert.False(t, ok, "%q", text)
	}
}

func TestAShortSecretIsAnErrorThatDoesNotShowIt(t *testing.T) {
	assert.NoError(t, keyfunc.CheckSecret("pkg", nil))
	assert.NoError(t, keyfunc.CheckSecret("pkg", secret))
	err := keyfunc.CheckSecret("pkg", secret[:15])
	assert.EqualError(t, err, "pkg: Secret has 15 bytes: it must have at least 16, or none")
}

func BenchmarkDigest(b *testing.B) {
	for name, secret := range map[string][]byte{"plain": nil, "secret": secret} {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			d := keyfunc.NewDigester(secret)
			for b.Loop() {
				d.Digest("203.0.113.7")
			}
		})
	}
}
