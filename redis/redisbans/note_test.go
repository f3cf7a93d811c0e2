package redisbans

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/weirgo/weir/internal/redistest"
	"github.com/weirgo/weir/middleware/bans"
)

func TestOtherProcessesKnowWhyByWhomAndSinceWhen(t *testing.T) {
	server := redistest.Start(t)
	one, other := readList(t, connect(t, server), Options{}), readList(t, connect(t, server), Options{})
	begun := time.Now()
	require.NoError(t, one.Ban(t.Context(), "key", time.Hour, bans.Reason("scrapes | the shop"), bans.By("ada")))
	_, err := one.Escalate(t.Context(), "second", "login", bans.Escalation{After: 1, Within: time.Minute, Ban: time.Hour})
	require.NoError(t, err)
	heard := awaitBanned(t, other, "key")
	escalated := awaitBanned(t, other, "second")
	for name, ban := range map[string]bans.Ban{
		"heard": heard, "read": awaitBanned(t, readList(t, connect(t, server), Options{}), "key"), "own": awaitBanned(t, one, "key"),
	} {
		assert.Equal(t, [3]string{"scrapes | the shop", "ada", ""}, [3]string{ban.Reason, ban.By, ban.Rule}, name)
		assert.WithinDuration(t, begun, ban.Since, 10*time.Second, name)
	}
	assert.Equal(t, [3]string{"", "", "login"}, [3]string{escalated.Reason, escalated.By, escalated.Rule})
	assert.WithinDuration(t, begun, escalated.Since, 10*time.Second)
	assert.ErrorContains(t, one.Ban(t.Context(), "third", 0, bans.By("a\x1fb")), "By")
}

func TestNotesOutliveARedisThatLosesThem(t *testing.T) {
	server := redistest.Start(t)
	client := connect(t, server)
	list := readList(t, client, Options{})
	require.NoError(t, list.Ban(t.Context(), "key", time.Hour, bans.Reason("scrapes"), bans.By("ada")))
	before := awaitBanned(t, list, "key")
	require.NoError(t, client.FlushAll(t.Context()).Err())
	_, err := list.All(t.Context())
	require.NoError(t, err)
	after := awaitBanned(t, readList(t, client, Options{}), "key")
	assert.Equal(t, [2]string{"scrapes", "ada"}, [2]string{after.Reason, after.By})
	assert.WithinDuration(t, before.Since, after.Since, 10*time.Second)
}

// What a version without notes has written is read, and its processes find what is written now.
func TestBansOfAnOlderVersionAreRead(t *testing.T) {
	server := redistest.Start(t)
	client := connect(t, server)
	list := readList(t, client, Options{})
	ends := time.Now().Add(time.Hour).UnixMilli()
	for key, rule := range map[string]string{"by hand": "", "escalated": "login of \x1f all"} {
		require.NoError(t, client.HSet(t.Context(), list.redis.names[0], list.tag(key), fmt.Sprintf("%d 0 0 %s", ends, rule), "version", "1").Err())
	}
	fresh := readList(t, client, Options{})
	ban := awaitBanned(t, fresh, "by hand")
	assert.Empty(t, ban.Rule+ban.Reason+ban.By)
	assert.True(t, ban.Since.IsZero(), "not known")
	assert.Equal(t, "login of \x1f all", awaitBanned(t, fresh, "escalated").Rule)

	// A ban that there is, is answered as it is.
	known, err := fresh.Escalate(t.Context(), "escalated", "other", bans.Escalation{After: 1, Within: time.Minute, Ban: time.Minute})
	require.NoError(t, err)
	assert.Equal(t, "login of \x1f all", known.Rule)
	unban(t, fresh, "by hand", true)
}
