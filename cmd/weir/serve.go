package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"os/signal"
	"runtime"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/spf13/pflag"

	"github.com/weirgo/weir/cmd/weir/internal/ask"
	"github.com/weirgo/weir/cmd/weir/internal/gateway"
	"github.com/weirgo/weir/cmd/weir/internal/rls"
	"github.com/weirgo/weir/cmd/weir/internal/serving"
	"github.com/weirgo/weir/internal/yamlfile"
	"github.com/weirgo/weir/limiter"
	"github.com/weirgo/weir/limiter/failover"
	"github.com/weirgo/weir/middleware"
	"github.com/weirgo/weir/middleware/bans"
	"github.com/weirgo/weir/middleware/rules"
	"github.com/weirgo/weir/middleware/shed"
	"github.com/weirgo/weir/redis/leasestore"
	"github.com/weirgo/weir/redis/redisbans"
	"github.com/weirgo/weir/redis/redisrules"
	"github.com/weirgo/weir/redis/redisstore"
)

// serveFlags has the values of weir serve's flags.
type serveFlags struct {
	*session
	flags    *pflag.FlagSet
	redis    *server
	rulesKey *string
	fallback string

	proxies []string
	ask     string
	rls     string
	gateway gateway.Options
	bodies  string
	admin   string

	adminToken      string
	tlsCert, tlsKey string
	rlsTLS          bool
	accessLog       string
	showKeys        bool
	logLevel        slog.Level

	replicas int
	leases   bool
	drain    time.Duration
}

func serve(s *session, flags *pflag.FlagSet) action {
	f := &serveFlags{session: s, flags: flags, redis: serverFlags(flags), rulesKey: rulesKey(flags)}
	flags.Lookup("redis").Usage = "`URL` of a Redis to count in, as in redis://user:password@host:6379/0; without it $WEIR_REDIS, or else in memory"
	flags.Lookup("secret-file").Usage = "a `file` with the secret of the digests of keys, in Redis, in logs and on the page; or $WEIR_SECRET"
	flags.StringVar(&f.fallback, "fallback", "", "a `file` with rules that hold until the rules in Redis can be read; without it every request is answered 503 until then")
	flags.StringArrayVar(&f.proxies, "proxy", nil, "limit requests on an address and pass them on to a service: `ADDRESS=URL`, such as :8080=http://127.0.0.1:3000; may be repeated")
	flags.StringVar(&f.ask, "ask", "", "an `address` where nginx, Caddy, Traefik or HAProxy ask about each request, such as 127.0.0.1:8082")
	flags.StringVar(&f.rls, "rls", "", "an `address` for Envoy's rate limit service, such as :8081, by the file's descriptors")
	flags.StringVar(&f.gateway.Paths, "paths", serving.PathsStrict, "what to do with a path that a service may read as another, such as //login, or a field such as X-HTTP-Method-Override: strict answers 400, fold does too and ignores case, as-is passes it on")
	flags.DurationVar(&f.gateway.Timeout, "upstream-timeout", time.Minute, "how long a service has to begin its answer, and to read each part of a request")
	flags.DurationVar(&f.gateway.ClientTimeout, "client-timeout", 10*time.Second, "how long a client whose request holds a slot of concurrency or overload may block one read of its body or one write of the answer")
	flags.StringVar(&f.bodies, "body-memory", "256MiB", "how much `memory` all bodies may take that rules read: a request beyond it is answered 503")
	identityFlags(flags, &f.gateway)
	flags.StringVar(&f.tlsCert, "tls-cert", "", "a `file` with the certificate chain of --proxy, and of --rls with --rls-tls, in PEM; it is read again when it changes")
	flags.StringVar(&f.tlsKey, "tls-key", "", "a `file` with the key of --tls-cert, in PEM")
	flags.BoolVar(&f.rlsTLS, "rls-tls", false, "speak TLS with --tls-cert on the address of --rls too")
	flags.StringVar(&f.accessLog, "access-log", "", "a `file` to log requests to as JSON, which weir recommend and weir simulate read; - for the standard output")
	flags.StringVar(&f.admin, "admin", "", "an `address` for /livez, /readyz, /metrics and the page, such as 127.0.0.1:9090")
	flags.StringVar(&f.adminToken, "admin-token-file", "", "a `file` with the token that the page needs, as a password; without it only this machine may open the page")
	flags.TextVar(&f.logLevel, "log-level", slog.LevelInfo, "the lowest `level` that is logged: debug, which has mistakes of clients too, info, warn or error")
	flags.BoolVar(&f.showKeys, "show-keys", false, "show the keys of clients in the log and on the page: addresses, users, and API keys too; without it their digests")
	flags.IntVar(&f.replicas, "replicas", 1, "how many processes share the Redis: in an outage each process applies its part of a limit")
	flags.BoolVar(&f.leases, "leases", false, "decide in memory, with units that Redis grants in advance")
	flags.DurationVar(&f.drain, "drain", 5*time.Second, "how long requests are served after SIGTERM, while /readyz says 503")
	return func(args []string) error {
		if err := f.environment(); err != nil {
			return err
		}
		return f.serve(args[0])
	}
}

