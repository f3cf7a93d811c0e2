package sloglimit_test

import (
	"context"
	"log/slog"
	"net/http"
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/weirgo/weir/keyfunc"
	"github.com/weirgo/weir/limiter"
	"github.com/weirgo/weir/observe/sloglimit"
	"github.com/weirgo/weir/pace"
)

// refusing is a server that lets nothing pass.
type refusing struct{}

func (refusing) RoundTrip(r *http.Request) (*http.Response, error) {
	header := http.Header{"Retry-After": {"600"}}
	return &http.Response{StatusCode: http.StatusTooManyRequests, ProtoMajor: 1, ProtoMinor: 1, Header: header, Body: http.NoBody, Request: r}, nil
}

func TestRecordsOfCooldownsAndUnsentRequestsHaveNoToken(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		secret, token := []byte("0123456789abcdef"), "Bearer ghp_0123456789"
		written := &log{}
		// ShowKeys is about clients' keys: of a token there is nothing but the digest.
		calls := sloglimit.Must(sloglimit.New(sloglimit.Options{Logger: slog.New(slog.NewJSONHandler(written, nil)), ShowKeys: true}))
		transport := pace.Must(pace.NewTransport(refusing{}, pace.Options{
			Rules:    []pace.Rule{{Name: "github", Host: "api.github.com", Key: pace.Token, Limit: limiter.PerSecond(100)}},
			Observer: calls, Secret: secret,
		}))
		for range 100 {
			r, err := http.NewRequestWithContext(context.Background(), http.MethodGet, "https://api.github.com/user?access_token=ghp_0123456789", nil)
			require.NoError(t, err)
			r.Header.Set("Authorization", token)
			_, _ = transport.RoundTrip(r)
		}
		assert.NotContains(t, written.text.String(), "ghp_")
		digest := keyfunc.NewDigester(secret).Digest(token).String()
		records := written.take(t)
		require.Len(t, records, 2)
		assert.Equal(t, "weir-cooldown", records[0]["code"])
		assert.Equal(t, "weir-gave-up", records[1]["code"])
		for _, r := range records {
			assert.Equal(t, "github", r["rule"])
			assert.Equal(t, digest, r["key"])
			assert.Equal(t, 1.0, r["requests"])
			assert.InDelta(t, 600, r["retry_after"], 1, "seconds")
		}
		calls.Flush()
		records = written.take(t)
		require.Len(t, records, 1)
		assert.Equal(t, "weir-gave-up", records[0]["code"])
		assert.Equal(t, 98.0, records[0]["requests"])
	})
}
