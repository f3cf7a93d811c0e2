// Package browser opens pages in a headless Chromium, for tests of what people see. It is driven
// with the DevTools protocol over a pipe, which needs no library.
package browser

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// A Browser is one window of a headless Chromium, which ends with the test. What a page
// throws or complains of fails the test.
type Browser struct {
	t       testing.TB
	pipe    *os.File
	session string        // of the window
	loaded  chan struct{} // receives when a page has been loaded
	ended   chan struct{} // is closed when Chromium has ended

	mu         sync.Mutex
	calls      int
	answers    map[int]chan message
	complaints []string
	requests   []string
}

// A message of the protocol is a call, its answer, or an event.
type message struct {
	ID        int             `json:"id,omitempty"`
	SessionID string          `json:"sessionId,omitempty"`
	Method    string          `json:"method,omitempty"`
	Params    any             `json:"params,omitempty"`
	Result    json.RawMessage `json:"result,omitempty"`
	Error     json.RawMessage `json:"error,omitempty"`
}

// An Object is the parameters of a call.
type Object = map[string]any

// Open opens a page in a window of that size. Without Chromium the test is skipped, and
// fails where CI is set.
func Open(t testing.TB, url string, width, height int64, dark bool) *Browser {
	t.Helper()
	b := Start(t, width, height, dark)
	b.Visit(url)
	return b
}

// Start is Open without a page, for what is to be arranged before there is one.
func Start(t testing.TB, width, height int64, dark bool) *Browser {
	t.Helper()
	path := chromium(t)
	var b *Browser
	var target struct{ TargetID, SessionID string }
	for attempt := 1; ; attempt++ {
		b = &Browser{t: t, loaded: make(chan struct{}, 1), ended: make(chan struct{}), answers: make(map[int]chan message)}
		said := b.start(path)
		err := b.call("Target.createTarget", Object{"url": "about:blank"}, &target)
		if err == nil {
			break
		}
		text, _ := os.ReadFile(said)
		if attempt == mostAttempts {
			t.Fatalf("%v; it said: %s", err, text)
		}
		t.Logf("Chromium is started once more: %v; it said: %s", err, text)
	}
	b.Call("Target.attachToTarget", Object{"targetId": target.TargetID, "flatten": true}, &target)
	b.session = target.SessionID
	b.Call("Page.enable", nil, nil)
	b.Call("Runtime.enable", nil, nil)
	b.Call("Network.enable", nil, nil)
	t.Cleanup(func() {
		b.mu.Lock()
		defer b.mu.Unlock()
		assert.Empty(t, b.complaints, "the page complained")
	})
	b.Look(width, height, dark)
	return b
}

// mostAttempts is how often Chromium is started, which on a busy machine may end at once.
const mostAttempts = 3

// T is the test that the window ends with.
func (b *Browser) T() testing.TB { return b.t }

// Visit opens a page in place of the one that is open, and waits until it is loaded.
func (b *Browser) Visit(url string) {
	b.t.Helper()
	b.Call("Page.navigate", Object{"url": url}, nil)
	select {
	case <-b.loaded:
	case <-b.ended:
		b.t.Fatal("Chromium ended")
	}
}

// start starts Chromium, which reads calls from descriptor 3 and writes to 4. It returns the file
// with what Chromium says beside that.
func (b *Browser) start(path string) (said string) {
	b.t.Helper()
	profile, err := os.MkdirTemp("", "weir-chromium-*")
	require.NoError(b.t, err)
	theirs, ours, err := os.Pipe()
	require.NoError(b.t, err)
	from, to, err := os.Pipe()
	require.NoError(b.t, err)

	ctx, cancel := context.WithTimeout(context.WithoutCancel(b.t.Context()), 5*time.Minute)
	cmd := exec.CommandContext(ctx, path, "--headless", "--remote-debugging-pipe", "--user-data-dir="+profile,
		"--no-sandbox", "--disable-gpu", "--hide-scrollbars", "--disable-dev-shm-usage", "--no-first-run",
		"--disable-background-networking", "--disable-background-timer-throttling", "--disable-renderer-backgrounding")
	cmd.ExtraFiles = []*os.File{theirs, to}
	stderr, err := os.Create(filepath.Join(profile, "stderr"))
	require.NoError(b.t, err)
	cmd.Stderr = stderr
	require.NoError(b.t, cmd.Start())
	require.NoError(b.t, theirs.Close())
	require.NoError(b.t, to.Close())
	require.NoError(b.t, stderr.Close())
	b.pipe = ours
	go b.listen(from)
	b.t.Cleanup(func() {
		_ = ours.Close() // ends Chromium
		<-b.ended
		_ = cmd.Wait()
		cancel()
		_ = from.Close()
		_ = os.RemoveAll(profile)
	})
	return stderr.Name()
}

// listen reads messages, each of which ends with a zero byte, until Chromium ends.
func (b *Browser) listen(from *os.File) {
	defer close(b.ended)
	for messages := bufio.NewReader(from); ; {
		text, err := messages.ReadBytes(0)
		if err != nil {
			return
		}
		var m message
		if err := json.Unmarshal(bytes.TrimSuffix(text, []byte{0}), &m); err != nil {
			b.complain(err.Error())
			continue
		}
		switch {
		case m.ID != 0:
			b.mu.Lock()
			answer := b.answers[m.ID]
			delete(b.answers, m.ID)
			b.mu.Unlock()
			answer <- m
		case m.Method == "Page.loadEventFired":
			select {
			case b.loaded <- struct{}{}:
			default:
			}
		case m.Method == "Network.requestWillBeSent":
			request, _ := m.Params.(Object)["request"].(Object)
			b.mu.Lock()
			b.requests = append(b.requests, fmt.Sprint(request["url"]))
			b.mu.Unlock()
		case m.Method == "Runtime.exceptionThrown" || m.Method == "Runtime.consoleAPICalled":
			b.complain(fmt.Sprint(m.Method, m.Params))
		}
	}
}