// identityFlags declares the flags of the fields that have a request's user and tier.
func identityFlags(flags *pflag.FlagSet, o *gateway.Options) {
	flags.StringVar(&o.UserHeader, "user-header", "", "the `header` field in which the proxies of the rules file send a request's user; it is removed if another client sends it")
	flags.StringVar(&o.TierHeader, "tier-header", "", "the `header` field in which they send the request's tier")
}

// environment sets flags that were not given from environment variables.
func (f *serveFlags) environment() error {
	var errs []error
	f.flags.VisitAll(func(flag *pflag.Flag) {
		name := "WEIR_" + strings.ToUpper(strings.ReplaceAll(flag.Name, "-", "_"))
		text := os.Getenv(name)
		if flag.Changed || text == "" || flag.Name == "redis" || flag.Name == "help" { // $WEIR_REDIS is read elsewhere
			return
		}
		values := []string{text}
		if flag.Value.Type() == "stringArray" {
			values = strings.Split(text, ",")
		}
		for _, value := range values {
			if err := f.flags.Set(flag.Name, strings.TrimSpace(value)); err != nil {
				errs = append(errs, fmt.Errorf("$%s: want a value of type %s", name, flag.Value.Type()))
			}
		}
	})
	return errors.Join(errs...)
}

// services returns the services that the flags ask for.
func (f *serveFlags) services(l *limits) (all []serving.Service, err error) {
	if f.drain < 0 {
		return nil, fmt.Errorf("--drain is %v: want 0 or more", f.drain)
	}
	if err := serving.CheckPaths(f.gateway.Paths); err != nil {
		return nil, err
	}
	bodies, err := yamlfile.ParseSize(f.bodies)
	if err != nil {
		return nil, fmt.Errorf("--body-memory: %w", err)
	}
	l.Bodies = serving.NewMemory(bodies)
	if f.tlsCert != "" {
		if f.gateway.Certificates, err = serving.NewCertificates(f.tlsCert, f.tlsKey, l.Logger); err != nil {
			return nil, err
		}
	}
	f.gateway.Log = l.log
	var errs []error
	for _, proxy := range f.proxies {
		o := f.gateway
		o.Proxy = proxy
		one, err := gateway.New(o)
		all, errs = append(all, one), append(errs, err)
	}
	if f.ask != "" {
		all = append(all, ask.New(f.ask, f.gateway.Paths))
	}
	if f.rls != "" {
		var certificates *serving.Certificates
		if f.rlsTLS {
			certificates = f.gateway.Certificates
		}
		all = append(all, rls.New(f.rls, certificates))
	}
	return all, errors.Join(errs...)
}

