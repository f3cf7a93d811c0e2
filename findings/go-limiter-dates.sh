#!/usr/bin/env bash
# go-limiter writes Retry-After as a date that no parser of HTTP dates takes, and that comes too early.
#
# Seen on 29 November 2026 with github.com/sethvargo/go-limiter 1.1.0 and Go 1.26.8: a refusal has Retry-After like
# "Sun, 29 Nov 2026 06:12:57 UTC". An HTTP date ends in GMT (RFC 9110, 5.6.7), so http.ParseTime returns an error.
# Seconds are cut off: a client that reads it all the same and comes at that second is refused again.
set -euo pipefail
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
cd "$dir"
export GOWORK=off GOFLAGS=-mod=mod
go mod init finding 2>/dev/null
go get github.com/sethvargo/go-limiter@v1.1.0 2>/dev/null
cat > main.go <<'GO'
package main

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"time"

	"github.com/sethvargo/go-limiter/httplimit"
	"github.com/sethvargo/go-limiter/memorystore"
)

func main() {
	time.Sleep(time.Until(time.Now().Truncate(time.Second).Add(1500 * time.Millisecond))) // in the middle of a second
	store, err := memorystore.New(&memorystore.Config{Tokens: 1, Interval: 2 * time.Second})
	if err != nil {
		panic(err)
	}
	limit, err := httplimit.NewMiddleware(store, httplimit.IPKeyFunc())
	if err != nil {
		panic(err)
	}
	limited := limit.Handle(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	ask := func() *httptest.ResponseRecorder {
		w := httptest.NewRecorder()
		limited.ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/", nil))
		return w
	}
	ask()
	after := ask().Header().Get("Retry-After")
	_, err = http.ParseTime(after)
	fmt.Println("ends in UTC:", strings.HasSuffix(after, " UTC"), "http.ParseTime fails:", err != nil)
	at, err := time.Parse(time.RFC1123, after)
	if err != nil {
		panic(err)
	}
	time.Sleep(time.Until(at))
	fmt.Println("then", ask().Code)
	time.Sleep(700 * time.Millisecond)
	fmt.Println("0.7 s later", ask().Code)
}
GO
go run . > seen
diff - seen <<'SEEN'
ends in UTC: true http.ParseTime fails: true
then 429
0.7 s later 200
SEEN
echo "as found"
