package lab

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"os"
	"os/exec"
	"sync"
	"testing"
)

// A nodeProcess is node/clients.mjs, which sends the requests of all clients in Node.
type nodeProcess struct {
	mu      sync.Mutex
	in      *json.Encoder
	answers []chan string // by id
}

// nodeClients installs the clients of node/package.json, in their pinned versions, and starts them.
func nodeClients(t *testing.T) []row {
	install := exec.Command("npm", "ci", "--no-audit", "--no-fund")
	install.Dir = "node"
	if out, err := install.CombinedOutput(); err != nil {
		t.Fatalf("npm ci in node: %v\n%s", err, out)
	}
	node := exec.Command("node_modules/.bin/node", "clients.mjs")
	node.Dir, node.Stderr = "node", os.Stderr
	in, err := node.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := node.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := node.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = node.Process.Kill(); _ = node.Wait() })
	p := &nodeProcess{in: json.NewEncoder(in)}
	go p.read(out)

	versions := versionsOf(t)
	client := func(name, setup string, post bool) row {
		version := versions[name]
		if name == "fetch" {
			version = "of Node " + versions["node"]
		}
		return row{name: name + " " + version, setup: setup, post: post, call: func(ctx context.Context, method, url string, body []byte) error {
			return p.call(ctx, name, method, url, len(body))
		}}
	}
	return []row{
		client("fetch", "as it is", false),
		client("got", "defaults", false),
		client("ky", "`timeout: false`", false),
		client("axios-retry", "`{ retries: 3 }`", false),
		client("undici", "`new RetryAgent(new Agent())`", false),
		client("openai", "defaults", true),
	}
}

func versionsOf(t *testing.T) map[string]string {
	text, err := os.ReadFile("node/package.json")
	if err != nil {
		t.Fatal(err)
	}
	var file struct {
		Dependencies map[string]string `json:"dependencies"`
	}
	if err := json.Unmarshal(text, &file); err != nil {
		t.Fatal(err)
	}
	return file.Dependencies
}

// read passes on the answers. Its end is no answer: calls without one end with their contexts.
func (p *nodeProcess) read(out io.Reader) {
	for lines := bufio.NewScanner(out); lines.Scan(); {
		var answer struct {
			ID    int    `json:"id"`
			Error string `json:"error"`
		}
		if json.Unmarshal(lines.Bytes(), &answer) == nil {
			p.mu.Lock()
			p.answers[answer.ID] <- answer.Error
			p.mu.Unlock()
		}
	}
}

func (p *nodeProcess) call(ctx context.Context, client, method, url string, size int) error {
	if method == http.MethodGet {
		size = 0
	}
	answer := make(chan string, 1)
	p.mu.Lock()
	p.answers = append(p.answers, answer)
	err := p.in.Encode(map[string]any{"id": len(p.answers) - 1, "client": client, "method": method, "url": url, "size": size})
	p.mu.Unlock()
	if err != nil {
		return err
	}
	select {
	case text := <-answer:
		if text != "" {
			return errors.New(text)
		}
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