// complete returns an error if a flag was given without the flag that it needs.
func (f *serveFlags) complete(file string) error {
	proxy, redis := len(f.proxies) > 0, f.hasRedis()
	switch {
	case !proxy && f.ask == "" && f.rls == "":
		return errors.New("there is nothing to serve: give --proxy, --ask or --rls")
	case file == "redis" && !redis:
		return errors.New("the rules are in a Redis: give --redis too")
	}
	for _, need := range []struct {
		given bool
		of    string
		flags []string
	}{
		{proxy, "--proxy", []string{"upstream-timeout", "client-timeout", "body-memory", "user-header", "tier-header", "access-log"}},
		{proxy || f.rlsTLS, "--proxy or --rls-tls", []string{"tls-cert", "tls-key"}},
		{f.rls != "", "--rls", []string{"rls-tls"}},
		{proxy || f.ask != "", "--proxy or --ask", []string{"paths", "show-keys"}},
		{f.tlsKey != "", "--tls-key", []string{"tls-cert"}},
		{f.tlsCert != "", "--tls-cert", []string{"tls-key", "rls-tls"}},
		{f.admin != "", "--admin", []string{"admin-token-file"}},
		{redis, "--redis", []string{"cluster", "sentinel", "prefix", "replicas", "leases", "rules-key"}},
		{file == "redis", "the rules in Redis, as in weir serve redis", []string{"rules-key", "fallback"}},
	} {
		for _, name := range need.flags {
			if !need.given && f.flags.Changed(name) {
				return fmt.Errorf("--%s needs %s", name, need.of)
			}
		}
	}
	return nil
}

// hasRedis reports whether the limits are counted in Redis.
func (f *serveFlags) hasRedis() bool { return f.redis.url != "" || os.Getenv("WEIR_REDIS") != "" }

// serve serves by the rules in file until a signal ends it.
func (f *serveFlags) serve(file string) error {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	if err := f.complete(file); err != nil {
		return err
	}
	signal.Ignore(syscall.SIGPIPE) // which a log whose reader has ended would raise
	logger := slog.New(slog.NewJSONHandler(f.err, &slog.HandlerOptions{Level: f.logLevel}))
	l := &limits{Limits: serving.Limits{Logger: logger}, logs: map[string]*serving.Lines{"error": f.err.inBackground()}}
	if built := runtime.Version(); lacksHTTP2Fix(built) {
		logger.Warn("weir: clients can crash this process: its Go lacks the fix of CVE-2026-97032, which go1.26.9 and go1.27.2 have",
			slog.String("code", "weir-outdated-go"), slog.String("go", built))
	}
	defer l.close()
	var err error
	if l.secret, err = f.redis.secret(); err != nil {
		return fmt.Errorf("--secret-file: %w", err)
	}
	if err := f.openLog(l); err != nil {
		return fmt.Errorf("--access-log: %w", err)
	}
	go l.reportDropped(ctx)
	services, err := f.services(l)
	if err != nil {
		return err
	}
	if err := f.watch(ctx, file, services, l); err != nil {
		return err
	}
	if l.admin != nil {
		services = append(services, l.admin)
	}
	failure := make(chan error, 1)
	failed := func(err error) {
		select {
		case failure <- err:
		default: // serve reports only the first
		}
	}
	signals := make(chan os.Signal, 4)
	signal.Notify(signals, syscall.SIGTERM, os.Interrupt, syscall.SIGHUP)
	defer signal.Stop(signals)
	defer func() { drain(services, 0, nil) }()
	for _, service := range services {
		if err := service.Start(l.Limits, failed); err != nil {
			return err
		}
	}
	if l.admin != nil {
		l.admin.ready.Store(true)
	}
	logger.Info("weir: serving")
	for {
		select {
		case err := <-failure:
			return err
		case got := <-signals:
			if got == syscall.SIGHUP {
				l.reread()
				continue
			}
			logger.Info("weir: draining", slog.String("signal", got.String()))
			if l.admin != nil {
				l.admin.ready.Store(false)
			}
			drain(services, f.drain, signals)
			return nil
		}
	}
}

