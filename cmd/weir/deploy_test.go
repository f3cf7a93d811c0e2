package main

import (
	"encoding/json"
	"go/version"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	bootstrap "github.com/envoyproxy/go-control-plane/envoy/config/bootstrap/v3"
	ratelimit "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/ratelimit/v3"
	_ "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/router/v3"
	manager "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/http_connection_manager/v3"
	_ "github.com/envoyproxy/go-control-plane/envoy/extensions/upstreams/http/v3"
	"github.com/spf13/pflag"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.yaml.in/yaml/v4"
	"google.golang.org/protobuf/encoding/protojson"

	"github.com/weirgo/weir/cmd/weir/internal/rls"
	"github.com/weirgo/weir/internal/envoy"
	"github.com/weirgo/weir/middleware/rules"
)

// parsed returns the flags of weir serve with the values that args give them, and the other arguments.
func parsed(t *testing.T, args []string) (*pflag.FlagSet, []string) {
	t.Helper()
	flags := flagsOf(t, "serve")
	require.NoError(t, flags.Parse(args), args)
	return flags, flags.Args()
}

// endsAfter requires that a process has more time to end than weir serve can take.
func endsAfter(t *testing.T, given string) {
	t.Helper()
	patience, err := time.ParseDuration(given)
	require.NoError(t, err)
	drain, err := flagsOf(t, "serve").GetDuration("drain")
	require.NoError(t, err)
	assert.Greater(t, patience, drain+requestPatience)
}

func TestComposeFilesNameWhatThereIs(t *testing.T) {
	files, err := filepath.Glob("deploy/compose*.yaml")
	require.NoError(t, err)
	require.Len(t, files, 3)
	for _, file := range files {
		var compose struct {
			Services map[string]struct {
				Image       string
				Build       struct{ Context, Dockerfile string }
				Command     []string
				Environment map[string]string
				Ports       []string
				Volumes     []string
				NetworkMode string   `yaml:"network_mode"`
				DependsOn   []string `yaml:"depends_on"`
				StopGrace   string   `yaml:"stop_grace_period"`
				ReadOnly    bool     `yaml:"read_only"`
			}
		}
		text, err := os.ReadFile(file)
		require.NoError(t, err)
		require.NoError(t, yaml.Load(text, &compose, yaml.WithKnownFields()), file)
		for name, s := range compose.Services {
			mounted := map[string]bool{}
			for _, volume := range s.Volumes {
				parts := strings.Split(volume, ":")
				require.Len(t, parts, 3, volume)
				assert.FileExists(t, filepath.Join("deploy", parts[0]), "%s: %s", file, name)
				mounted[parts[1]] = true
			}
			for _, other := range s.DependsOn {
				assert.Contains(t, compose.Services, other, file)
			}
			if name != "weir" {
				continue
			}
			assert.FileExists(t, filepath.Join("deploy", s.Build.Context, s.Build.Dockerfile), file)
			flags, args := parsed(t, s.Command)
			require.Len(t, args, 2, file)
			assert.True(t, args[0] == "serve" && mounted[args[1]], "%s: %s", file, args)
			for variable, value := range s.Environment {
				flag := strings.ToLower(strings.ReplaceAll(strings.TrimPrefix(variable, "WEIR_"), "_", "-"))
				require.NoError(t, flags.Set(flag, value), "%s: %s", file, variable)
			}
			if url := flags.Lookup("redis").Value.String(); url != "" {
				assert.Equal(t, "redis://redis:6379", url)
				assert.Contains(t, compose.Services, "redis", file)
			}
			endsAfter(t, s.StopGrace)
		}
	}
}

