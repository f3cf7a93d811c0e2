package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log"
	"math/rand/v2"
	"net"
	"net/http"
	"net/http/httputil"
	"net/url"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"sync"
	"time"
)

// A request is a chat completion of a made-up model, which answers with as many tokens as the request says.
type request struct {
	id, key string
	body    []byte
	isGiven bool // the maximum of tokens
	stream  bool
	leaves  bool
	length  int           // tokens of the answer; -1: without end
	pause   time.Duration // before each chunk
	piece   int           // tokens of a chunk
}

func newRequest(key string, isGiven bool) *request {
	return &request{
		id: strconv.FormatUint(rand.Uint64(), 36), key: key, isGiven: isGiven,
		stream: rand.N(2) == 0, leaves: rand.N(10) == 0, length: 1 + rand.N(maximum), pause: pause, piece: piece,
	}
}

// http returns the request to a gateway.
func (q *request) http(addr string) *http.Request {
	body := map[string]any{
		"model": "m", "messages": []any{map[string]any{"role": "user", "content": strings.Repeat("word ", 10)}},
		"stream": q.stream, "length": q.length, "pause": q.pause, "piece": q.piece,
	}
	if q.isGiven {
		body["max_tokens"] = maximum
	}
	q.body, _ = json.Marshal(body)
	r, err := http.NewRequest(http.MethodPost, "http://"+addr+"/v1/chat/completions", strings.NewReader(string(q.body)))
	check(err)
	r.Header.Set("Authorization", "Bearer "+q.key)
	r.Header.Set("Content-Type", "application/json")
	r.Header.Set("X-Call", q.id)
	return r
}

// send returns the status of the answer, and whether it was read to its end.
func (q *request) send(client *http.Client, addr string) (status int, whole bool) {
	stays := time.Minute
	if q.leaves {
		stays = rand.N(pause * time.Duration(q.length/piece+1))
	}
	ctx, leave := context.WithTimeout(context.Background(), stays)
	defer leave()
	r := q.http(addr).WithContext(ctx)
	res, err := client.Do(r)
	if err != nil && q.leaves {
		return 0, false
	}
	check(err)
	defer res.Body.Close()
	_, err = io.Copy(io.Discard, res.Body)
	if res.StatusCode != http.StatusOK && res.StatusCode != http.StatusTooManyRequests {
		log.Fatal("answered ", res.Status)
	}
	return res.StatusCode, err == nil
}

// call returns what the provider did for the request.
func (q *request) call(sent time.Time, whole bool, reserves int64) call {
	c := call{sent: sent, came: sent}
	if done, ok := seen.Load(q.id); ok { // else the client left before its request came
		d := done.(*work)
		<-d.ended
		c.came, c.used = d.came, int64(d.input+weight*d.output)
		if c.charged = c.used; !whole {
			c.charged = max(c.used, reserves)
		}
	}
	return c
}

// A work is what the provider did for a request.
type work struct {
	came          time.Time
	input, output int
	ended         chan struct{}
}

var seen sync.Map // of work, by the request's ID