// requestPatience is how long requests in progress may take after the drain.
const requestPatience = 30 * time.Second

// drain drains all services at the same time. A second signal breaks off requests in progress.
func drain(services []serving.Service, grace time.Duration, signals <-chan os.Signal) {
	ctx, cancel := context.WithTimeout(context.Background(), grace+requestPatience)
	defer cancel()
	if signals == nil {
		cancel()
	}
	var all sync.WaitGroup
	for _, service := range services {
		all.Go(func() { service.Drain(ctx, grace) })
	}
	done := make(chan struct{})
	go func() { all.Wait(); close(done) }()
	for {
		select {
		case <-done:
			return
		case got := <-signals:
			if got != syscall.SIGHUP {
				cancel()
			}
		}
	}
}

// limits has the limiter of the services, and what to close at the end.
type limits struct {
	serving.Limits
	admin  *admin                    // nil without --admin
	log    *serving.Log              // nil without --access-log
	logs   map[string]*serving.Lines // by the name in metrics
	secret []byte
	closes []func() error
}

func (l *limits) close() {
	for i := len(l.closes) - 1; i >= 0; i-- {
		if err := l.closes[i](); err != nil {
			l.Logger.Warn("weir: " + err.Error())
		}
	}
}

// openLog opens the access log.
func (f *serveFlags) openLog(l *limits) (err error) {
	switch f.accessLog {
	case "":
		return nil
	case "-":
		l.logs["access"] = f.out.inBackground()
		l.log = serving.NewLog(f.out, l.secret)
		return nil
	}
	lines, err := serving.OpenLines(f.accessLog)
	if err != nil {
		return err
	}
	l.logs["access"], l.log = lines, serving.NewLog(lines, l.secret)
	l.closes = append(l.closes, lines.Close)
	return nil
}

// dropsEvery is the time between two looks at the lines that were dropped. Tests shorten it.
var dropsEvery = 5 * time.Second

// reportDropped logs how many lines of logs were dropped. A report that is dropped itself is repeated.
func (l *limits) reportDropped(ctx context.Context) {
	look := time.NewTicker(dropsEvery)
	defer look.Stop()
	reported := map[string]uint64{}
	for {
		select {
		case <-ctx.Done():
			return
		case <-look.C:
		}
		for name, lines := range l.logs {
			dropped, err := lines.Dropped()
			if dropped == reported[name] {
				continue
			}
			reason := "its reader or disk is too slow"
			if err != nil {
				reason = err.Error()
			}
			before, _ := l.logs["error"].Dropped()
			l.Logger.Warn("weir: lines of a log were dropped", slog.String("code", "weir-log-dropped"), slog.String("log", name),
				slog.Uint64("lines", dropped-reported[name]), slog.String("error", reason))
			if after, _ := l.logs["error"].Dropped(); after == before {
				reported[name] = dropped
			}
		}
	}
}

// lacks returns the rules.Options.Lacks of these services.
func lacks(services []serving.Service) func(*rules.Proxies, rules.Need) string {
	return func(proxies *rules.Proxies, need rules.Need) string {
		if need.Of == "unix_socket" {
			return "is true, and weir serve listens on no unix socket"
		}
		if (need.Of == "user" || need.Of == "tier") && proxies.None() {
			return "needs a " + need.Of + ", which a client must not set itself: name the proxies that may set it in proxies.trusted"
		}
		for _, service := range services {
			if why := service.Lacks(proxies, need); why != "" {
				return why
			}
		}
		return ""
	}
}

