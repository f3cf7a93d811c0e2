package wire

import (
	"os"
	"os/exec"
	"strings"
	"testing"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/weirgo/weir/internal/redistest"
)

func runText(t *testing.T, client redis.UniversalClient, s *Script, args ...any) (string, error) {
	r := NewRun(s, nil, args...)
	NewTransport(client, false).Send(t.Context(), r)
	return r.Text()
}

func TestAScriptIsSentWithItsSourceOnceAndByItsHashFromThenOn(t *testing.T) {
	server := redistest.Start(t)
	client := redis.NewClient(&redis.Options{Addr: server.Addr})
	t.Cleanup(func() { require.NoError(t, client.Close()) })
	echo := NewScript("return ARGV[1]")
	for _, said := range []string{"one", "two", "three"} {
		answer, err := runText(t, client, echo, said)
		require.NoError(t, err)
		assert.Equal(t, said, answer)
	}
	stats := server.MustDo("INFO", "commandstats")
	assert.Contains(t, stats, "cmdstat_eval:calls=1,")
	assert.Contains(t, stats, "cmdstat_evalsha:calls=3,") // of which the first failed
	assert.Equal(t, server.MustDo("SCRIPT", "LOAD", echo.Source), hashOf(echo.Source))
}

func TestACommandNamesAScriptByItsHashOrItsSource(t *testing.T) {
	s, args := NewScript("return 1"), make([]any, 3)
	s.put(args, false)
	assert.Equal(t, []any{"evalsha", "e0e1f9fabfc9d4800c877a703b823ac0578ff8db", nil}, args)
	s.put(args, true)
	assert.Equal(t, []any{"eval", "return 1", nil}, args)
}

// A process under fips140=only panics where it asks for SHA-1, so this runs in one of its own.
func TestScriptsTravelWithTheirSourceWhereSHA1IsForbidden(t *testing.T) {
	const inside = "WEIR_TEST_FIPS"
	if os.Getenv(inside) == "" {
		test := exec.Command(os.Args[0], "-test.run=^"+t.Name()+"$", "-test.v")
		test.Env = append(os.Environ(), inside+"=1", "GODEBUG=fips140=only")
		out, err := test.CombinedOutput()
		require.NoError(t, err, "%s", out)
		require.True(t, strings.Contains(string(out), "--- PASS: "+t.Name()), "%s", out)
		return
	}
	s, args := NewScript("return ARGV[1]"), make([]any, 2)
	assert.Empty(t, hashOf(s.Source), "or SHA-1 is allowed, and this tests nothing")
	s.put(args, false)
	assert.Equal(t, []any{"eval", s.Source}, args)

	server := redistest.Start(t)
	client := redis.NewClient(&redis.Options{Addr: server.Addr})
	defer client.Close()
	answer, err := runText(t, client, s, "said")
	require.NoError(t, err)
	assert.Equal(t, "said", answer)
	assert.NotContains(t, server.MustDo("INFO", "commandstats"), "cmdstat_evalsha")
}
