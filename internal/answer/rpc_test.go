package answer_test

import (
	"encoding/base64"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/weirgo/weir/internal/answer"
)

func rpc(method, target, media string, proto int, fields ...string) *http.Request {
	r := httptest.NewRequest(method, target, strings.NewReader("x"))
	r.ProtoMajor = proto
	r.Header.Set("Content-Type", media)
	for i := 0; i < len(fields); i += 2 {
		r.Header.Set(fields[i], fields[i+1])
	}
	return r
}

func TestTheProtocolOfARequest(t *testing.T) {
	const version = "Connect-Protocol-Version"
	for _, c := range []struct {
		request *http.Request
		want    answer.Protocol
	}{
		{rpc("POST", "/p.S/M", "application/grpc", 2), answer.GRPC},
		{rpc("POST", "/p.S/M", "Application/GRPC+proto; x=y", 2), answer.GRPC},
		{rpc("POST", "/p.S/M", "application/grpc", 1), answer.HTTP},
		{rpc("GET", "/p.S/M", "application/grpc", 2), answer.HTTP},
		{rpc("POST", "/p.S/M", "application/grpc-web", 2), answer.HTTP},
		{rpc("POST", "/p.S/M", "application/grpc-web+proto", 2), answer.HTTP},
		{rpc("POST", "/p.S/M", "application/grpcx", 2), answer.HTTP},
		{rpc("POST", "/p.S/M", "application/json", 1, version, "1"), answer.Connect},
		{rpc("POST", "/p.S/M", "application/proto", 2, version, "1"), answer.Connect},
		{rpc("POST", "/p.S/M", "application/json", 2), answer.HTTP},
		{rpc("PUT", "/p.S/M", "application/json", 2, version, "1"), answer.HTTP},
		{rpc("POST", "/p.S/M", "application/connect+json", 1, version, "1"), answer.ConnectStream},
		{rpc("POST", "/p.S/M", "application/connect+proto", 2), answer.ConnectStream},
		{rpc("GET", "/p.S/M?connect=v1&message=x", "", 1), answer.Connect},
		{rpc("GET", "/p.S/M?message=x&connect=v1", "", 2), answer.Connect},
		{rpc("GET", "/p.S/M?disconnect=v1&connect=v12", "", 2), answer.HTTP},
		{rpc("HEAD", "/p.S/M?connect=v1", "", 2), answer.HTTP},
	} {
		assert.Equal(t, c.want, answer.ProtocolOf(c.request), "%s %s %v", c.request.Method, c.request.URL, c.request.Header)
	}
}

func TestALongQueryTakesNoMemory(t *testing.T) {
	r := rpc("GET", "/p.S/M?"+strings.Repeat("&", 100_000)+"connect=v1", "", 1)
	assert.Zero(t, testing.AllocsPerRun(10, func() { answer.ProtocolOf(r) }))
}

// A proxy that asks takes 200 for a yes.
func TestAQuestionOfAProxyIsNeverRefusedWith200(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		r := rpc(rapid.SampledFrom([]string{"GET", "POST"}).Draw(t, "method"), "/?connect=v1",
			rapid.SampledFrom([]string{"application/grpc", "application/grpc+proto", "application/connect+json", ""}).Draw(t, "type"),
			rapid.IntRange(1, 2).Draw(t, "protocol"), "Connect-Protocol-Version", "1")
		switch rapid.IntRange(0, 4).Draw(t, "body") {
		case 0:
			r.Body = http.NoBody
		case 1:
			r.Body = nil
		case 2:
			r.ContentLength = 0
		case 3: // Traefik's question
			r.Header.Set("X-Forwarded-Uri", "/p.S/M")
		default: // Envoy's
			r.Header.Set("X-Envoy-Auth-Partial-Body", "false")
		}
		if p := answer.ProtocolOf(r); p != answer.HTTP {
			status, _ := p.Refuse(http.Header{}, r, &answer.Facts{Status: 429})
			require.Equal(t, 429, status)
		}
	})
}

