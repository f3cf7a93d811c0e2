package redisfleet

import (
	"cmp"
	"context"
	_ "embed"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/weirgo/weir/redis/internal/wire"
)

// Options is what [New] takes. The zero Options are the defaults.
type Options struct {
	// Prefix is as in redisstore.Options. Boards of the same Prefix in the same Redis are one:
	// services that share a Redis have one each.
	Prefix string
}

const (
	mostProcesses = 1000
	mostText      = 64 << 10 // bytes
	mostName      = 200
)

// format is the version of what is in Redis: a part of its name, so that processes of two
// versions on one Redis do not touch what they cannot read.
const format = "1"

//go:embed fleet.lua
var source string

var script = wire.NewScript(source)

// A Board has what each process told last. One that has not told for ten minutes is forgotten,
// and so is the thousand and first.
//
// An ACL user needs ~weir:* +eval +evalsha +time +hset +hdel +hlen +hexists +hgetall
// +pexpire +ping, and in a Cluster what the client asks about slots.
type Board struct {
	transport *wire.Transport
	names     []string
}

// New returns the board that is in Redis, through any client of go-redis. It asks nothing of
// Redis, which may be down.
func New(client redis.UniversalClient, o Options) (*Board, error) {
	if wire.IsNil(client) {
		return nil, errors.New("redisfleet: New needs a client")
	}
	if err := errors.Join(wire.Check("redisfleet", o.Prefix, nil)...); err != nil {
		return nil, err
	}
	name := cmp.Or(o.Prefix, wire.DefaultPrefix) + ":" + format + ":{fleet}:told"
	return &Board{wire.NewTransport(client), []string{name}}, nil
}

// Must is for a board written in code: it panics where [New] returns an error.
func Must(b *Board, err error) *Board {
	if err != nil {
		panic(err)
	}
	return b
}

// Tell puts what a process says of itself in place of what it said before: at most 64 KiB,
// under a name of at most 200 bytes that no other process has.
func (b *Board) Tell(ctx context.Context, process string, text []byte) error {
	if len(process) > mostName || process == "" {
		return fmt.Errorf("redisfleet: the process's name has %d bytes: it must have 1 to %d", len(process), mostName)
	}
	if len(text) > mostText {
		return fmt.Errorf("redisfleet: a process tells %d bytes: at most %d are allowed", len(text), mostText)
	}
	_, err := b.run(ctx, "tell", process, text, mostProcesses)
	if err != nil && strings.Contains(err.Error(), "WEIRFULL") {
		return fmt.Errorf("redisfleet: there are %d processes: no more are listed", mostProcesses)
	}
	return err
}

// Leave forgets what a process said.
func (b *Board) Leave(ctx context.Context, process string) error {
	_, err := b.run(ctx, "leave", process)
	return err
}

// Each calls f with what each process said, and how long ago that is by Redis's clock, in no
// order.
func (b *Board) Each(ctx context.Context, f func(process string, text []byte, ago time.Duration)) error {
	said, err := b.run(ctx, "all")
	if err != nil {
		return err
	}
	for ; len(said) >= 3; said = said[3:] {
		ms, err := strconv.ParseInt(said[1], 10, 64)
		if err != nil {
			return fmt.Errorf("redisfleet: the script answers %.200q", said)
		}
		f(said[0], []byte(said[2]), time.Duration(ms)*time.Millisecond)
	}
	return nil
}

func (b *Board) run(ctx context.Context, args ...any) ([]string, error) {
	said, err := wire.Call(ctx, func(ctx context.Context) ([]string, error) {
		request := wire.NewRequest(script, b.names, args...)
		b.transport.Run(ctx, request)
		return request.Strings()
	})
	return said, b.transport.Failed("redisfleet", err, 0)
}