func TestTheSystemdUnitStartsTheCommand(t *testing.T) {
	text, err := os.ReadFile("deploy/weir.service")
	require.NoError(t, err)
	of := map[string]string{}
	for line := range strings.Lines(string(text)) {
		name, value, _ := strings.Cut(strings.TrimSpace(line), "=")
		of[name] = value
	}
	flags, args := parsed(t, strings.Fields(of["ExecStart"]))
	assert.Equal(t, []string{"/usr/local/bin/weir", "serve", "/etc/weir/weir.yaml"}, args)
	assert.Equal(t, "127.0.0.1:9090", flags.Lookup("admin").Value.String())
	assert.Equal(t, "/bin/kill -HUP $MAINPID", of["ExecReload"])
	assert.Equal(t, "always", of["Restart"])
	assert.Equal(t, "0", of["StartLimitIntervalSec"], "systemd gives up after no number of starts")
	endsAfter(t, of["TimeoutStopSec"])
}

// A go or toolchain line above the oldest Go that is supported makes every command of that Go need the
// network. So the fix is where programs are built.
func TestTheBuildsHaveAGoThatIsFixedAndTheModulesNone(t *testing.T) {
	text, err := os.ReadFile("deploy/Dockerfile")
	require.NoError(t, err)
	from := regexp.MustCompile(`(?m)^FROM --platform=\$BUILDPLATFORM golang:(\S+) AS build$`).FindSubmatch(text)
	require.NotNil(t, from, "%s", text)
	require.True(t, version.IsValid("go"+string(from[1])), "%s", from[1])
	assert.Equal(t, 3, len(strings.Split(string(from[1]), ".")), "an image of golang:1.26 may be an old one")
	assert.False(t, lacksHTTP2Fix("go"+string(from[1])), "%s", from[1])

	for _, file := range []string{"../../go.mod", "../../go.work", "go.mod"} {
		text, err := os.ReadFile(file)
		require.NoError(t, err)
		assert.Regexp(t, `(?m)^go 1\.26\.0$`, string(text), file)
		assert.NotRegexp(t, `(?m)^toolchain`, string(text), file)
	}
}

// Envoy's own types parse its configuration. Envoy calls Weir's address, with descriptors that Weir limits.
func TestEnvoysConfigurationIsValidAndMeetsTheRules(t *testing.T) {
	text, err := os.ReadFile("deploy/envoy.yaml")
	require.NoError(t, err)
	var generic any
	require.NoError(t, yaml.Load(text, &generic))
	inJSON, err := json.Marshal(generic)
	require.NoError(t, err)
	var config bootstrap.Bootstrap
	require.NoError(t, protojson.Unmarshal(inJSON, &config))
	require.NoError(t, config.ValidateAll())

	var http manager.HttpConnectionManager
	require.NoError(t, config.StaticResources.Listeners[0].FilterChains[0].Filters[0].GetTypedConfig().UnmarshalTo(&http))
	require.NoError(t, http.ValidateAll())
	var filter ratelimit.RateLimit
	require.NoError(t, http.HttpFilters[0].GetTypedConfig().UnmarshalTo(&filter))
	require.NoError(t, filter.ValidateAll())
	service := filter.RateLimitService.GrpcService
	assert.Greater(t, service.Timeout.AsDuration(), rls.Deadline)
	cluster := config.StaticResources.Clusters[0]
	assert.Equal(t, cluster.Name, service.GetEnvoyGrpc().ClusterName)
	address := cluster.LoadAssignment.Endpoints[0].LbEndpoints[0].GetEndpoint().Address.GetSocketAddress()
	assert.Equal(t, "weir", address.Address)
	compose, err := os.ReadFile("deploy/compose.envoy.yaml")
	require.NoError(t, err)
	assert.EqualValues(t, 8081, address.GetPortValue())
	assert.Contains(t, string(compose), `--rls, ":8081"`)

	limits, err := os.ReadFile("deploy/weir.envoy.yaml")
	require.NoError(t, err)
	r, err := rules.Parse(limits, rules.Options{})
	require.NoError(t, err)
	of := r.Descriptors()
	require.Len(t, of, 1)
	assert.Equal(t, filter.Domain, of[0].Domain)
	assert.Equal(t, []envoy.Entry{{Key: "remote_address"}}, of[0].Entries)
	assert.NotNil(t, http.GetRouteConfig().VirtualHosts[0].RateLimits[0].Actions[0].GetRemoteAddress())
}
