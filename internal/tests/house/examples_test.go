package house_test

import (
	"bufio"
	"cmp"
	"context"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weirgo/weir/internal/redistest"
)

// An example is what a program under _examples promises.
type example struct {
	request string            // method and path that are limited
	header  map[string]string // sent with the request
	limit   int               // requests that pass before one is refused
	within  time.Duration     // the limit's period
	status  int               // of those that pass; 0: 200
	free    string            // method and path that still answer 200 then, if any
	shows   []string          // what a reader comes for, word for word
	lines   int               // that its main.go may have; 0: 60

	// args are what the program is started with in this test, beside its address.
	args func(t *testing.T) []string

	// after is what else is to be seen when a request was refused. Nil: nothing.
	after func(t *testing.T, server string, args []string)
}

var examples = map[string]example{
	"quickstart": {
		request: "GET /", limit: 5, within: 10 * time.Second,
		shows: []string{"weir.PerIP("},
	},
	"nethttp": {
		request: "POST /login", limit: 5, within: time.Minute, free: "GET /",
		shows: []string{
			"handler := weir.PerIP(weir.PerMinute(100))(mux)",
			`mux.Handle("POST /login", weir.PerIP(weir.PerMinute(5))(http.HandlerFunc(login)))`,
		},
	},
	"chi": {
		request: "GET /search", limit: 2, within: time.Second, free: "GET /",
		shows: []string{
			"r.Use(weir.PerIP(weir.PerMinute(100)))",
			`r.With(weir.PerIP(weir.PerSecond(2))).Get("/search", search)`,
		},
	},
	"gin": {
		request: "GET /api/search", limit: 2, within: time.Second, free: "GET /",
		shows: []string{
			"r.Use(ginlimit.PerIP(weir.PerMinute(100)))",
			`g.GET("/search", ginlimit.PerIP(weir.PerSecond(2)), search)`,
		},
	},
	"echo": {
		request: "GET /search", limit: 2, within: time.Second, free: "GET /",
		shows: []string{
			"e.Use(echolimit.PerIP(weir.PerMinute(100)))",
			`e.GET("/search", search, echolimit.PerIP(weir.PerSecond(2)))`,
		},
	},
	"echo5": {
		request: "GET /search", limit: 2, within: time.Second, free: "GET /",
		shows: []string{
			"e.Use(echo5limit.PerIP(weir.PerMinute(100)))",
			`e.GET("/search", search, echo5limit.PerIP(weir.PerSecond(2)))`,
		},
	},
	"tiers": {
		request: "GET /", header: map[string]string{"X-Api-Key": "finn"}, limit: 100, within: time.Hour, free: "GET /usage",
		shows: []string{
			`{Name: "plan", Key: keyfunc.First(keyfunc.User, keyfunc.IP()),`,
			"Limit: weir.PerHour(20), // without an account",
			`Tiers: weir.Tiers{"free": weir.PerHour(100), "premium": weir.PerHour(10_000)}},`,
			"ctx = weir.WithTier(ctx, ",
			"ctx = weir.WithUser(ctx, ", `mux.Handle("GET /usage", limits.Usage())`,
		},
		after: usageIsTold,
	},
	"costs": {
		request: "POST /login", limit: 5, within: time.Minute, status: http.StatusUnauthorized, free: "POST /complete", lines: 70,
		shows: []string{
			"Cost: weir.Reserve(maxTokens)},", `weir.Settle(r.Context(), "tokens", used)`, "Counts: weir.Statuses(401, 403)},",
		},
	},
	"llm": {
		request: "POST /v1/chat/completions", header: map[string]string{"Authorization": "Bearer noisy"}, limit: 60, within: time.Minute,
		status: http.StatusBadRequest, lines: 130, // there are no messages
		shows: []string{"ModifyResponse: settle,", "tokens.Watch(res, ", "body, c.asked = tokens.Ask(", "Cost: weir.Reserve(reservation)}"},
		args:  func(*testing.T) []string { return []string{"-provider", "127.0.0.1:0"} },
		after: tokensAreSettled,
	},
	"overload": {
		request: "GET /", limit: 10, within: time.Minute, free: "GET /healthz", lines: 100,
		shows: []string{
			`Overload: shed.Must(shed.New(shed.Options{Priority: []string{"premium", "free"}})),`,
			"breaker.Execute(warehouse)", "http.StatusServiceUnavailable",
		},
	},
	"pace": {
		request: "GET /api", limit: 5, within: time.Second, free: "GET /", lines: 130,
		shows: []string{
			`Rules:    []pace.Rule{{Host: host, Key: pace.Token, Limit: weir.PerSecond(5)}},`,
			"pace.NewTransport(http.DefaultTransport, pace.Options{", "client := &http.Client{Transport: w.transport}",
		},
		after: workersWaitAndAreNotRefused,
	},
	"concurrency": {
		request: "GET /", limit: 10, within: time.Minute, free: "GET /healthz",
		shows: []string{"Limit: weir.AtOnce(2).Queue(2, 10*time.Second)},"},
		args:  func(t *testing.T) []string { return []string{"-takes", "3s"} },
		after: twoRunAndTwoWait,
	},
	"redis": {
		request: "GET /", limit: 10, within: time.Minute, free: "GET /news",
		shows: []string{"redisstore.New(rdb", "OnOutage: weir.FailClosed", "OnOutage: weir.FailOpen"},
		args: func(t *testing.T) []string {
			return []string{"-second", "127.0.0.1:0", "-redis", redistest.Start(t).Addr}
		},
	},
	"rules": {
		request: "GET /api/v1/search", limit: 10, within: 20 * time.Second, free: "GET /healthz",
		shows: []string{
			"limits, err := rules.Watch(", "r.Use(authenticate, chilimit.New(limits.RateLimit))",
			"sed -i.bak 's/burst: 10/burst: 20/' _examples/rules/weir.yaml",
		},
		args:  func(t *testing.T) []string { return []string{"-rules", copyOfRules(t)} },
		after: rulesCanBeEdited,
	},
	"observability": {
		request: "GET /search", limit: 10, within: time.Minute, free: "GET /", lines: 110,
		shows: []string{
			"promlimit.Must(promlimit.New(promlimit.Options{Store: store, Bans: list, Top: top}))", "prometheus.MustRegister(metrics)",
			"middleware.Observers(metrics, refusals, page, top)", "page.Add(limits)",
		},
		after: metricsTellWhoIsRefused,
	},
}

