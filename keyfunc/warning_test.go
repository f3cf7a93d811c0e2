package keyfunc_test

import (
	"bytes"
	"encoding/json"
	"log/slog"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/weirgo/weir/keyfunc"
)

// logged is what slog's default logger writes until the end of the test.
func logged(t *testing.T) *bytes.Buffer {
	t.Helper()
	before := slog.Default()
	t.Cleanup(func() { slog.SetDefault(before) })
	keyfunc.ForgetProxyWarnings()
	var log bytes.Buffer
	slog.SetDefault(slog.New(slog.NewJSONHandler(&log, nil)))
	return &log
}

func TestAnUntrustedProxyIsReportedOnce(t *testing.T) {
	for _, header := range []string{
		"X-Forwarded-For", "Forwarded", "X-Real-Ip", "Cf-Connecting-Ip", "True-Client-Ip",
	} {
		t.Run(header, func(t *testing.T) {
			log := logged(t)
			for range 1000 {
				for _, f := range []keyfunc.Func{keyfunc.IP(), keyfunc.Fingerprint()} {
					keyOf(t, f, from("10.0.0.1:1", header, "198.51.100.7"))
				}
			}
			var line struct{ Level, Msg, Code, Header string }
			require.NoError(t, json.Unmarshal(log.Bytes(), &line), "one line, for all limits: %s", log)
			assert.Equal(t, "WARN", line.Level)
			assert.Equal(t, "weir-untrusted-proxy", line.Code)
			assert.Equal(t, header, line.Header)
			assert.Contains(t, line.Msg, "TrustProxies")
			assert.NotContains(t, log.String(), "198.51.100.7", "the client's text stays out of the log")
		})
	}
}

func TestAProxyThatComesLateIsStillReported(t *testing.T) {
	log := logged(t)
	f := keyfunc.IP()
	for range 10_000 {
		keyOf(t, f, from("192.0.2.1:1"))
	}
	require.Empty(t, log.String(), "a request without such a header is nothing to report")
	// One request in 64 is looked at: that all of these are missed won't happen.
	for range 64 * 64 {
		keyOf(t, f, from("10.0.0.1:1", "X-Forwarded-For", "198.51.100.7"))
	}
	assert.Equal(t, 1, bytes.Count(log.Bytes(), []byte("\n")))
}

func TestATrustedProxyIsNotReported(t *testing.T) {
	log := logged(t)
	for _, opt := range []keyfunc.IPOption{
		keyfunc.TrustProxies("10.0.0.0/8"),
		keyfunc.TrustForwarded("10.0.0.0/8"),
		keyfunc.TrustHops(1),
		keyfunc.TrustHeader("X-Real-IP", "10.0.0.0/8"),
	} {
		f := keyfunc.IP(opt)
		for _, peer := range []string{"10.0.0.1:1", "203.0.113.9:1"} {
			keyOf(t, f, from(peer, "X-Forwarded-For", "192.0.2.1", "X-Real-IP", "192.0.2.1"))
		}
	}
	assert.Empty(t, log.String())
}

func TestARewrittenAddressIsInDoubtAndReportedOnce(t *testing.T) {
	log := logged(t)
	f := keyfunc.IP()
	for range 10 {
		text, class := classified(t, f, from("192.0.2.1"))
		assert.Equal(t, "192.0.2.1", text)
		assert.Equal(t, keyfunc.InDoubt, class)
	}
	var line struct{ Code string }
	require.NoError(t, json.Unmarshal(log.Bytes(), &line), "one line: %s", log)
	assert.Equal(t, "weir-rewritten-address", line.Code)
	assert.NotContains(t, log.String(), "192.0.2.1")
}

func TestAnAddressThatIsFromAHeaderChoosesNoKey(t *testing.T) {
	log := logged(t)
	for _, header := range []string{"X-Forwarded-For", "Forwarded", "X-Real-IP", "True-Client-IP", "CF-Connecting-IP"} {
		for _, f := range []keyfunc.Func{
			keyfunc.IP(),
			keyfunc.IP(keyfunc.TrustProxies("192.0.2.0/24")),
			keyfunc.IP(keyfunc.TrustForwarded("192.0.2.0/24")),
			keyfunc.IP(keyfunc.TrustHeader("X-Real-IP", "192.0.2.0/24")),
		} {
			for _, client := range []string{"192.0.2.1", "203.0.113.9", "2001:db8::1", "[2001:db8::1]"} {
				text, class := classified(t, f, from(client, header, client))
				assert.Equal(t, "no-ip", text)
				assert.Equal(t, keyfunc.Shared, class)
			}
		}
	}
	assert.NotContains(t, log.String(), "weir-untrusted-proxy", "which says that all may be well")
}

func TestARewrittenAddressIsOnNoList(t *testing.T) {
	address, err := keyfunc.NewAddress(keyfunc.TrustProxies("10.0.0.0/8"))
	require.NoError(t, err)
	for _, peer := range []string{"192.0.2.1", "10.0.0.1", "::1"} {
		assert.False(t, address(from(peer, "X-Forwarded-For", "192.0.2.1")).IsValid(), peer)
	}
}

