package dashboard_test

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/cdproto/runtime"
	"github.com/chromedp/chromedp"
	"github.com/stretchr/testify/require"
)

// A browser is one window of a headless Chromium, which ends with the test. What a page
// throws or complains of fails the test.
type browser struct {
	context.Context
	t *testing.T
}

// open opens a page in a window of that size. Without Chromium the test is skipped, and
// fails where CI is set.
func open(t *testing.T, url string, width, height int64, dark bool) *browser {
	t.Helper()
	path := chromium(t)
	options := append(chromedp.DefaultExecAllocatorOptions[:],
		chromedp.ExecPath(path), chromedp.NoSandbox, chromedp.DisableGPU,
		chromedp.Flag("disable-dev-shm-usage", true),
		chromedp.WSURLReadTimeout(time.Minute))
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	t.Cleanup(cancel)
	ctx, cancel = chromedp.NewExecAllocator(ctx, options...)
	t.Cleanup(cancel)
	// A Chromium that is newer than chromedp says things that it does not know.
	ctx, cancel = chromedp.NewContext(ctx, chromedp.WithErrorf(func(string, ...any) {}))
	t.Cleanup(cancel)

	b := &browser{ctx, t}
	complaints := make(chan string, 100)
	chromedp.ListenTarget(ctx, func(event any) {
		switch e := event.(type) {
		case *runtime.EventExceptionThrown:
			complaints <- e.ExceptionDetails.Error()
		case *runtime.EventConsoleAPICalled:
			complaints <- string(e.Type)
		}
	})
	t.Cleanup(func() {
		for len(complaints) > 0 {
			t.Errorf("the page complained: %s", <-complaints)
		}
	})
	b.look(width, height, dark)
	b.run(chromedp.Navigate(url))
	return b
}

// look makes the window one of that size, on a system that is light or dark.
func (b *browser) look(width, height int64, dark bool) {
	b.t.Helper()
	scheme := "light"
	if dark {
		scheme = "dark"
	}
	b.run(
		chromedp.EmulateViewport(width, height, chromedp.EmulateScale(1)),
		emulation.SetEmulatedMedia().WithFeatures([]*emulation.MediaFeature{{Name: "prefers-color-scheme", Value: scheme}}),
	)
}

func chromium(t *testing.T) string {
	t.Helper()
	for _, name := range []string{"chromium", "chromium-browser", "google-chrome"} {
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

func (b *browser) run(actions ...chromedp.Action) {
	b.t.Helper()
	require.NoError(b.t, chromedp.Run(b, actions...))
}

// click clicks on what a person sees there. Not at its place, which may be another's by the
// time that the mouse is there: the page is live.
func (b *browser) click(selector string) {
	b.t.Helper()
	b.run(
		chromedp.WaitVisible(selector, chromedp.ByQuery),
		evaluate("document.querySelector(`"+selector+"`).click()"),
	)
}

// eval is the value of an expression in the page.
func eval[T any](b *browser, expression string) (value T) {
	b.t.Helper()
	b.run(chromedp.Evaluate(expression, &value, awaitPromise))
	return value
}

// text is what somebody reads in an element.
func (b *browser) text(selector string) string {
	b.t.Helper()
	return eval[string](b, `document.querySelector(`+"`"+selector+"`"+`)?.innerText ?? ""`)
}

// await waits until an expression is true, for at most so long.
func (b *browser) await(within time.Duration, expression string) {
	b.t.Helper()
	for deadline := time.Now().Add(within); !eval[bool](b, expression); time.Sleep(50 * time.Millisecond) {
		if time.Now().After(deadline) {
			b.t.Fatalf("not within %v: %s\nThe page says:\n%s", within, expression, b.text("body"))
		}
	}
}

// picture takes a picture of the whole page, into a directory of the test's own or, to be
// looked at, into the one that WEIR_PICTURES names.
func (b *browser) picture(name string) {
	b.t.Helper()
	dir := os.Getenv("WEIR_PICTURES")
	if dir == "" {
		dir = b.t.TempDir()
	}
	var png []byte
	b.run(chromedp.FullScreenshot(&png, 100))
	require.NoError(b.t, os.WriteFile(filepath.Join(dir, name+".png"), png, 0o600))
}

// evaluate runs a statement as the page's own script would.
func evaluate(statement string) chromedp.Action { return chromedp.Evaluate(statement, nil) }

func awaitPromise(p *runtime.EvaluateParams) *runtime.EvaluateParams { return p.WithAwaitPromise(true) }