// Requests are the addresses that pages asked for, in the order that they did.
func (b *Browser) Requests() []string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return slices.Clone(b.requests)
}

func (b *Browser) complain(of string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.complaints = append(b.complaints, of)
}

// Call calls a method, which must succeed, and decodes its result unless that is nil.
func (b *Browser) Call(method string, params, result any) {
	b.t.Helper()
	require.NoError(b.t, b.call(method, params, result))
}

func (b *Browser) call(method string, params, result any) error {
	answer := make(chan message, 1)
	b.mu.Lock()
	b.calls++
	call := message{ID: b.calls, SessionID: b.session, Method: method, Params: params}
	b.answers[call.ID] = answer
	b.mu.Unlock()
	text, err := json.Marshal(call)
	if err != nil {
		return err
	}
	if _, err := b.pipe.Write(append(text, 0)); err != nil {
		return fmt.Errorf("browser: Chromium does not take %s: %w", text, err)
	}
	select {
	case m := <-answer:
		if len(m.Error) > 0 {
			return fmt.Errorf("%s: %s", text, m.Error)
		}
		if result == nil {
			return nil
		}
		return json.Unmarshal(m.Result, result)
	case <-b.ended:
		return fmt.Errorf("browser: Chromium ended before it answered %s", text)
	}
}

// Look makes the window one of that size, on a system that is light or dark.
func (b *Browser) Look(width, height int64, dark bool) {
	b.t.Helper()
	scheme := "light"
	if dark {
		scheme = "dark"
	}
	b.Call("Emulation.setDeviceMetricsOverride",
		Object{"width": width, "height": height, "deviceScaleFactor": 1, "mobile": false}, nil)
	b.Call("Emulation.setEmulatedMedia",
		Object{"features": []Object{{"name": "prefers-color-scheme", "value": scheme}}}, nil)
}

func chromium(t testing.TB) string {
	t.Helper()
	for _, name := range []string{"chromium", "chromium-browser", "google-chrome", "/Applications/Google Chrome.app/Contents/MacOS/Google Chrome"} {
		if path, err := exec.LookPath(name); err == nil {
			return path
		}
	}
	const message = "chromium is not installed; install it with: apt-get install chromium (Debian)"
	if os.Getenv("CI") != "" {
		t.Fatal(message)
	}
	t.Skip(message)
	return ""
}

// Click clicks on an element that is visible. Not at its place, which may be another's by
// the time that the mouse is there: the page is live.
func (b *Browser) Click(selector string) {
	b.t.Helper()
	b.Await(time.Minute, "document.querySelector(`"+selector+"`)?.checkVisibility() === true")
	b.Run("document.querySelector(`" + selector + "`).click()")
}

// Write writes text into an element, as from a keyboard.
func (b *Browser) Write(selector, text string) {
	b.t.Helper()
	b.Run("document.querySelector(`" + selector + "`).focus()")
	b.Call("Input.insertText", Object{"text": text}, nil)
}

// Run runs a statement as the page's own script would.
func (b *Browser) Run(statement string) json.RawMessage {
	b.t.Helper()
	var answer struct {
		Result           struct{ Value json.RawMessage }
		ExceptionDetails json.RawMessage
	}
	b.Call("Runtime.evaluate", Object{"expression": statement, "awaitPromise": true, "returnByValue": true}, &answer)
	require.Empty(b.t, string(answer.ExceptionDetails), statement)
	return answer.Result.Value
}

// Eval is the value of an expression in the page.
func Eval[T any](b *Browser, expression string) (value T) {
	b.t.Helper()
	require.NoError(b.t, json.Unmarshal(b.Run(expression), &value), expression)
	return value
}

// Text is what a person reads in an element.
func (b *Browser) Text(selector string) string {
	b.t.Helper()
	return Eval[string](b, `document.querySelector(`+"`"+selector+"`"+`)?.innerText ?? ""`)
}

// Await waits until an expression is true, for at most so long.
func (b *Browser) Await(within time.Duration, expression string) {
	b.t.Helper()
	for deadline := time.Now().Add(within); !Eval[bool](b, expression); time.Sleep(50 * time.Millisecond) {
		if time.Now().After(deadline) {
			b.t.Fatalf("not within %v: %s\nThe page says:\n%s", within, expression, b.Text("body"))
		}
	}
}

// Picture takes a picture of the whole page, to be looked at, into the directory that
// WEIR_PICTURES names. Without one it does nothing: a large picture takes longer than most tests.
func (b *Browser) Picture(name string) {
	b.t.Helper()
	dir := os.Getenv("WEIR_PICTURES")
	if dir == "" {
		return
	}
	var page struct{ CSSContentSize map[string]float64 }
	b.Call("Page.getLayoutMetrics", nil, &page)
	page.CSSContentSize["scale"] = 1
	var screenshot struct{ Data []byte }
	b.Call("Page.captureScreenshot", Object{"captureBeyondViewport": true, "clip": page.CSSContentSize}, &screenshot)
	require.NoError(b.t, os.WriteFile(filepath.Join(dir, name+".png"), screenshot.Data, 0o600))
}
