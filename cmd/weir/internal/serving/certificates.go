package serving

import (
	"bytes"
	"crypto/tls"
	"fmt"
	"log/slog"
	"os"
	"sync"
	"sync/atomic"
	"time"
)

// Certificates reads a certificate and its key from files, and reads them again when they change. Nil has no files.
type Certificates struct {
	cert, key string
	logger    *slog.Logger
	current   atomic.Pointer[tls.Certificate]

	mu     sync.Mutex
	looked time.Time
	text   [2][]byte // of the files
}

// NewCertificates reads the files.
func NewCertificates(cert, key string, logger *slog.Logger) (*Certificates, error) {
	c := &Certificates{cert: cert, key: key, logger: logger}
	return c, c.Reread()
}

// lookEvery is the shortest time between two reads of the files during handshakes.
const lookEvery = 5 * time.Second

// Config returns the TLS configuration of a server with the certificate.
func (c *Certificates) Config() *tls.Config {
	return &tls.Config{GetCertificate: func(*tls.ClientHelloInfo) (*tls.Certificate, error) {
		if c.mu.TryLock() {
			due := time.Since(c.looked) >= lookEvery
			c.mu.Unlock()
			if due {
				if err := c.Reread(); err != nil {
					c.logger.Warn("weir: the certificate in use is kept: " + err.Error())
				}
			}
		}
		return c.current.Load(), nil
	}}
}

// Reread reads the files. If it fails, the present certificate stays in use.
func (c *Certificates) Reread() error {
	if c == nil {
		return nil
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.looked = time.Now()
	cert, err := os.ReadFile(c.cert)
	if err != nil {
		return fmt.Errorf("--tls-cert: %w", err)
	}
	key, err := os.ReadFile(c.key)
	if err != nil {
		return fmt.Errorf("--tls-key: %w", err)
	}
	if c.current.Load() != nil && bytes.Equal(cert, c.text[0]) && bytes.Equal(key, c.text[1]) {
		return nil
	}
	pair, err := tls.X509KeyPair(cert, key)
	if err != nil {
		return fmt.Errorf("--tls-cert %s and --tls-key %s: %w", c.cert, c.key, err)
	}
	c.text = [2][]byte{cert, key}
	c.current.Store(&pair)
	return nil
}
