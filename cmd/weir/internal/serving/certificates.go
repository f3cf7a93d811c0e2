package serving

import (
	"crypto/tls"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"
)

// Certificates reads a certificate and its key from files, and reads them again during handshakes.
type Certificates struct {
	cert, key string
	logger    *slog.Logger
	current   atomic.Pointer[tls.Certificate]

	mu   sync.Mutex
	read time.Time
}

// NewCertificates reads the files.
func NewCertificates(cert, key string, logger *slog.Logger) (*Certificates, error) {
	c := &Certificates{cert: cert, key: key, logger: logger}
	return c, c.reread()
}

// readEvery is the shortest time between two reads of the files.
const readEvery = 5 * time.Second

// Config returns the TLS configuration of a server with the certificate.
func (c *Certificates) Config() *tls.Config {
	return &tls.Config{GetCertificate: func(*tls.ClientHelloInfo) (*tls.Certificate, error) {
		if c.mu.TryLock() { // otherwise another handshake reads the files
			if time.Since(c.read) >= readEvery {
				if err := c.reread(); err != nil {
					c.logger.Warn("weir: the certificate in use is kept: " + err.Error())
				}
			}
			c.mu.Unlock()
		}
		return c.current.Load(), nil
	}}
}

func (c *Certificates) reread() error {
	c.read = time.Now()
	pair, err := tls.LoadX509KeyPair(c.cert, c.key)
	if err != nil {
		return fmt.Errorf("--tls-cert %s and --tls-key %s: %w", c.cert, c.key, err)
	}
	c.current.Store(&pair)
	return nil
}
