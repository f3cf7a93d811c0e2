package redistest

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"io"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"sync/atomic"
	"testing"
	"time"
)

// A Link is a long way to servers: a connection costs a round trip to make, and what is sent
// arrives half a round trip later, either way, however much is already under way.
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
	far, err := new(net.Dialer).DialContext(ctx, network, addr)
	if err != nil {
		return nil, err
	}
	if l.Lose != nil {
		far = losing{far, l.Lose}
	}
	if l.RoundTrip == 0 {
		return far, nil
	}
	select {
	case <-ctx.Done():
		_ = far.Close()
		return nil, ctx.Err()
	case <-time.After(l.RoundTrip):
	}
	near, relayed, err := pair()
	if err != nil {
		_ = far.Close()
		return nil, err
	}
	go l.relay(relayed, far)
	go l.relay(far, relayed)
	return near, nil
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

// pair is two ends of a TCP connection. They have file descriptors, as go-redis looks for
// connections that the server has closed.
func pair() (near, far net.Conn, err error) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, nil, err
	}
	defer listener.Close()
	if near, err = net.Dial("tcp", listener.Addr().String()); err != nil {
		return nil, nil, err
	}
	if far, err = listener.Accept(); err != nil {
		_ = near.Close()
		return nil, nil, err
	}
	return near, far, nil
}

// relay passes on what is read, half a round trip later. The end of one direction ends the
// other.
func (l *Link) relay(to, from net.Conn) {
	type piece struct {
		due  time.Time
		data []byte
	}
	pieces := make(chan piece, 4096)
	go func() {
		defer to.Close()
		defer from.Close()
		for p := range pieces {
			time.Sleep(time.Until(p.due))
			if _, err := to.Write(p.data); err != nil {
				break
			}
		}
		for range pieces {
		}
	}()
	defer close(pieces)
	for {
		data := make([]byte, 16<<10)
		n, err := from.Read(data)
		if n > 0 {
			pieces <- piece{time.Now().Add(l.RoundTrip / 2), data[:n]}
		}
		if err != nil {
			return
		}
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
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	must(err)
	certificate := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "redis"}, IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(24 * time.Hour), IsCA: true, BasicConstraintsValid: true,
		KeyUsage: x509.KeyUsageDigitalSignature | x509.KeyUsageCertSign,
	}
	der, err := x509.CreateCertificate(rand.Reader, certificate, certificate, &key.PublicKey, key)
	must(err)
	keyDER, err := x509.MarshalPKCS8PrivateKey(key)
	must(err)
	dir := t.TempDir()
	write := func(name, kind string, der []byte) string {
		path := filepath.Join(dir, name)
		must(os.WriteFile(path, pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der}), 0o600))
		return path
	}
	certPath, keyPath := write("cert.pem", "CERTIFICATE", der), write("key.pem", "PRIVATE KEY", keyDER)
	port := freePort(t)
	s = Start(t, "--tls-port", port, "--tls-cert-file", certPath, "--tls-key-file", keyPath, "--tls-ca-cert-file", certPath, "--tls-auth-clients", "no")
	roots := x509.NewCertPool()
	parsed, err := x509.ParseCertificate(der)
	must(err)
	roots.AddCert(parsed)
	return s, "127.0.0.1:" + port, &tls.Config{RootCAs: roots, ServerName: "127.0.0.1"}
}