// tokensAreSettled asks the model for an answer and for a stream, and what they cost.
func tokensAreSettled(t *testing.T, server string, _ []string) {
	send := func(method, path, body string) string {
		r, err := http.NewRequestWithContext(t.Context(), method, server+path, strings.NewReader(body))
		require.NoError(t, err)
		r.Header.Set("Authorization", "Bearer finn")
		response, err := http.DefaultClient.Do(r)
		require.NoError(t, err)
		defer response.Body.Close()
		text, err := io.ReadAll(response.Body)
		require.NoError(t, err)
		require.Equal(t, http.StatusOK, response.StatusCode, "%s", text)
		return string(text)
	}
	const path = "/v1/chat/completions"
	for i, request := range []string{
		`{"max_tokens":2,"messages":[{"role":"user","content":"Hi"}]}`,
		`{"max_tokens":2,"messages":[{"role":"user","content":"Hi"}],"stream":true}`,
		`{"max_tokens":2,"messages":[{"role":"user","content":"Hi"}],"stream":true,"stream_options":{"include_usage":true}}`,
	} {
		answer := send(http.MethodPost, path, request)
		require.Equal(t, i != 1, strings.Contains(answer, `"prompt_tokens":4`), "%s", answer)
		require.Eventually(t, func() bool {
			return strings.Contains(send(http.MethodGet, "/usage", ""), fmt.Sprintf(`"quota":100000,"window":60,"used":%d,`, 12*(i+1)))
		}, 10*time.Second, 10*time.Millisecond, "4 tokens and 2 of weight 4 a request")
	}
}

// usageIsTold asks what is left when everything is used up.
func usageIsTold(t *testing.T, server string, _ []string) {
	r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, server+"/usage", nil)
	require.NoError(t, err)
	r.Header.Set("X-Api-Key", "finn")
	var body string
	require.Eventually(t, func() bool { // an answer may be a second old
		response, err := http.DefaultClient.Do(r)
		require.NoError(t, err)
		defer response.Body.Close()
		text, err := io.ReadAll(response.Body)
		require.NoError(t, err)
		body = string(text)
		return strings.Contains(body, `"used":100,"remaining":0,`)
	}, 10*time.Second, 100*time.Millisecond)
	require.Contains(t, body, `"rule":"plan","tier":"free","key":"own","limits":[{"limit":"100/1h","events":100,"per":3600,`)
}

// workersWaitAndAreNotRefused waits until each worker has been served more often than there is a
// burst for.
func workersWaitAndAreNotRefused(t *testing.T, server string, _ []string) {
	waited := regexp.MustCompile(`(?m)^(mail|invoice|report) +([4-9]|\d\d+) +0 +\d+ +\S+ +([1-9]\d+ms|[\d.]+s)$`)
	screen := ""
	require.Eventually(t, func() bool {
		response, err := http.Get(server + "/")
		if err != nil {
			return false
		}
		defer response.Body.Close()
		text, err := io.ReadAll(response.Body)
		screen = string(text)
		return err == nil && len(waited.FindAllString(screen, -1)) == 3
	}, 30*time.Second, 100*time.Millisecond, "the workers are not served in turn")
	require.Regexp(t, `(?m)^worker +sent +refused +waiting +waited last +at most$`, screen)
}

