package routertest

import (
	"net/http"
	"slices"
	"sync/atomic"
	"testing"
	"time"
)

// equal ends the case if got is not want. Why says what is promised.
func equal[V comparable](t testing.TB, want, got V, why string) {
	t.Helper()
	if got != want {
		t.Fatalf("%s: got %#v, want %#v", why, got, want)
	}
}

func equalLists[V comparable](t testing.TB, want, got []V, why string) {
	t.Helper()
	if !slices.Equal(got, want) {
		t.Fatalf("%s: got %#v, want %#v", why, got, want)
	}
}

// must ends the case if err is not nil.
func must(t testing.TB, err error, why string) {
	t.Helper()
	if err != nil {
		t.Fatalf("%s: %v", why, err)
	}
}

// receive waits for something that must happen. The half minute only ends a broken test.
func receive[T any](t testing.TB, from <-chan T, what string) (value T) {
	t.Helper()
	select {
	case value = <-from:
	case <-time.After(30 * time.Second):
		t.Fatalf("waited half a minute for %s", what)
	}
	return value
}

// runs counts the runs of handlers by name.
type runs map[string]*atomic.Int32

func (r runs) handler(name string) http.HandlerFunc {
	n := &atomic.Int32{}
	r[name] = n
	return func(http.ResponseWriter, *http.Request) { n.Add(1) }
}

// check requires that each handler ran, and at most that often.
func (r runs) check(t testing.TB, most int32) {
	t.Helper()
	for name, n := range r {
		if ran := n.Load(); ran < 1 || ran > most {
			t.Errorf("the handler of %s ran %d times in all spellings, want from 1 to %d", name, ran, most)
		}
	}
}
