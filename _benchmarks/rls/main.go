// Rls runs `weir serve --rls` and envoyproxy/ratelimit in turns on one Redis, asks each over gRPC, and
// prints the CPU of a decision, decisions a second and the latency, and ratios to envoyproxy/ratelimit.
//
//	cd _benchmarks/rls && go run . -rounds 5 -for 4s
//
// The load generator and Redis share the machine with the service. Ratios are medians over rounds.
package main

import (
	"context"
	"flag"
	"fmt"
	"log"
	"math/rand/v2"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	common "github.com/envoyproxy/go-control-plane/envoy/extensions/common/ratelimit/v3"
	pb "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
)

const (
	clients     = 10_000 // keys
	connections = 4      // Envoy has one for each worker
	tick        = 10 * time.Millisecond

	ofRatelimit = "domain: bench\ndescriptors:\n  - {key: user, rate_limit: {unit: minute, requests_per_unit: 1000}}\n"
)

// A contestant is a service that is asked.
type contestant struct {
	name    string
	command func(b *bench, addr string) *exec.Cmd
}

var contestants = []contestant{
	{"envoyproxy/ratelimit", func(b *bench, addr string) *exec.Cmd { return b.ratelimit(addr) }},
	{"the same, pipelined", func(b *bench, addr string) *exec.Cmd {
		return b.ratelimit(addr, "REDIS_PIPELINE_WINDOW=150us", "REDIS_PIPELINE_LIMIT=8")
	}},
	{"weir, exact on Redis", func(b *bench, addr string) *exec.Cmd { return b.weir(addr, "--redis", "redis://"+b.redis) }},
	{"weir, leases", func(b *bench, addr string) *exec.Cmd {
		return b.weir(addr, "--redis", "redis://"+b.redis, "--leases")
	}},
	{"weir, in memory", func(b *bench, addr string) *exec.Cmd { return b.weir(addr) }},
}

// A bench is where the services run.
type bench struct{ dir, redis string }

func (b *bench) weir(addr string, args ...string) *exec.Cmd {
	return exec.Command(filepath.Join(b.dir, "weir"), append([]string{"serve", filepath.Join(b.dir, "limits.yaml"), "--rls", addr, "--drain", "0s"}, args...)...)
}

func (b *bench) ratelimit(addr string, settings ...string) *exec.Cmd {
	_, port, _ := net.SplitHostPort(addr)
	cmd := exec.Command(filepath.Join(b.dir, "ratelimit"))
	cmd.Env = append(append(os.Environ(), "HOST=127.0.0.1", "PORT="+free(), "DEBUG_HOST=127.0.0.1", "DEBUG_PORT="+free(),
		"GRPC_HOST=127.0.0.1", "GRPC_PORT="+port, "USE_STATSD=false", "DISABLE_STATS=true", "LOG_LEVEL=ERROR",
		"RUNTIME_ROOT="+b.dir, "RUNTIME_SUBDIRECTORY=peer", "RUNTIME_WATCH_ROOT=false",
		"REDIS_SOCKET_TYPE=tcp", "REDIS_URL="+b.redis), settings...)
	return cmd
}

// A figure is what a run measured.
type figure struct {
	cpu       time.Duration // of the service, for a decision
	perSecond float64
	p50, p99  time.Duration
}

func main() {
	log.SetFlags(0)
	rounds := flag.Int("rounds", 5, "how often each service runs")
	long := flag.Duration("for", 4*time.Second, "how long it is asked")
	flag.Parse()
	dir, err := os.MkdirTemp("", "rls")
	must(err)
	defer os.RemoveAll(dir)
	b := &bench{dir: dir, redis: "127.0.0.1:" + free()}
	b.prepare()
	server := exec.Command("redis-server", "--port", b.redis[len("127.0.0.1:"):], "--bind", "127.0.0.1", "--save", "", "--appendonly", "no")
	start(server)
	defer end(server)
	for range 100 {
		if c, err := net.Dial("tcp", b.redis); err == nil {
			must(c.Close())
			break
		}
		time.Sleep(50 * time.Millisecond)
	}
	for _, callers := range []int{64, 256} {
		figures := make([][]figure, len(contestants))
		for range *rounds {
			for i, c := range contestants {
				figures[i] = append(figures[i], b.run(c, callers, *long))
			}
		}
		report(callers, figures)
	}
}

// prepare builds both services, and writes the same limit for both.
func (b *bench) prepare() {
	build := func(dir, out, path string) {
		cmd := exec.Command("go", "build", "-o", filepath.Join(b.dir, out), path)
		cmd.Dir, cmd.Stderr = dir, os.Stderr
		must(cmd.Run())
	}
	build(".", "ratelimit", "github.com/envoyproxy/ratelimit/src/service_cmd")
	build("../../cmd/weir", "weir", ".")
	config := filepath.Join(b.dir, "peer", "config")
	must(os.MkdirAll(config, 0o755))
	must(os.WriteFile(filepath.Join(config, "bench.yaml"), []byte(ofRatelimit), 0o644))
	limits, err := exec.Command(filepath.Join(b.dir, "weir"), "import", filepath.Join(config, "bench.yaml")).Output()
	must(err)
	must(os.WriteFile(filepath.Join(b.dir, "limits.yaml"), limits, 0o644))
}

