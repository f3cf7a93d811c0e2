package redisstore

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/weirgo/weir/limiter"
)

func ir(t *testing.T, pid string) int64 {
	dir := os.Getenv("VGDIR")
	old, _ := os.ReadDir(dir)
	require.NoError(t, exec.Command("callgrind_control", "-d", pid).Run())
	for range 100 {
		now, _ := os.ReadDir(dir)
		if len(now) > len(old) {
			break
		}
		time.Sleep(50 * time.Millisecond)
	}
	time.Sleep(100 * time.Millisecond)
	files, _ := os.ReadDir(dir)
	var latest string
	var when time.Time
	for _, f := range files {
		i, _ := f.Info()
		if i.ModTime().After(when) && strings.HasPrefix(f.Name(), "callgrind.out.") {
			latest, when = f.Name(), i.ModTime()
		}
	}
	b, _ := os.ReadFile(dir + "/" + latest)
	for _, l := range strings.Split(string(b), "\n") {
		var n int64
		if c, _ := fmt.Sscanf(l, "totals: %d", &n); c == 1 {
			return n
		}
		if c, _ := fmt.Sscanf(l, "summary: %d", &n); c == 1 {
			return n
		}
	}
	return -1
}

func TestVG(t *testing.T) {
	pid := os.Getenv("VGPID")
	if pid == "" {
		t.Skip()
	}
	client := redis.NewClient(&redis.Options{Addr: "127.0.0.1:7799", ReadTimeout: time.Minute})
	s := newStore(client, Options{ForgetRefusals: true}).Within(time.Minute).(*store)
	for _, tt := range vgCases() {
		require.NoError(t, client.FlushAll(context.Background()).Err())
		q := make([]*limiter.Quota, 3)
		for i := range q {
			q[i] = quotaOf(t, fmt.Sprint(tt.name, i), tt.l)
			vgSettle(q[i], tt.settles)
		}
		n := 0
		run := func(rounds int) {
			for range rounds {
				groups := make([]*group, tt.groups)
				for i := range groups {
					groups[i] = newGroup(take)
					for j := range tt.rules {
						c := limiter.Charge{Quota: q[j], Key: fmt.Sprint("key ", n%tt.keys), Cost: 1}
						groups[i].tag = s.names.Tag(c.Key)
						groups[i].add(s.names.Name(groups[i].tag, c.Quota), &c)
					}
					n++
				}
				sendAlone(s, groups)
				for _, g := range groups {
					require.NoError(t, g.err)
				}
			}
		}
		run(3*tt.keys/tt.groups + 5)
		ir(t, pid)
		rounds := 512 / tt.groups
		run(rounds)
		total := ir(t, pid)
		fmt.Printf("Ir %-28s %8d per decision\n", tt.name, total/int64(rounds*tt.groups))
	}
}

type vgCase struct {
	name                string
	l                   limiter.Limit
	groups, rules, keys int
	settles             bool
}
