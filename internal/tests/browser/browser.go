// Package browser opens pages in a headless Chromium, which chromedp drives, for tests of what
// people see.
package browser

import (
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

	"github.com/chromedp/cdproto/cdp"
	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/cdproto/input"
	"github.com/chromedp/cdproto/network"
	"github.com/chromedp/cdproto/runtime"
	"github.com/chromedp/chromedp"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// A Browser is one window of a headless Chromium, which ends with the test. What a page
// throws or complains of fails the test.
type Browser struct {
	t   testing.TB
	ctx context.Context

	mu         sync.Mutex
	complaints []string
	requests   []string
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
	options := append(chromedp.DefaultExecAllocatorOptions[:], chromedp.ExecPath(chromium(t)), chromedp.NoSandbox, chromedp.DisableGPU,
		chromedp.Flag("hide-scrollbars", true), chromedp.WSURLReadTimeout(time.Minute)) // of a busy machine
	allocated, end := chromedp.NewExecAllocator(context.WithoutCancel(t.Context()), options...)
	t.Cleanup(end)
	b := &Browser{t: t}
	var closeWindow context.CancelFunc
	b.ctx, closeWindow = chromedp.NewContext(allocated)
	t.Cleanup(closeWindow)
	chromedp.ListenTarget(b.ctx, b.hear)
	b.do(network.Enable())
	t.Cleanup(func() {
		b.mu.Lock()
		defer b.mu.Unlock()
		assert.Empty(t, b.complaints, "the page complained")
	})
	b.Look(width, height, dark)
	return b
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

func (b *Browser) hear(event any) {
	b.mu.Lock()
	defer b.mu.Unlock()
	switch e := event.(type) {
	case *network.EventRequestWillBeSent:
		b.requests = append(b.requests, e.Request.URL+e.Request.URLFragment)
	case *runtime.EventExceptionThrown:
		b.complaints = append(b.complaints, e.ExceptionDetails.Error())
	case *runtime.EventConsoleAPICalled:
		b.complaints = append(b.complaints, fmt.Sprint(e.Type, " ", e.Args))
	}
}

func (b *Browser) do(actions ...chromedp.Action) {
	b.t.Helper()
	require.NoError(b.t, chromedp.Run(b.ctx, actions...))
}

// T is the test that the window ends with.
func (b *Browser) T() testing.TB { return b.t }

// Visit opens a page in place of the one that is open, and waits until it is loaded.
func (b *Browser) Visit(url string) {
	b.t.Helper()
	b.do(chromedp.Navigate(url))
}

// Requests are the addresses that pages asked for, in the order that they did.
func (b *Browser) Requests() []string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return slices.Clone(b.requests)
}

// Call calls a method of the DevTools protocol, which must succeed, and decodes its result unless
// that is nil.
func (b *Browser) Call(method string, params, result any) {
	b.t.Helper()
	var text json.RawMessage // chromedp's own decoder would want every name's case
	b.do(chromedp.ActionFunc(func(ctx context.Context) error { return cdp.Execute(ctx, method, params, &text) }))
	if result != nil {
		require.NoError(b.t, json.Unmarshal(text, result))
	}
}

// Look makes the window one of that size, on a system that is light or dark.
func (b *Browser) Look(width, height int64, dark bool) {
	b.t.Helper()
	scheme := "light"
	if dark {
		scheme = "dark"
	}
	b.do(chromedp.EmulateViewport(width, height),
		emulation.SetEmulatedMedia().WithFeatures([]*emulation.MediaFeature{{Name: "prefers-color-scheme", Value: scheme}}))
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
	b.do(input.InsertText(text))
}

// Run runs a statement as the page's own script would.
func (b *Browser) Run(statement string) json.RawMessage {
	b.t.Helper()
	var value json.RawMessage
	b.do(chromedp.ActionFunc(func(ctx context.Context) error {
		result, thrown, err := runtime.Evaluate(statement).WithAwaitPromise(true).WithReturnByValue(true).Do(ctx)
		if thrown != nil {
			return fmt.Errorf("%s: %w", statement, thrown)
		}
		if err == nil {
			value = json.RawMessage(result.Value)
		}
		return err
	}))
	return value
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

// Axe returns what axe-core finds wrong with the page. Without its script, which WEIR_AXE names
// (`make site` installs it), nothing is looked for.
func (b *Browser) Axe() []string {
	b.t.Helper()
	path := os.Getenv("WEIR_AXE")
	if path == "" {
		return nil
	}
	script, err := os.ReadFile(path)
	require.NoError(b.t, err)
	b.Run(string(script))
	return Eval[[]string](b, `axe.run().then((r) => r.violations.flatMap(
		(v) => v.nodes.map((n) => v.id + ": " + n.html + " " + n.failureSummary)))`)
}

// Picture takes a picture of the whole page, to be looked at, into the directory that
// WEIR_PICTURES names. Without one it does nothing: a large picture takes longer than most tests.
func (b *Browser) Picture(name string) {
	b.t.Helper()
	dir := os.Getenv("WEIR_PICTURES")
	if dir == "" {
		return
	}
	var picture []byte
	b.do(chromedp.FullScreenshot(&picture, 100))
	require.NoError(b.t, os.WriteFile(filepath.Join(dir, name+".png"), picture, 0o600))
}
