package redisbans

import (
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
