// Command walk takes two requests through a limiter, one allowed and one refused. Built with -cover, it writes which
// functions each of them entered into the folders that it is given.
package main

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"runtime/coverage"

	"github.com/weirgo/weir/limiter"
	"github.com/weirgo/weir/middleware"
)

func main() {
	h := middleware.PerIP(limiter.PerHour(3))(http.NotFoundHandler())
	for range 2 { // what happens to the first requests alone is no part of the way
		h.ServeHTTP(httptest.NewRecorder(), httptest.NewRequest("GET", "/", nil))
	}
	for i, want := range []int{http.StatusNotFound, http.StatusTooManyRequests} {
		w, r := httptest.NewRecorder(), httptest.NewRequest("GET", "/", nil)
		must(coverage.ClearCounters())
		h.ServeHTTP(w, r)
		must(coverage.WriteCountersDir(os.Args[1+i]))
		must(coverage.WriteMetaDir(os.Args[1+i]))
		if w.Code != want {
			must(fmt.Errorf("answered %d, not %d", w.Code, want))
		}
	}
}

func must(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}
