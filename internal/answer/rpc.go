package answer

import (
	"encoding/base64"
	"encoding/binary"
	"net/http"
	"strconv"
	"strings"
)

// A Protocol is how clients read a refusal. It is not negotiated.
type Protocol uint8

const (
	HTTP          Protocol = iota // in a Format
	GRPC                          // whose clients take any status but 200 for a failure of the network
	Connect                       // unary
	ConnectStream                 // an error ends the stream
)

// connectGet is in the query of each GET of Connect.
const connectGet = "connect=v1"

// ProtocolOf returns the protocol of a request. Refusals of gRPC and of streams have status 200. A proxy that asks
// about a request would take that for a yes. Most send no body, so a request without a body is HTTP. Traefik
// (forwardBody) and Envoy (with_request_body) may send one, beside a field that no other request has from them.
func ProtocolOf(r *http.Request) Protocol {
	switch r.Method {
	case http.MethodGet:
		if r.URL == nil || !strings.Contains(r.URL.RawQuery, connectGet) {
			return HTTP
		}
		for parameter := range strings.SplitSeq(r.URL.RawQuery, "&") {
			if parameter == connectGet {
				return Connect
			}
		}
	case http.MethodPost:
		media, _, _ := strings.Cut(r.Header.Get("Content-Type"), ";")
		media = strings.ToLower(strings.TrimSpace(media))
		isQuestion := len(r.Header["X-Forwarded-Uri"]) > 0 || len(r.Header["X-Envoy-Auth-Partial-Body"]) > 0
		isCall := r.ContentLength != 0 && r.Body != nil && r.Body != http.NoBody && !isQuestion
		switch rest, isGRPC := strings.CutPrefix(media, "application/grpc"); {
		case strings.HasPrefix(media, "application/connect+"):
			if isCall {
				return ConnectStream
			}
		case isGRPC && (rest == "" || rest[0] == '+'):
			if isCall && r.ProtoMajor == 2 {
				return GRPC
			}
		case len(r.Header["Connect-Protocol-Version"]) > 0:
			return Connect
		}
	}
	return HTTP
}

// A code is a status of gRPC and Connect.
type code struct {
	number uint64
	name   string
}

func codeOf(status int) code {
	switch status {
	case http.StatusBadRequest:
		return code{3, "invalid_argument"}
	case http.StatusForbidden:
		return code{7, "permission_denied"}
	case http.StatusUnauthorized:
		return code{16, "unauthenticated"}
	case http.StatusServiceUnavailable:
		return code{14, "unavailable"}
	}
	return code{8, "resource_exhausted"}
}

// statuses are those of HTTP that stand for the codes of gRPC, from 0 on.
var statuses = [...]int{200, 499, 500, 400, 504, 404, 409, 403, 429, 400, 409, 400, 501, 500, 503, 500, 401}

// StatusOf returns the status of HTTP that an answer with this status and header stands for, or 0 if that is unknown.
// An error of gRPC, and of a stream of Connect, has status 200. gRPC has its code in a field or a trailer. gRPC-Web and
// streams of Connect have it at the end of the body, which Weir does not read.
func StatusOf(status int, h http.Header) int {
	media := strings.ToLower(strings.TrimSpace(h.Get("Content-Type")))
	switch {
	case status != http.StatusOK:
		return status
	case strings.HasPrefix(media, "application/connect+"):
		return 0
	case !strings.HasPrefix(media, "application/grpc"):
		return status
	}
	const field = "Grpc-Status"
	codes := h[field]
	for name, values := range h { // a trailer of net/http keeps its spelling
		if name, isTrailer := strings.CutPrefix(name, http.TrailerPrefix); isTrailer && strings.EqualFold(name, field) {
			codes = values
		}
	}
	if len(codes) != 1 {
		return 0
	}
	code, err := strconv.ParseUint(codes[0], 10, 8)
	if err != nil || code >= uint64(len(statuses)) {
		return 0
	}
	return statuses[code]
}

// Refuse sets the header fields of the answer to r in protocol p, which is not HTTP. It returns the status and the
// body.
func (p Protocol) Refuse(h http.Header, r *http.Request, f *Facts) (status int, body []byte) {
	switch p {
	case GRPC:
		h.Set("Content-Type", "application/grpc")
		f.setGRPC(h)
		return http.StatusOK, nil
	case ConnectStream:
		h.Set("Content-Type", r.Header.Get("Content-Type"))
		const endOfStream, prefix = 2, 5
		body = append([]byte{endOfStream, 0, 0, 0, 0}, `{"error":`...)
		body = append(f.appendConnect(body), '}')
		binary.BigEndian.PutUint32(body[1:], uint32(len(body)-prefix))
		return http.StatusOK, body
	}
	h.Set("Content-Type", "application/json")
	return f.Status, f.appendConnect(nil)
}

// setGRPC sets the fields that are trailers of other answers. A negative pushback says that a retry does not help.
func (f *Facts) setGRPC(h http.Header) {
	code, message, pushback := codeOf(f.Status), f.appendMessage(nil, false), int64(-1)
	details := appendBytes(binary.AppendUvarint([]byte{1 << 3}, code.number), 2, message) // a google.rpc.Status
	if f.Seconds > 0 {
		if !f.Stop {
			pushback = f.Wait() * 1000
		}
		retry := appendBytes(nil, 1, []byte("type.googleapis.com/"+retryInfo)) // a google.protobuf.Any
		details = appendBytes(details, 3, appendBytes(retry, 2, f.retryInfo()))
	}
	text := make([]byte, 0, len(message))
	for _, c := range message {
		if c < ' ' || c > '~' || c == '%' {
			text = append(text, '%', "0123456789ABCDEF"[c>>4], "0123456789ABCDEF"[c&15])
		} else {
			text = append(text, c)
		}
	}
	h.Set("Grpc-Status", strconv.FormatUint(code.number, 10))
	h.Set("Grpc-Message", string(text))
	h.Set("Grpc-Status-Details-Bin", base64.RawStdEncoding.EncodeToString(details))
	h.Set("Grpc-Retry-Pushback-Ms", strconv.FormatInt(pushback, 10))
}

// appendConnect appends an error of Connect.
func (f *Facts) appendConnect(b []byte) []byte {
	b = append(append(append(b, `{"code":"`...), codeOf(f.Status).name...), `","message":"`...)
	b = append(f.appendMessage(b, true), '"')
	if f.Seconds > 0 {
		b = append(b, `,"details":[{"type":"`+retryInfo+`","value":"`...)
		b = append(base64.RawStdEncoding.AppendEncode(b, f.retryInfo()), `"}]`...)
	}
	return append(b, '}')
}

const retryInfo = "google.rpc.RetryInfo"

// retryInfo returns a RetryInfo, with a Duration of Wait.
func (f *Facts) retryInfo() []byte {
	return appendBytes(nil, 1, binary.AppendUvarint([]byte{1 << 3}, uint64(f.Wait())))
}

// appendBytes appends a field of bytes or a message to a message of Protocol Buffers.
func appendBytes(b []byte, field byte, value []byte) []byte {
	const lengthDelimited = 2
	b = binary.AppendUvarint(append(b, field<<3|lengthDelimited), uint64(len(value)))
	return append(b, value...)
}
