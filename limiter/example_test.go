package limiter_test

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"time"

	"github.com/weirgo/weir/limiter"
)

func Example() {
	mail := limiter.Must(limiter.New(limiter.Config{
		Name:  "mail",
		Limit: limiter.PerHour(2).With(limiter.SlidingLog),
	}))
	for range 3 {
		d, err := mail.Allow(context.Background(), "user:42")
		if err != nil {
			panic(err) // a negative cost, or a store that is away
		}
		fmt.Println(d.Allowed, d.Remaining)
	}
	// Output:
	// true 1
	// true 0
	// false 0
}

func ExampleParse() {
	for _, text := range []string{
		"100/1m",
		"10/s burst 20",
		"1000/h token-bucket",
		"1_000_000/30d",
		"100 per minute",
	} {
		l, err := limiter.Parse(text)
		if err != nil {
			fmt.Println(err)
			continue
		}
		fmt.Println(l.Events, "in", l.Per, "by", l.Algorithm)
	}
	// Output:
	// 100 in 1m0s by sliding-window
	// 10 in 1s by token-bucket
	// 1000 in 1h0m0s by token-bucket
	// 1000000 in 720h0m0s by sliding-window
	// limiter: parse "100 per minute": it does not begin with events/period, such as 100/1m, or with events and a calendar, such as 100 daily
}

func ExamplePerMinute() {
	fmt.Println(limiter.PerMinute(100))
	fmt.Println(limiter.PerMinute(100).WithBurst(20))
	fmt.Println(limiter.PerMinute(100).With(limiter.SlidingLog))
	fmt.Println(limiter.Limit{Events: 3, Per: 10 * time.Second})
	// Output:
	// 100/1m
	// 100/1m token-bucket burst 20
	// 100/1m sliding-log
	// 3/10s
}

func ExampleLimit_Validate() {
	l := limiter.Limit{Events: 50_000, Per: 1500 * time.Nanosecond, Algorithm: limiter.SlidingLog}
	fmt.Println(l.Validate())
	// Output:
	// limiter: Per is 1.5µs: it must be a whole number of microseconds
	// limiter: Events is 50000: sliding-log remembers every event and takes at most 10000
}

// A limit can be a flag, and an environment variable or a field of JSON or YAML
// just so, since it is text.
func ExampleLimit_UnmarshalText() {
	flags := flag.NewFlagSet("server", flag.ContinueOnError)
	var api limiter.Limit
	flags.TextVar(&api, "api", limiter.PerMinute(100), "events per period")

	err := flags.Parse([]string{"-api", "10/s burst 20"})
	fmt.Println(api, err)
	// Output:
	// 10/1s token-bucket burst 20 <nil>
}

// An upload costs a unit for each megabyte. What does not fit takes nothing.
func ExampleLimiter_AllowN() {
	uploads := limiter.Must(limiter.New(limiter.Config{
		Name:  "uploads",
		Limit: limiter.PerHour(100).With(limiter.SlidingLog),
	}))
	for _, megabytes := range []int64{70, 40, 30, 500} {
		d, err := uploads.AllowN(context.Background(), "user:42", megabytes)
		if err != nil {
			panic(err)
		}
		fmt.Println(megabytes, d.Allowed, d.Remaining, d.RetryAfter == limiter.Never)
	}
	// Output:
	// 70 true 30 false
	// 40 false 30 false
	// 30 true 0 false
	// 500 false 0 true
}

// Give back what did not happen after all.
func ExampleLimiter_Refund() {
	ctx := context.Background()
	mail := limiter.Must(limiter.New(limiter.Config{Name: "mail", Limit: limiter.PerHour(50)}))

	send := func() error { return fmt.Errorf("the server is away") }
	if d, err := mail.Allow(ctx, "user:42"); err == nil && d.Allowed {
		if send() != nil {
			_ = mail.Refund(ctx, "user:42", 1, d)
		}
	}
	d, _ := mail.Look(ctx, "user:42", 1)
	fmt.Println(d.Remaining)
	// Output:
	// 50
}

