package main

import (
	"bytes"
	"os"
	"os/exec"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/weirgo/weir/benchmarks/race"
	"github.com/weirgo/weir/internal/redistest"
)

// TestMain is a process of the service where the race starts this program as one.
func TestMain(m *testing.M) {
	if race.IsChild() {
		main()
		return
	}
	os.Exit(m.Run())
}

func raced(t *testing.T, args ...string) string {
	redistest.Start(t) // or skip
	s, err := parse(append(args, "-rounds", "1", "-slice", "200ms", "-callers", "4"))
	require.NoError(t, err)
	var out bytes.Buffer
	require.NoError(t, run(t.Context(), s, &out))
	return out.String()
}

func TestEveryContestantCallsEveryServer(t *testing.T) {
	args := []string{"-cases", "weir,503,closed port,cost"}
	servers := []string{byWeir, dead, closed}
	if _, err := exec.LookPath("nginx"); err == nil {
		args, servers = append(args, "-cases", "nginx"), append(servers, byNginx)
	}
	out := raced(t, args...)
	for _, server := range servers {
		for _, c := range contestants {
			assert.Regexp(t, "### "+server+":[^#]*\\| "+c.name+" ", out)
		}
	}
	assert.Contains(t, out, "### Goals")
}

func TestACooldownIsMeasured(t *testing.T) {
	out := raced(t, "-cases", "cooldown", "-only", naive)
	assert.Regexp(t, `\| naive +\| +[12],\d\d\d \|`, out, "it goes on")
}

func TestWhatIsMissingIsToBeInstalled(t *testing.T) {
	t.Setenv("PATH", "")
	_, err := nginxParty(t.Context(), limit)
	assert.ErrorContains(t, err, "apt-get install nginx")
}

func TestAPartyForgetsWhatCameBefore(t *testing.T) {
	s := &server{came: []arrival{{at: time.Unix(1, 0)}, {at: time.Unix(2, 0)}}}
	came, err := s.arrivals(time.Unix(2, 0))
	require.NoError(t, err)
	assert.Equal(t, []arrival{{at: time.Unix(2, 0)}}, came)
	came, err = s.arrivals(time.Unix(0, 0))
	require.NoError(t, err)
	assert.Empty(t, came)
}

func TestFlagsThatMakeNoSenseAreRefused(t *testing.T) {
	for _, args := range [][]string{{"-callers", "0"}, {"-only", "none"}, {"-cases", "none"}, {"-slice", "0s"}, {"more"}} {
		_, err := parse(args)
		assert.Error(t, err, args)
	}
}
