#!/usr/bin/env bash
# Four limiters for Go write X-RateLimit-Reset in three units, under one name.
#
# Seen on 29 November 2026: the first answer of a limit of 1 a minute. httprate 0.16.1 and ulule/limiter 3.11.2
# write a time in seconds since 1970, throttled 2.15.0 the seconds that are left, go-limiter 1.1.0 a date. ulule's
# refusal has no Retry-After, so its clients depend on this field.
set -euo pipefail
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
cd "$dir"
export GOWORK=off GOFLAGS=-mod=mod
go mod init finding 2>/dev/null
go get github.com/go-chi/httprate@v0.16.1 github.com/ulule/limiter/v3@v3.11.2 github.com/throttled/throttled/v2@v2.15.0 \
	github.com/sethvargo/go-limiter@v1.1.0 2>/dev/null
cat > main.go <<'GO'
package main

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"strconv"
	"time"

	"github.com/go-chi/httprate"
	"github.com/sethvargo/go-limiter/httplimit"
	"github.com/sethvargo/go-limiter/memorystore"
	"github.com/throttled/throttled/v2"
	"github.com/throttled/throttled/v2/store/memstore"
	"github.com/ulule/limiter/v3"
	"github.com/ulule/limiter/v3/drivers/middleware/stdlib"
	"github.com/ulule/limiter/v3/drivers/store/memory"
)

var served = http.HandlerFunc(func(http.ResponseWriter, *http.Request) {})

func must[T any](v T, err error) T {
	if err != nil {
		panic(err)
	}
	return v
}

func main() {
	show("httprate", httprate.LimitByIP(1, time.Minute)(served))
	show("ulule", stdlib.NewMiddleware(limiter.New(memory.NewStore(), limiter.Rate{Period: time.Minute, Limit: 1})).Handler(served))
	rates := must(throttled.NewGCRARateLimiterCtx(must(memstore.NewCtx(100)), throttled.RateQuota{MaxRate: throttled.PerMin(1)}))
	show("throttled", (&throttled.HTTPRateLimiterCtx{RateLimiter: rates, VaryBy: &throttled.VaryBy{Path: true}}).RateLimit(served))
	store := must(memorystore.New(&memorystore.Config{Tokens: 1, Interval: time.Minute}))
	show("go-limiter", must(httplimit.NewMiddleware(store, httplimit.IPKeyFunc())).Handle(served))
}

func show(name string, limited http.Handler) {
	var first, second http.Header
	for _, header := range []*http.Header{&first, &second} {
		w := httptest.NewRecorder()
		limited.ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/", nil))
		*header = w.Header()
	}
	reset := first.Get("X-RateLimit-Reset")
	unit := "a date"
	if n, err := strconv.ParseInt(reset, 10, 64); err == nil {
		if unit = "seconds that are left"; n > 1e9 {
			unit = "seconds since 1970"
		}
	}
	fmt.Println(name, "writes", unit, "and has Retry-After on the refusal:", second.Get("Retry-After") != "")
}
GO
go run . > seen
diff - seen <<'SEEN'
httprate writes seconds since 1970 and has Retry-After on the refusal: true
ulule writes seconds since 1970 and has Retry-After on the refusal: false
throttled writes seconds that are left and has Retry-After on the refusal: true
go-limiter writes a date and has Retry-After on the refusal: true
SEEN
echo "as found"