// metricsTellWhoIsRefused waits for the attacker and the noisy tenant to be seen on the page.
func metricsTellWhoIsRefused(t *testing.T, server string, _ []string) {
	snapshot := func() string {
		r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, server+"/limits", nil)
		require.NoError(t, err)
		r.Header.Set("Accept", "application/json")
		response, err := http.DefaultClient.Do(r)
		require.NoError(t, err)
		defer response.Body.Close()
		text, err := io.ReadAll(response.Body)
		require.NoError(t, err)
		return string(text)
	}
	require.Eventually(t, func() bool {
		text := snapshot()
		return strings.Contains(text, "header:X-Tenant:noisy") && strings.Contains(text, "198.51.100.")
	}, 30*time.Second, 100*time.Millisecond, "the page does not tell who is refused")
	for _, rule := range []string{"ip", "tenant", "search"} {
		refused := regexp.MustCompile(`rate_limit_requests_total\{decision="refused",rule="` + rule + `".*\} [1-9]`)
		require.Eventually(t, func() bool {
			response, err := http.Get(server + "/metrics")
			if err != nil {
				return false
			}
			defer response.Body.Close()
			text, err := io.ReadAll(response.Body)
			return err == nil && refused.Match(text)
		}, 30*time.Second, 100*time.Millisecond, "nothing that %s refuses", rule)
	}
}

// twoRunAndTwoWait has six exports asked for at once.
func twoRunAndTwoWait(t *testing.T, server string, _ []string) {
	responses := make(chan *http.Response)
	for range 6 {
		go func() {
			response, err := http.Post(server+"/exports", "", nil)
			if err == nil {
				response.Body.Close()
			}
			responses <- response
		}()
	}
	passed := 0
	for range 6 {
		response := <-responses
		require.NotNil(t, response)
		if response.StatusCode == http.StatusOK {
			passed++
			continue
		}
		require.Equal(t, http.StatusTooManyRequests, response.StatusCode)
		require.NotEmpty(t, response.Header.Get("Retry-After"))
	}
	require.Equal(t, 4, passed, "two at once, and two that waited")
}

// copyOfRules is the path of the example's file, in a folder of this test.
func copyOfRules(t *testing.T) string {
	folder := t.TempDir()
	require.NoError(t, os.CopyFS(folder, os.DirFS("_examples/rules")))
	return filepath.Join(folder, "weir.yaml")
}

// rulesCanBeEdited does what the comment on top of the example does.
func rulesCanBeEdited(t *testing.T, server string, args []string) {
	require.Equal(t, http.StatusForbidden,
		ask(t, server, "GET /", map[string]string{"X-Api-Key": "mallory"}).StatusCode, "banned.txt is in force")
	path := args[1]
	text, err := os.ReadFile(path)
	require.NoError(t, err)
	edited := strings.Replace(string(text), "burst: 10", "burst: 20", 1)
	require.NotEqual(t, string(text), edited)
	require.NoError(t, os.WriteFile(path, []byte(edited), 0o600))
	var response *http.Response
	require.Eventually(t, func() bool {
		response = ask(t, server, "GET /api/v1/search", nil)
		return response.Header.Get("X-RateLimit-Limit") == "20"
	}, redistest.Patience, 10*time.Millisecond, "the file that was edited is not in force")
	require.Equal(t, http.StatusOK, response.StatusCode, "of 20, 10 were used")
}

func TestExamplesDoWhatTheyShow(t *testing.T) {
	t.Parallel()
	entries, err := os.ReadDir("_examples")
	require.NoError(t, err)
	var paths []string
	for _, entry := range entries {
		if !entry.IsDir() || entry.Name() == "later" { // a module with a test of its own
			continue
		}
		if _, ok := examples[entry.Name()]; !ok {
			t.Fatalf("_examples/%s is not in this test: say what it promises", entry.Name())
		}
		paths = append(paths, "./_examples/"+entry.Name())
	}
	require.Len(t, paths, len(examples), "this test expects an example that is not there")

	// All at once: each pattern is a folder, and run fails where one matches nothing.
	programs := t.TempDir()
	run(t, append([]string{"go", "build", "-o", programs + string(filepath.Separator)}, paths...)...)
	run(t, append([]string{"go", "vet"}, paths...)...)

	for name, example := range examples {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			example.isShown(t, name)
			var args []string
			if example.args != nil {
				args = example.args(t)
			}
			server := start(t, filepath.Join(programs, name), args...)
			example.isKept(t, server)
			if example.after != nil {
				example.after(t, server, args)
			}
		})
	}
}

