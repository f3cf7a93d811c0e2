package wire

import (
	"context"
	"errors"
	"io"
	"net"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestWhatRedisSaysIsClassified(t *testing.T) {
	single, split := NewTransport(nil, false), NewTransport(nil, true)
	for said, want := range map[string][2]bool{
		"OOM command not allowed when used memory > 'maxmemory'. script: f1, on @user_script:44.":                           {},
		"ERR Error running script (call to f_1): @user_script:13: -OOM command not allowed when used memory > 'maxmemory'.": {},
		"ERR Error running script (call to f_1): @user_script: 13: -READONLY You can't write against a read only replica.":  {},
		"ERR Error running script (call to f_1): @user_script:13: Script killed by user with SCRIPT KILL...":                {},
		"BUSY Redis is busy running a script. You can only call SCRIPT KILL or SHUTDOWN NOSAVE.":                            {},
		"NOAUTH Authentication required.":                                                                                       {},
		"LOADING Redis is loading the dataset in memory":                                                                        {},
		"ERR max number of clients reached":                                                                                     {},
		"CLUSTERDOWN The cluster is down":                                                                                       {},
		"MOVED 1234 127.0.0.1:7001":                                                                                             {true, false},
		"CROSSSLOT Keys in request don't hash to the same slot":                                                                 {true, false},
		"ERR Cross-slot queries are disabled for this command":                                                                  {true, false},
		"ERR Could not find scripting engine 'lua'":                                                                             {true, true},
		"ERR ACL failure in script: User u has no permissions to run the 'time' command":                                        {true, true},
		"ERR This instance has cluster support disabled":                                                                        {true, true},
		"ERR unknown command `EVALSHA`, with args beginning with: `1`":                                                          {true, true},
		"NOPERM this user has no permissions to run the 'evalsha' command":                                                      {true, true},
		"ERR user_script:3: Script attempted to access nonexistent global variable 'struct' script: f1, on @user_script:3.":     {true, true},
		"ERR Error compiling script (new function): user_script:1: '=' expected":                                                {true, true},
		"ERR Error running script (call to f_1): @enable_strict_lua:15: Script attempted to access nonexistent global variable": {true, true},
	} {
		assert.Equal(t, want, [2]bool{single.isUnusable(said), split.isUnusable(said)}, said)
	}
	for _, err := range []error{io.EOF, context.DeadlineExceeded, &net.OpError{Op: "dial", Err: errors.New("refused")}} {
		require.ErrorIs(t, single.Failed("redisstore", err, 0), err)
	}
}
