package redistest

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"io"
	"net"
	"net/http/httptest"
	"os"
	"path/filepath"
	"sync/atomic"
	"testing"
	"time"
)

// A Link is a long way to servers: a connection costs a round trip to make, and so does what
// is written to it at once.
type Link struct {
	RoundTrip time.Duration

	// Lose, if set, reports whether an answer that has come is lost, with its connection.
	Lose func() bool

	dials atomic.Int64
}

// Dials is how many connections were begun.
func (l *Link) Dials() int { return int(l.dials.Load()) }

// Dial is a Dialer for clients of go-redis. It heeds its context, as go-redis's own does.
func (l *Link) Dial(ctx context.Context, network, addr string) (net.Conn, error) {
	l.dials.Add(1)
	conn, err := new(net.Dialer).DialContext(ctx, network, addr)
	if err != nil {
		return nil, err
	}
	select {
	case <-ctx.Done():
		_ = conn.Close()
		return nil, ctx.Err()
	case <-time.After(l.RoundTrip):
	}
	if l.RoundTrip > 0 {
		conn = &far{Conn: conn, roundTrip: l.RoundTrip}
	}
	if l.Lose != nil {
		conn = losing{conn, l.Lose}
	}
	return conn, nil
}

// A far connection's writes arrive late.
type far struct {
	net.Conn
	roundTrip time.Duration
	written   time.Time
}

func (c *far) Write(b []byte) (int, error) {
	if time.Since(c.written) > c.roundTrip/4 { // else it follows the write before, as one of TLS's records
		time.Sleep(c.roundTrip)
	}
	c.written = time.Now()
	return c.Conn.Write(b)
}

// A losing connection is closed with an answer that is lost.
type losing struct {
	net.Conn
	lose func() bool
}

func (c losing) Read(b []byte) (int, error) {
	n, err := c.Conn.Read(b)
	if err == nil && c.lose() {
		_ = c.Close()
		return 0, io.EOF
	}
	return n, err
}

// DialTLS is Dial for a server that speaks TLS. As in go-redis's own, the handshake heeds
// no context.
func (l *Link) DialTLS(config *tls.Config) func(ctx context.Context, network, addr string) (net.Conn, error) {
	return func(ctx context.Context, network, addr string) (net.Conn, error) {
		conn, err := l.Dial(context.WithoutCancel(ctx), network, addr)
		if err != nil {
			return nil, err
		}
		secure := tls.Client(conn, config)
		if err := secure.HandshakeContext(context.Background()); err != nil {
			_ = conn.Close()
			return nil, err
		}
		return secure, nil
	}
}

// StartTLS is Start for a server that speaks TLS too, at the address that it returns with
// what a client needs to trust it.
func StartTLS(t testing.TB) (s *Server, addr string, client *tls.Config) {
	t.Helper()
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatalf("redistest: a certificate: %v", err)
		}
	}
	https := httptest.NewTLSServer(nil) // which has a certificate for this address
	defer https.Close()
	certificate := https.TLS.Certificates[0]
	key, err := x509.MarshalPKCS8PrivateKey(certificate.PrivateKey)
	must(err)
	dir := t.TempDir()
	write := func(name, kind string, der []byte) string {
		path := filepath.Join(dir, name)
		must(os.WriteFile(path, pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der}), 0o600))
		return path
	}
	certPath, keyPath := write("cert.pem", "CERTIFICATE", certificate.Certificate[0]), write("key.pem", "PRIVATE KEY", key)
	port := freePort(t)
	s = Start(t, "--tls-port", port, "--tls-cert-file", certPath, "--tls-key-file", keyPath, "--tls-ca-cert-file", certPath, "--tls-auth-clients", "no")
	roots := x509.NewCertPool()
	roots.AddCert(https.Certificate())
	return s, "127.0.0.1:" + port, &tls.Config{RootCAs: roots, ServerName: "127.0.0.1"}
}