// isShown checks the program's text.
func (e example) isShown(t *testing.T, name string) {
	source, err := os.ReadFile(filepath.Join("_examples", name, "main.go"))
	require.NoError(t, err)
	text := string(source)
	comment, _, _ := strings.Cut(text, "package main")
	require.Contains(t, comment, "go run ./_examples/"+name+"\n", "the comment on top says how to run it")
	_, path, _ := strings.Cut(e.request, " ")
	require.Contains(t, comment, "http://127.0.0.1:8080"+path, "the comment on top says what to ask")
	require.Contains(t, text, `"addr", "127.0.0.1:8080"`)
	for _, line := range e.shows {
		require.Contains(t, text, line, "a reader comes for this line, as the docs spell it")
	}
	if lines, most := strings.Count(text, "\n"), cmp.Or(e.lines, 60); lines > most {
		t.Errorf("it has %d lines, more than %d: an example is read at a glance", lines, most)
	}
}

// isKept asks the running program until it refuses.
func (e example) isKept(t *testing.T, server string) {
	var refused *http.Response
	began, passed := time.Now(), 0
	for refused == nil {
		response := ask(t, server, e.request, e.header)
		switch response.StatusCode {
		case cmp.Or(e.status, http.StatusOK):
			passed++
			// A machine too slow for two requests in a second would go on forever.
			require.Less(t, passed, 3*e.limit+20, "nothing is refused")
		case http.StatusTooManyRequests:
			refused = response
		default:
			t.Fatalf("request %d answered %s", passed+1, response.Status)
		}
	}
	if passed < e.limit {
		t.Errorf("%d requests passed, want %d before the first refusal", passed, e.limit)
	}

	h := refused.Header
	require.Equal(t, strconv.Itoa(e.limit), h.Get("X-RateLimit-Limit"), "the limit that refused is told")
	require.Equal(t, "0", h.Get("X-RateLimit-Remaining"), "a refusal says that nothing is left")
	reset, err := strconv.ParseInt(h.Get("X-RateLimit-Reset"), 10, 64)
	require.NoError(t, err, "X-RateLimit-Reset is a time in seconds since 1970")
	require.Less(t, began.Unix()-1, reset, "the reset is ahead")
	require.LessOrEqual(t, reset, time.Now().Add(2*e.within).Unix()+1, "no reset is further ahead than two periods")
	retry, err := strconv.Atoi(h.Get("Retry-After"))
	require.NoError(t, err, "Retry-After is a number of seconds")
	// A sliding window's events fade in the window after their own.
	if most := 2 * int(e.within/time.Second); retry < 1 || retry > most {
		t.Errorf("Retry-After is %d, want from 1 to %d", retry, most)
	}
	require.NotContains(t, h, "Ratelimit-Policy", "clients see no rules")

	if e.free != "" {
		require.Equal(t, http.StatusOK, ask(t, server, e.free, nil).StatusCode,
			"%s is not behind the limit that refused", e.free)
	}
}

// ask sends a request and returns the response without its body.
func ask(t *testing.T, server, request string, header map[string]string) *http.Response {
	t.Helper()
	method, path, _ := strings.Cut(request, " ")
	r, err := http.NewRequestWithContext(t.Context(), method, server+path, nil)
	require.NoError(t, err)
	for name, value := range header {
		r.Header.Set(name, value)
	}
	response, err := http.DefaultClient.Do(r)
	require.NoError(t, err)
	_, err = io.Copy(io.Discard, response.Body)
	require.NoError(t, err)
	require.NoError(t, response.Body.Close())
	return response
}

// start runs a program on a free port until the test ends and returns its URL.
func start(t *testing.T, program string, args ...string) string {
	return startAll(t, program, 1, args...)[0]
}

// startAll is start for a program with so many servers.
func startAll(t *testing.T, program string, servers int, args ...string) (urls []string) {
	ctx, stop := context.WithTimeout(t.Context(), 2*time.Minute)
	cmd := exec.CommandContext(ctx, program, append([]string{"-addr", "127.0.0.1:0"}, args...)...)
	stderr, err := cmd.StderrPipe()
	require.NoError(t, err)
	require.NoError(t, cmd.Start())
	t.Cleanup(func() {
		stop()
		_ = cmd.Wait() // it was killed, which is an error
	})
	lines := bufio.NewScanner(stderr)
	for lines.Scan() {
		if _, url, ok := strings.Cut(lines.Text(), "listening on "); ok {
			urls = append(urls, url)
		}
		if len(urls) == servers {
			go io.Copy(io.Discard, stderr) // gin logs every request
			return urls
		}
	}
	t.Fatalf("%s does not say where it listens", program)
	return nil
}
