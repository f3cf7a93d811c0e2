package redisstore

import (
	"context"
	"fmt"
	"log/slog"
)

// A Logger has what go-redis logs, such as connections that it cannot make, written with
// slog, and not to standard error past it:
//
//	redis.SetLogger(redisstore.Logger{})
//
// That is for all clients of the program, so the program calls it and Weir does not.
type Logger struct {
	Log *slog.Logger // nil: [slog.Default]
}

// Printf is what go-redis calls.
func (l Logger) Printf(ctx context.Context, format string, args ...any) {
	log := l.Log
	if log == nil {
		log = slog.Default()
	}
	log.WarnContext(ctx, fmt.Sprintf(format, args...), "logger", "go-redis")
}