// run starts a service, and has callers ask it for so long.
func (b *bench) run(c contestant, callers int, long time.Duration) figure {
	addr := "127.0.0.1:" + free()
	service := c.command(b, addr)
	start(service)
	defer end(service)
	var asked []pb.RateLimitServiceClient
	for range connections {
		conn, err := grpc.NewClient(addr, grpc.WithTransportCredentials(insecure.NewCredentials()))
		must(err)
		defer conn.Close()
		asked = append(asked, pb.NewRateLimitServiceClient(conn))
	}
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	for _, client := range asked {
		_, err := client.ShouldRateLimit(ctx, request(0), grpc.WaitForReady(true))
		must(err)
	}
	load(asked, callers, long/4) // it warms up
	before := used(service.Process.Pid)
	took := load(asked, callers, long)
	cpu := used(service.Process.Pid) - before
	if len(took) == 0 {
		log.Fatalf("%s decided nothing", c.name)
	}
	slices.Sort(took)
	return figure{cpu / time.Duration(len(took)), float64(len(took)) / long.Seconds(), took[len(took)/2], took[len(took)*99/100]}
}

// load has callers ask for so long, and returns how long each answer took.
func load(asked []pb.RateLimitServiceClient, callers int, long time.Duration) []time.Duration {
	each := make([][]time.Duration, callers)
	ctx, cancel := context.WithTimeout(context.Background(), 2*long+10*time.Second)
	defer cancel()
	end := time.Now().Add(long)
	var all sync.WaitGroup
	for i := range callers {
		all.Go(func() {
			for time.Now().Before(end) {
				begin := time.Now()
				_, err := asked[i%len(asked)].ShouldRateLimit(ctx, request(rand.IntN(clients)))
				must(err)
				each[i] = append(each[i], time.Since(begin))
			}
		})
	}
	all.Wait()
	return slices.Concat(each...)
}

func request(client int) *pb.RateLimitRequest {
	return &pb.RateLimitRequest{Domain: "bench", Descriptors: []*common.RateLimitDescriptor{
		{Entries: []*common.RateLimitDescriptor_Entry{{Key: "user", Value: strconv.Itoa(client)}}},
	}}
}

// used is the CPU time of a process, in user and system.
func used(pid int) time.Duration {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	must(err)
	fields := strings.Fields(string(text[strings.LastIndexByte(string(text), ')')+1:]))
	var ticks int
	for _, field := range fields[11:13] {
		n, err := strconv.Atoi(field)
		must(err)
		ticks += n
	}
	return time.Duration(ticks) * tick
}

// report prints medians, and the medians of the ratios to the first contestant in the same round.
func report(callers int, figures [][]figure) {
	fmt.Printf("\n%d callers\n%-22s %10s %7s %12s %7s %10s %10s %7s\n", callers, "", "CPU", "ratio", "decisions/s", "ratio", "p50", "p99", "ratio")
	for i, c := range contestants {
		of := func(f func(figure) float64) float64 { return median(figures[i], f) }
		ratio := func(f func(figure) float64) float64 {
			all := make([]float64, len(figures[i]))
			for round := range all {
				all[round] = f(figures[i][round]) / f(figures[0][round])
			}
			slices.Sort(all)
			return all[len(all)/2]
		}
		cpu := func(f figure) float64 { return float64(f.cpu.Nanoseconds()) / 1000 }
		rate := func(f figure) float64 { return f.perSecond }
		p50 := func(f figure) float64 { return f.p50.Seconds() * 1000 }
		p99 := func(f figure) float64 { return f.p99.Seconds() * 1000 }
		fmt.Printf("%-22s %7.1f µs %7.2f %12.0f %7.2f %7.2f ms %7.2f ms %7.2f\n", c.name, of(cpu), ratio(cpu), of(rate), ratio(rate), of(p50), of(p99), ratio(p99))
	}
}

func median(figures []figure, f func(figure) float64) float64 {
	all := make([]float64, len(figures))
	for i := range figures {
		all[i] = f(figures[i])
	}
	slices.Sort(all)
	return all[len(all)/2]
}

// start starts a process that ends with this one.
func start(cmd *exec.Cmd) {
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	must(cmd.Start())
}

func end(cmd *exec.Cmd) {
	_ = cmd.Process.Kill()
	_ = cmd.Wait()
}

// free is a port that nobody listens at.
func free() string {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	must(err)
	defer l.Close()
	_, port, _ := net.SplitHostPort(l.Addr().String())
	return port
}

func must(err error) {
	if err != nil {
		log.Fatal(err)
	}
}
