package main

import (
	"context"
	"net"

	"github.com/redis/go-redis/v9"
)

// A recorder is a hook of go-redis that keeps the arguments of commands.
type recorder struct {
	// heard gets them. An error is given to the caller, and then the command is not sent.
	heard func(args []any) error
}

// newIntercepted is a client that asks heard instead of a server.
func newIntercepted(heard func(args []any) error) *redis.Client {
	client := redis.NewClient(&redis.Options{Dialer: func(context.Context, string, string) (net.Conn, error) {
		return nil, net.ErrClosed
	}})
	client.AddHook(recorder{heard})
	return client
}

func (r recorder) DialHook(next redis.DialHook) redis.DialHook { return next }

func (r recorder) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		if err := r.heard(cmd.Args()); err != nil {
			cmd.SetErr(err)
			return err
		}
		return next(ctx, cmd)
	}
}

func (r recorder) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []redis.Cmder) error {
		for _, cmd := range cmds {
			if err := r.heard(cmd.Args()); err != nil {
				cmd.SetErr(err)
				return err
			}
		}
		return next(ctx, cmds)
	}
}

// noScript is what a server says that does not know a script.
type noScript struct{}

func (noScript) Error() string { return "NOSCRIPT No matching script." }
func (noScript) RedisError()   {}