func TestWhereAnyPeerIsTrustedItsAddressDoesNotMatter(t *testing.T) {
	f := keyfunc.IP(keyfunc.TrustHops(1))
	assert.Equal(t, "192.0.2.7", keyOf(t, f, from("198.51.100.1", "X-Forwarded-For", "192.0.2.7")))
	assert.Equal(t, keyfunc.Own, classOf(t, f, from("198.51.100.1", "X-Forwarded-For", "192.0.2.7")))
}

func TestAProxyThatNamesNoClientIsReportedOnce(t *testing.T) {
	const trust = "10.0.0.0/8"
	for name, c := range map[string]struct {
		option       keyfunc.IPOption
		silent, says []string // fields of a proxy that names no client, and of one that does
	}{
		"TrustProxies":   {keyfunc.TrustProxies(trust), []string{"X-Forwarded-For", "unknown"}, []string{"X-Forwarded-For", "192.0.2.7"}},
		"TrustForwarded": {keyfunc.TrustForwarded(trust), []string{"Forwarded", "for=_hidden"}, []string{"Forwarded", "for=192.0.2.7"}},
		"TrustHops":      {keyfunc.TrustHops(2), []string{"X-Forwarded-For", "192.0.2.7"}, []string{"X-Forwarded-For", "192.0.2.7, 10.0.0.9"}},
		"TrustHeader":    {keyfunc.TrustHeader("X-Real-IP", trust), []string{"X-Forwarded-For", "192.0.2.7"}, []string{"X-Real-IP", "192.0.2.7"}},
	} {
		t.Run(name, func(t *testing.T) {
			for _, fields := range [][]string{nil, c.silent} {
				log := logged(t)
				keys := []keyfunc.Func{keyfunc.IP(c.option), keyfunc.Fingerprint(c.option)}
				for range 10 {
					keyOf(t, keys[0], from("10.0.0.1:1", "User-Agent", "ELB-HealthChecker/2.0"))
				}
				for range 4 {
					keyOf(t, keys[0], from("10.0.0.1:1", fields...))
				}
				require.Empty(t, log.String(), "too early to tell")
				for range 100 {
					for _, key := range keys {
						keyOf(t, key, from("10.0.0.1:1", fields...))
					}
				}
				require.Equal(t, 1, bytes.Count(log.Bytes(), []byte("weir-unnamed-client")), "%s", log)
				require.NotContains(t, log.String(), "192.0.2.7")
			}
			log, key := logged(t), keyfunc.IP(c.option)
			keyOf(t, key, from("10.0.0.1:1", c.says...))
			for range 100 {
				keyOf(t, key, from("10.0.0.1:1"))
			}
			require.Empty(t, log.String(), "the proxy names its clients")
		})
	}
}

func TestPeersWithoutAnAddressAreReportedOnce(t *testing.T) {
	for _, peer := range []string{"@", "", ":0", "/run/weir.sock", "pipe"} {
		for name, key := range map[string]keyfunc.Func{"no option": keyfunc.IP(), "a proxy": keyfunc.IP(keyfunc.TrustProxies("10.0.0.0/8"))} {
			log := logged(t)
			for range 100 {
				text, _ := classified(t, key, from(peer))
				require.Equal(t, "no-ip", text)
			}
			require.Equal(t, 1, bytes.Count(log.Bytes(), []byte("weir-unnamed-client")), "%s %q: %s", name, peer, log)
		}
		log, key := logged(t), keyfunc.IP()
		keyOf(t, key, from("192.0.2.1:1"))
		for range 100 {
			keyOf(t, key, from(peer))
		}
		require.Empty(t, log.String(), "other peers have an address")
	}
	log, key := logged(t), keyfunc.IP(keyfunc.TrustProxies(), keyfunc.TrustUnixSocket())
	for range 100 {
		keyOf(t, key, from("@", "X-Forwarded-For", "192.0.2.7"))
	}
	require.Empty(t, log.String())
}

func TestUsersThatNoLimitSeesAreReportedOnce(t *testing.T) {
	keyfunc.ForgetUsers()
	log := logged(t)
	key := keyfunc.First(keyfunc.User, keyfunc.IP())
	for range 100 {
		keyOf(t, key, from("192.0.2.1:1"))
	}
	require.Empty(t, log.String(), "nobody names users")
	for range 100 {
		r := from("192.0.2.1:1")
		keyOf(t, key, r)
		keyfunc.WithUser(r.Context(), "42")
	}
	require.Equal(t, 1, bytes.Count(log.Bytes(), []byte("weir-keyless")), "%s", log)

	keyfunc.ForgetUsers()
	log.Reset()
	r := from("192.0.2.1:1")
	keyOf(t, key, r.WithContext(keyfunc.WithUser(r.Context(), "42")))
	for range 100 {
		keyOf(t, key, r)
	}
	require.Empty(t, log.String(), "others are guests")
}