// watch makes the store and the limiter, and follows changes of the rules.
func (f *serveFlags) watch(ctx context.Context, file string, services []serving.Service, l *limits) error {
	o := rules.Options{
		Config:   middleware.Config{Logger: l.Logger},
		Overload: shed.FromRules,
		Lacks:    lacks(services),
	}
	client, err := f.store(ctx, l, &o) // nil: counters are in memory
	if err != nil {
		return err
	}
	if err := f.observe(l, &o.Config); err != nil {
		return err
	}
	if file == "redis" {
		l.Watcher, err = f.watchRedis(ctx, client, l, o)
	} else {
		l.Watcher, err = rules.Watch(ctx, file, o)
	}
	if err != nil {
		return err
	}
	l.RateLimit = l.Watcher.RateLimit
	l.closes = append(l.closes, l.Watcher.Close)
	if l.admin != nil {
		l.admin.follow(l.Watcher)
	}
	return nil
}

// noRules refuses every request.
const noRules = `version: 1
proxies: {}
global: {mode: deny, refusal: {status: 503, retry_after: 10s, message: "The limits of this service are not loaded yet."}}
`

// watchRedis follows the rules in Redis. If they cannot be used yet, the rules of --fallback hold, or else
// every request is refused.
func (f *serveFlags) watchRedis(ctx context.Context, client redis.UniversalClient, l *limits, o rules.Options) (*rules.Watcher, error) {
	meanwhile := "the rules of --fallback hold"
	if f.fallback != "" {
		text, _, err := f.parse(f.fallback, o)
		if err != nil {
			return nil, fmt.Errorf("--fallback: %w", err)
		}
		o.Fallback = text
	} else {
		o.Fallback, meanwhile = []byte(noRules), "every request is answered 503"
	}
	w, err := redisrules.Watch(ctx, client, *f.rulesKey, o)
	if err == nil && w.Status().Fallback {
		l.Waiting = f.fallback == ""
		l.Logger.Warn("weir: the rules in Redis cannot be used yet, and until then "+meanwhile,
			slog.String("code", "weir-rules-awaited"), slog.String("key", *f.rulesKey), slog.String("error", inWords(w.Status().Err)))
	}
	return w, err
}

// store makes the store and the list of bans, in Redis or in memory.
func (f *serveFlags) store(ctx context.Context, l *limits, o *rules.Options) (redis.UniversalClient, error) {
	if f.replicas < 1 {
		return nil, fmt.Errorf("--replicas is %d: want 1 or more", f.replicas)
	}
	if !f.hasRedis() {
		memory, err := limiter.NewMemory(limiter.MemoryOptions{})
		if err != nil {
			return nil, err
		}
		list, err := bans.New(bans.Options{})
		l.Store, o.Config.Store, o.Config.Bans.List = memory, memory, list
		return nil, err
	}
	client, err := f.redis.connect()
	if err != nil {
		return nil, err
	}
	l.closes = append(l.closes, client.Close)
	stored := redisstore.Options{Prefix: f.redis.prefix, Secret: l.secret, Failover: failover.Options{Replicas: f.replicas, Logger: l.Logger}}
	if f.rls != "" {
		stored.Failover.Deadline = rls.Deadline
	}
	if err := stored.Validate(); err != nil {
		return nil, fmt.Errorf("--prefix, --secret-file or --replicas: %w", err)
	}
	if f.leases {
		store, err := leasestore.New(client, leasestore.Options{Redis: stored})
		if err != nil {
			return nil, err
		}
		l.Store, l.closes = store, append(l.closes, store.Close)
	} else {
		store := redisstore.New(client, stored)
		l.Store, l.closes = store, append(l.closes, store.Close)
	}
	list, err := redisbans.New(ctx, client, redisbans.Options{Prefix: f.redis.prefix, Secret: l.secret, Logger: l.Logger})
	if err != nil {
		return nil, err
	}
	o.Config.Store, o.Config.Bans.List = l.Store, list
	return client, nil
}

// reread reads the rules again, and opens the logs again.
func (l *limits) reread() {
	l.Watcher.Reread()
	var errs []error
	for _, lines := range l.logs {
		errs = append(errs, lines.Reopen())
	}
	if err := errors.Join(errs...); err != nil {
		l.Logger.Warn("weir: the earlier log stays in use: " + err.Error())
	}
}
