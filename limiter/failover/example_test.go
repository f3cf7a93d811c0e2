package failover_test

import (
	"context"
	"errors"
	"fmt"

	"github.com/weirgo/weir/limiter"
	"github.com/weirgo/weir/limiter/failover"
)

// unplugged is a store whose server is not there.
type unplugged struct{}

func (unplugged) Decide(context.Context, []limiter.Charge) error {
	return errors.New("dial tcp 10.0.0.7:6379: no route to host")
}
func (unplugged) Settle(context.Context, []limiter.Settlement) error { return errors.ErrUnsupported }
func (unplugged) Reset(context.Context, []limiter.Charge) error      { return errors.ErrUnsupported }

// Three processes share a server. While it is gone each admits a third, and logins have
// to wait for it.
func ExampleNew() {
	news := make(chan failover.Event, 10)
	store := failover.Must(failover.New(unplugged{}, failover.Options{
		Replicas:   3,
		OnDegraded: func(e failover.Event) { news <- e },
	}))
	api := limiter.Must(limiter.New(limiter.Config{
		Name: "api", Limit: limiter.PerMinute(9).With(limiter.TokenBucket), Store: store,
	}))
	login := limiter.Must(limiter.New(limiter.Config{
		Name: "login", Limit: limiter.PerMinute(5), Store: store, OnOutage: limiter.FailClosed,
	}))

	ctx := context.Background()
	for range 4 {
		d, err := api.Allow(ctx, "user:42")
		fmt.Println(d.Allowed, d.Remaining, d.Degraded, err)
	}
	_, err := login.Allow(ctx, "user:42")
	fmt.Println(err)
	fmt.Println("alert:", (<-news).Err)
	// Output:
	// true 2 true <nil>
	// true 1 true <nil>
	// true 0 true <nil>
	// false 0 true <nil>
	// failover: the store's server is unavailable, and rule "login" is closed meanwhile: dial tcp 10.0.0.7:6379: no route to host
	// alert: dial tcp 10.0.0.7:6379: no route to host
}