// What a call of a language model costs is known when it has answered.
func ExampleLimiter_Reserve() {
	ctx := context.Background()
	tokens := limiter.Must(limiter.New(limiter.Config{
		Name:    "tokens",
		Limit:   limiter.PerMinute(10_000).With(limiter.SlidingLog),
		Settles: true,
	}))
	complete := func() (used int64) { return 1_372 }

	func() {
		hold, d, err := tokens.Reserve(ctx, "user:42", 4_000)
		if err != nil || !d.Allowed {
			return
		}
		defer func() { _ = hold.Cancel() }() // if complete panics, all of it is refunded
		fmt.Println("meanwhile", d.Remaining)
		_ = hold.Settle(complete())
	}()
	d, _ := tokens.Look(ctx, "user:42", 1)
	fmt.Println("afterwards", d.Remaining)
	// Output:
	// meanwhile 6000
	// afterwards 8628
}

// Two exports of a client run at once. A third would wait for up to a second.
func ExampleSemaphore_Acquire() {
	ctx := context.Background()
	exports, err := limiter.NewSemaphore(limiter.SemaphoreConfig{
		Name:  "exports",
		Limit: limiter.AtOnce(2).Queue(10, time.Second),
	})
	if err != nil {
		panic(err)
	}
	for range 2 {
		release, d, err := exports.Acquire(ctx, "user:42")
		defer release()
		fmt.Println(d.Allowed, d.Remaining, err)
	}
	// Output:
	// true 1 <nil>
	// true 0 <nil>
}

// More than was reserved is owed, and later events wait for it.
func ExampleHold_Settle() {
	ctx := context.Background()
	tokens := limiter.Must(limiter.New(limiter.Config{
		Name:    "tokens",
		Limit:   limiter.PerHour(100).With(limiter.SlidingLog),
		Settles: true,
	}))
	hold, d, _ := tokens.Reserve(ctx, "user:42", 20)
	fmt.Println(d.Allowed, hold.Settle(150))
	fmt.Println(hold.Settle(10)) // the first counts

	d, _ = tokens.AllowN(ctx, "user:42", 1)
	fmt.Println(d.Allowed, d.RetryAfter > 59*time.Minute)
	// Output:
	// true <nil>
	// limiter: the hold is already settled
	// false true
}

// Wait sleeps until there is room, unless the context ends before.
func ExampleLimiter_Wait() {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	provider := limiter.Must(limiter.New(limiter.Config{
		Name:  "provider",
		Limit: limiter.PerSecond(500).WithBurst(3),
	}))
	for range 5 {
		if err := provider.Wait(ctx, "team:7", 1); err != nil {
			panic(err)
		}
		// call the provider
	}

	daily := limiter.Must(limiter.New(limiter.Config{
		Name:  "daily",
		Limit: limiter.PerDay(3).With(limiter.SlidingLog),
	}))
	for range 4 {
		err := daily.Wait(ctx, "team:7", 1)
		var wait *limiter.WaitError
		if errors.As(err, &wait) {
			fmt.Println("not today:", wait.Wait > 23*time.Hour)
		}
	}
	// Output:
	// not today: true
}

// A limit of a second keeps a client from spending that of a day at once.
func ExampleConfig_limits() {
	api := limiter.Must(limiter.New(limiter.Config{
		Name: "api",
		Limit: limiter.All(
			limiter.PerSecond(10).With(limiter.SlidingLog),
			limiter.PerDay(1000).With(limiter.SlidingLog),
		),
	}))
	for _, cost := range []int64{8, 8} {
		d, err := api.AllowN(context.Background(), "user:42", cost)
		if err != nil {
			panic(err)
		}
		fmt.Println(d.Allowed, d.Remaining, "of", d.Limit)
	}
	// Output:
	// true 2 of 10
	// false 2 of 10
}

// Several limits are taken together, or none of them is.
func ExampleMemory_Decide() {
	store := limiter.Must(limiter.NewMemory(limiter.MemoryOptions{MaxKeys: 100_000}))
	perUser, _ := limiter.NewQuota("user", "", limiter.PerMinute(2).WithBurst(2))
	perTeam, _ := limiter.NewQuota("team", "gold", limiter.PerDay(1000))

	for range 3 {
		charges := []limiter.Charge{
			{Quota: perUser, Key: "42", Cost: 1},
			{Quota: perTeam, Key: "7", Cost: 1},
		}
		if err := store.Decide(context.Background(), charges); err != nil {
			panic(err)
		}
		user, team := charges[0].Decision, charges[1].Decision
		fmt.Println(user.Allowed, user.Remaining, team.Remaining)
	}
	// Output:
	// true 1 999
	// true 0 998
	// false 0 998
}