// answer is the provider.
func answer(w http.ResponseWriter, r *http.Request) {
	var q struct {
		Length  int           `json:"length"`
		Pause   time.Duration `json:"pause"`
		Piece   int           `json:"piece"`
		Stream  bool          `json:"stream"`
		Options struct {
			Usage bool `json:"include_usage"`
		} `json:"stream_options"`
	}
	d := &work{came: time.Now(), input: 15, ended: make(chan struct{})}
	seen.Store(r.Header.Get("X-Call"), d)
	defer close(d.ended)
	if json.NewDecoder(r.Body).Decode(&q) != nil {
		return // the client left
	}
	usage := func() string {
		return fmt.Sprintf(`"usage":{"prompt_tokens":%d,"completion_tokens":%d,"total_tokens":%d}`, d.input, d.output, d.input+d.output)
	}
	w.Header().Set("Content-Type", "application/json")
	if q.Stream {
		w.Header().Set("Content-Type", "text/event-stream")
	}
	for d.output != q.Length {
		select {
		case <-r.Context().Done():
			return
		case <-time.After(q.Pause):
		}
		n := q.Piece
		if q.Length >= 0 {
			n = min(n, q.Length-d.output)
		}
		d.output += n
		if q.Stream {
			fmt.Fprintf(w, `data: {"id":"chatcmpl-1","object":"chat.completion.chunk","created":1,"model":"m","choices":[{"index":0,"delta":{"content":"%s"},"finish_reason":null}]}`+"\n\n", strings.Repeat("word ", n))
			if http.NewResponseController(w).Flush() != nil {
				return
			}
		}
		if q.Length < 0 {
			<-r.Context().Done()
			return
		}
	}
	switch {
	case !q.Stream:
		fmt.Fprintf(w, `{"id":"chatcmpl-1","object":"chat.completion","created":1,"model":"m","choices":[{"index":0,"message":{"role":"assistant","content":"%s"},"finish_reason":"stop"}],%s}`, strings.Repeat("word ", d.output), usage())
	case q.Options.Usage:
		fmt.Fprintf(w, `data: {"id":"chatcmpl-1","object":"chat.completion.chunk","created":1,"model":"m","choices":[],%s}`+"\n\ndata: [DONE]\n\n", usage())
	default:
		fmt.Fprint(w, "data: [DONE]\n\n")
	}
}

// bare is httputil.ReverseProxy as it is, with connections to spare.
func bare(text string) {
	addr, to, _ := strings.Cut(text, "=")
	target, err := url.Parse(to)
	check(err)
	check(http.ListenAndServe(addr, &httputil.ReverseProxy{
		Transport: &http.Transport{MaxIdleConnsPerHost: 1024, DisableCompression: true},
		Rewrite:   func(r *httputil.ProxyRequest) { r.SetURL(target); r.SetXForwarded() },
	}))
}

// start starts a program, and waits until it listens.
func start(addr, program string, args ...string) (pid int, stop func()) {
	cmd := exec.Command(program, args...)
	cmd.Stderr = failures{}
	check(cmd.Start())
	for range 1_000 {
		if c, err := net.Dial("tcp", addr); err == nil {
			_ = c.Close()
			return cmd.Process.Pid, func() { _ = cmd.Process.Kill(); _ = cmd.Wait() }
		}
		time.Sleep(10 * time.Millisecond)
	}
	log.Fatal(program, " does not listen on ", addr)
	return 0, nil
}

// failures prints what a program logs about its store.
type failures struct{}

func (failures) Write(p []byte) (int, error) {
	for line := range strings.Lines(string(p)) {
		if strings.Contains(line, "store") || !strings.HasPrefix(line, "{") {
			fmt.Fprint(os.Stderr, line)
		}
	}
	return len(p), nil
}

func run(addr, program string, args ...string) (stop func()) {
	_, stop = start(addr, program, args...)
	return stop
}

// cpu is the time that a process has used.
func cpu(pid int) (used time.Duration) {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	check(err)
	_, rest, _ := strings.Cut(string(text), ") ")
	for _, field := range strings.Fields(rest)[11:13] {
		ticks, err := strconv.Atoi(field)
		check(err)
		used += time.Duration(ticks) * 10 * time.Millisecond
	}
	return used
}

func rss(pid int) float64  { return status(pid, "VmRSS:") }
func peak(pid int) float64 { return status(pid, "VmHWM:") }

// status returns a field of a process's status, in KiB.
func status(pid int, name string) float64 {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	check(err)
	for line := range strings.Lines(string(text)) {
		if rest, ok := strings.CutPrefix(line, name); ok {
			kib, err := strconv.ParseFloat(strings.Fields(rest)[0], 64)
			check(err)
			return kib
		}
	}
	log.Fatal("no ", name)
	return 0
}

func free() string {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	check(err)
	defer listener.Close()
	return listener.Addr().String()
}

func check(err error) {
	if err != nil && !errors.Is(err, http.ErrServerClosed) {
		log.Fatal(err)
	}
}
