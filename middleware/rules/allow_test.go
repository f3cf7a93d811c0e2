package rules_test

import (
	"errors"
	"net/http"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/weirgo/weir/keyfunc"
	"github.com/weirgo/weir/middleware/rules"
)

func TestAKeyOfAnyKindCanBeAllowed(t *testing.T) {
	fails := func(*http.Request) (string, error) { return "", errors.New("the database is down") }
	tenant := func(r *http.Request) (string, error) { return r.Header.Get("Tenant"), nil }
	o := rules.Options{Keys: map[string]keyfunc.Func{"fails": fails, "tenant": tenant}}
	api := call{header: map[string]string{"X-Api-Key": "k-123"}}
	key, err := keyfunc.APIKey("X-Api-Key")(api.request())
	require.NoError(t, err)
	for text, c := range map[string]call{
		key:                         api,
		"acme":                      {header: map[string]string{"Tenant": "acme"}},
		"user:7":                    {user: "7"},
		"header:X-Partner:a":        {header: map[string]string{"X-Partner": "a"}},
		"join:6:user:711:192.0.2.9": {},
	} {
		r, err := rules.Parse([]byte("version: 1\nallow: {keys: '"+text+"'}\nglobal: {limit: 3/s, key: \"apikey:X-Api-Key\"}\ndefault: {limit: 3/s, key: [user, ip]}\n"), o)
		require.NoError(t, err, text)
		if text[0] == 'j' {
			continue
		}
		assert.True(t, r.Config().Allow.Matches(c.request()), text)
		assert.False(t, r.Config().Allow.Matches(call{user: "8"}.request()), text)
	}
}

func TestAnAllowedKeyThatClientsCanSendIsWarnedOf(t *testing.T) {
	dir := write(t, map[string]string{"limits.yaml": "version: 1\nallow: {file: p.txt}\ndefault: 3/s\n", "p.txt": "user:1\n  path:id:7 # all that begins so\n"})
	r, err := rules.Load(filepath.Join(dir, "limits.yaml"), rules.Options{})
	require.NoError(t, err)
	require.Len(t, r.Warnings(), 1)
	require.Equal(t, filepath.Join(dir, "p.txt")+":2:3: is a key of kind path: any client can send it and is then never limited", r.Warnings()[0].String())
}