func TestARefusalInGRPC(t *testing.T) {
	h := http.Header{}
	f := &answer.Facts{Status: 429, Seconds: 12, Message: "100% größe {seconds}"}
	status, body := answer.GRPC.Refuse(h, nil, f)
	assert.Equal(t, 200, status)
	assert.Empty(t, body)
	assert.Equal(t, "8", h.Get("Grpc-Status"))
	assert.Equal(t, "100%25 gr%C3%B6%C3%9Fe 12", h.Get("Grpc-Message"))
	message, err := url.PathUnescape(h.Get("Grpc-Message"))
	require.NoError(t, err)
	assert.Equal(t, "100% größe 12", message)
	assert.Equal(t, "12000", h.Get("Grpc-Retry-Pushback-Ms"))
	details, err := base64.RawStdEncoding.DecodeString(h.Get("Grpc-Status-Details-Bin"))
	require.NoError(t, err)
	const retry = "\x0a\x28type.googleapis.com/google.rpc.RetryInfo\x12\x04\x0a\x02\x08\x0c"
	assert.Equal(t, "\x08\x08\x12\x0f100% größe 12\x1a\x30"+retry, string(details))
	for status, code := range map[int]string{400: "3", 401: "16", 403: "7", 420: "8", 429: "8", 503: "14"} {
		answer.GRPC.Refuse(h, nil, &answer.Facts{Status: status})
		assert.Equal(t, code, h.Get("Grpc-Status"))
		assert.Equal(t, "-1", h.Get("Grpc-Retry-Pushback-Ms"), "a retry does not help")
	}
}

func TestARefusalInConnect(t *testing.T) {
	h := http.Header{}
	status, body := answer.Connect.Refuse(h, nil, &answer.Facts{Status: 420, Seconds: 10})
	assert.Equal(t, 420, status)
	assert.Equal(t, "application/json", h.Get("Content-Type"))
	const details = `"details":[{"type":"google.rpc.RetryInfo","value":"CgIICg"}]`
	assert.JSONEq(t, `{"code":"resource_exhausted","message":"Too many requests. Try again in 10 seconds.",`+details+`}`, string(body))

	r := rpc("POST", "/", "application/connect+json", 2)
	status, body = answer.ConnectStream.Refuse(h, r, &answer.Facts{Kind: answer.Unavailable, Status: 503, Message: `"no"`})
	assert.Equal(t, 200, status)
	assert.Equal(t, "application/connect+json", h.Get("Content-Type"))
	assert.Equal(t, []byte{2, 0, 0, 0, byte(len(body) - 5)}, body[:5])
	assert.JSONEq(t, `{"error":{"code":"unavailable","message":"\"no\""}}`, string(body[5:]))
}

func TestAnAnswerOfGRPCStandsForAStatusOfHTTP(t *testing.T) {
	for code, want := range map[string]int{
		"0": 200, "1": 499, "2": 500, "3": 400, "4": 504, "5": 404, "6": 409, "7": 403, "8": 429, "9": 400, "10": 409, "11": 400, "12": 501,
		"13": 500, "14": 503, "15": 500, "16": 401, "17": 0, "-1": 0, "": 0, "16 ": 0, "300": 0,
	} {
		assert.Equal(t, want, answer.StatusOf(200, http.Header{"Content-Type": {"application/grpc"}, "Grpc-Status": {code}}), code)
	}
	for _, test := range []struct {
		status int
		header http.Header
		want   int
	}{
		{200, http.Header{"Grpc-Status": {"16"}}, 200},
		{503, http.Header{"Content-Type": {"application/grpc"}, "Grpc-Status": {"16"}}, 503},
		{200, http.Header{"Content-Type": {"application/grpc"}}, 0},
		{200, http.Header{"Content-Type": {"application/grpc"}, "Grpc-Status": {"0", "16"}}, 0},
		{200, http.Header{"Content-Type": {"application/grpc"}, "Grpc-Status": {"0"}, http.TrailerPrefix + "Grpc-Status": {"16"}}, 401},
		{200, http.Header{"Content-Type": {"application/connect+proto"}}, 0},
		{200, http.Header{"Content-Type": {"application/connect"}}, 200},
		{200, nil, 200},
	} {
		assert.Equal(t, test.want, answer.StatusOf(test.status, test.header), "%v", test)
	}
	for status := range map[int]bool{400: true, 401: true, 403: true, 429: true, 503: true} {
		h := http.Header{}
		f := answer.Facts{Status: status}
		sent, _ := answer.GRPC.Refuse(h, nil, &f)
		assert.Equal(t, status, answer.StatusOf(sent, h), "a refusal of Weir's own")
	}
}
