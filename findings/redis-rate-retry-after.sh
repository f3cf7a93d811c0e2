#!/usr/bin/env bash
# redis_rate answers a request that costs more than the burst with a time to wait. It does not fit then either.
#
# Seen on 29 November 2026 with github.com/go-redis/redis_rate/v10 10.0.1, go-redis 9.19.0 and miniredis
# 2.40.0: AllowN of 50 at a burst of 10 per second says RetryAfter 4s, and again 4s after those four
# seconds, with nobody else about. A caller that waits as it is told waits forever.
set -euo pipefail
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
cd "$dir"
export GOWORK=off GOFLAGS=-mod=mod
go mod init finding 2>/dev/null
go get github.com/go-redis/redis_rate/v10@v10.0.1 github.com/redis/go-redis/v9@v9.19.0 github.com/alicebob/miniredis/v2@v2.40.0 2>/dev/null
cat > main.go <<'GO'
package main

import (
	"context"
	"fmt"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/go-redis/redis_rate/v10"
	"github.com/redis/go-redis/v9"
)

func main() {
	server, err := miniredis.Run()
	if err != nil {
		panic(err)
	}
	now := time.Now()
	server.SetTime(now)
	limiter := redis_rate.NewLimiter(redis.NewClient(&redis.Options{Addr: server.Addr()}))
	for range 2 {
		res, err := limiter.AllowN(context.Background(), "key", redis_rate.Limit{Rate: 10, Period: time.Second, Burst: 10}, 50)
		if err != nil {
			panic(err)
		}
		fmt.Println("allowed", res.Allowed, "retry after", res.RetryAfter)
		now = now.Add(res.RetryAfter)
		server.SetTime(now)
	}
}
GO
go run . > seen
diff - seen <<'SEEN'
allowed 0 retry after 4s
allowed 0 retry after 4s
SEEN
echo "as found"
