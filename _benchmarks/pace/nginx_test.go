package pace

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"
)

// An nginx is a third party that limits requests as most do: limit_req. Its access log is the
// referee.
type nginx struct {
	addr, dir string
	cmd       *exec.Cmd
}

// nginxConfig has a file's answer, as limit_req comes after return.
const nginxConfig = `daemon off;
master_process off;
pid %[1]s/pid;
error_log %[1]s/error.log;
events { worker_connections 1024; }
http {
	log_format arrivals '$msec $status';
	access_log %[1]s/arrivals arrivals;
	client_body_temp_path %[1]s/body;
	proxy_temp_path %[1]s/proxy;
	fastcgi_temp_path %[1]s/fastcgi;
	uwsgi_temp_path %[1]s/uwsgi;
	scgi_temp_path %[1]s/scgi;
	keepalive_requests 10000000;
	limit_req_zone $server_port zone=all:1m rate=%[3]dr/s;
	limit_req_status 429;
	limit_req_log_level info;
	server {
		listen %[2]s;
		location / {
			limit_req zone=all burst=%[4]d nodelay;
			empty_gif;
		}
	}
}
`

func nginxParty(ctx context.Context, limit int64) (party, error) {
	addr, err := freeAddr()
	if err != nil {
		return nil, err
	}
	dir, err := os.MkdirTemp("", "pace")
	if err != nil {
		return nil, err
	}
	n := &nginx{addr: addr, dir: dir}
	config := filepath.Join(dir, "nginx.conf")
	if err := os.WriteFile(config, fmt.Appendf(nil, nginxConfig, dir, addr, limit, burst), 0o600); err != nil {
		return nil, errors.Join(err, os.RemoveAll(dir))
	}
	var complaints bytes.Buffer
	n.cmd = exec.CommandContext(ctx, "nginx", "-p", dir, "-e", filepath.Join(dir, "error.log"), "-c", config)
	n.cmd.Stderr = &complaints
	if err := n.cmd.Start(); err != nil {
		_ = os.RemoveAll(dir)
		if errors.Is(err, exec.ErrNotFound) {
			return nil, errors.New("nginx is not installed; install it with: apt-get install nginx-light (Debian, Ubuntu) or brew install nginx (macOS)")
		}
		return nil, err
	}
	for deadline := time.Now().Add(10 * time.Second); ; time.Sleep(10 * time.Millisecond) {
		connection, err := net.Dial("tcp", addr)
		if err == nil {
			return n, connection.Close()
		}
		if ctx.Err() != nil || time.Now().After(deadline) {
			n.close()
			return nil, fmt.Errorf("nginx does not answer: %w, %s", err, complaints.String())
		}
	}
}

func (n *nginx) url() string { return "http://" + n.addr + "/" }

func (n *nginx) close() {
	_ = n.cmd.Process.Kill() // it may be gone already
	_ = n.cmd.Wait()
	_ = os.RemoveAll(n.dir)
}

func (n *nginx) arrivals(since time.Time) (came []arrival, err error) {
	text, err := os.ReadFile(filepath.Join(n.dir, "arrivals"))
	if err != nil {
		return nil, err
	}
	for line := range strings.Lines(string(text)) {
		var seconds, millis int64
		var a arrival
		if _, err := fmt.Sscanf(line, "%d.%d %d", &seconds, &millis, &a.status); err != nil {
			return nil, fmt.Errorf("nginx's log has a line %q: %w", line, err)
		}
		if a.at = time.UnixMilli(1000*seconds + millis); !a.at.Before(since) {
			came = append(came, a)
		}
	}
	return came, nil
}
