#!/usr/bin/env bash
# Client.WithTimeout of go-redis returns a copy that calls none of the client's hooks.
#
# Seen on 29 November 2026 with github.com/redis/go-redis/v9 9.23.0 and miniredis 2.40.0: a hook that was added
# before counts the client's command, and that of a Conn, but none of the copy's. So what a library sends with a
# timeout of its own is missing in traces and metrics, which are hooks. Two copies in a row are the same.
set -euo pipefail
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
cd "$dir"
export GOWORK=off GOFLAGS=-mod=mod
go mod init finding 2>/dev/null
go get github.com/redis/go-redis/v9@v9.23.0 github.com/alicebob/miniredis/v2@v2.40.0 2>/dev/null
cat > main.go <<'GO'
package main

import (
	"context"
	"fmt"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/go-redis/v9"
)

type hook struct{ pings *int }

func (h hook) DialHook(next redis.DialHook) redis.DialHook { return next }

func (h hook) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		if cmd.Name() == "ping" {
			*h.pings++
		}
		return next(ctx, cmd)
	}
}

func (h hook) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook { return next }

func main() {
	server, err := miniredis.Run()
	if err != nil {
		panic(err)
	}
	ctx := context.Background()
	client := redis.NewClient(&redis.Options{Addr: server.Addr()})
	pings := 0
	client.AddHook(hook{&pings})
	sent := func(name string, ping func(context.Context) *redis.StatusCmd) {
		before := pings
		if err := ping(ctx).Err(); err != nil {
			panic(err)
		}
		fmt.Println(name, pings-before)
	}
	sent("client", client.Ping)
	sent("conn", client.Conn().Ping)
	sent("with timeout", client.WithTimeout(time.Second).Ping)
}
GO
go run . > seen
diff - seen <<'SEEN'
client 1
conn 1
with timeout 0
SEEN
echo "as found"
