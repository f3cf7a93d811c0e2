package operate_test

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/weirgo/weir/internal/operate"
)

func TestAnAddressIsTheKeyThatItIsCountedUnder(t *testing.T) {
	for text, want := range map[string]string{
		"203.0.113.7":        "203.0.113.7",
		" 203.0.113.7\n":     "203.0.113.7",
		"::ffff:203.0.113.7": "203.0.113.7",
		"2001:db8::7":        "2001:db8::/64",
		"2001:db8::/64":      "2001:db8::/64",
		"2001:db8::/56":      "2001:db8::/56",
		"user:42":            "user:42",
		"join:1:a2:bc":       "join:1:a2:bc",
		"":                   "",
	} {
		key, err := operate.Key(text)
		require.NoError(t, err, text)
		assert.Equal(t, want, key, text)
	}
	for _, network := range []string{"198.51.100.0/24", "203.0.113.7/32", "2001:db8::7/64"} {
		_, err := operate.Key(network)
		assert.ErrorContains(t, err, "is a network, and no key", network)
	}
}
