package bans_test

import (
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/weirgo/weir/middleware/bans"
)

func TestABanSaysWhyByWhomAndSinceWhen(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newMemory(t, bans.Options{})
		time.Sleep(time.Minute)
		begun := time.Now()
		require.NoError(t, m.Ban(t.Context(), "key", time.Hour, bans.Reason("scrapes the shop"), bans.By("ada")))
		require.NoError(t, m.Ban(t.Context(), "another", time.Hour))
		_, err := m.Escalate(t.Context(), "third", "login", bans.Escalation{After: 1, Within: time.Minute, Ban: time.Hour})
		require.NoError(t, err)
		time.Sleep(time.Minute)
		all, err := m.All(t.Context())
		require.NoError(t, err)
		require.Len(t, all, 3)
		for _, ban := range all {
			found, _ := m.Find(ban.Key)
			assert.Equal(t, ban, found)
			assert.True(t, begun.Equal(ban.Since), ban)
			switch ban.Key {
			case "key":
				assert.Equal(t, [2]string{"scrapes the shop", "ada"}, [2]string{ban.Reason, ban.By})
			case "third":
				assert.Equal(t, "login", ban.Rule)
				fallthrough
			default:
				assert.Empty(t, ban.Reason+ban.By)
			}
		}

		// What replaces it has its own notes; a list that got it from elsewhere has them too.
		other := newMemory(t, bans.Options{})
		m.Each(func(b bans.Ban, remember time.Duration) { require.NoError(t, other.Restore(b, remember)) })
		ban, _ := other.Find("key")
		assert.Equal(t, "ada", ban.By)
		assert.True(t, begun.Equal(ban.Since))
		require.NoError(t, m.Ban(t.Context(), "key", time.Hour))
		ban, _ = m.Find("key")
		assert.Empty(t, ban.Reason+ban.By)
		assert.True(t, time.Now().Equal(ban.Since))

		require.NoError(t, other.Restore(bans.Ban{Key: "old", Until: time.Now().Add(time.Hour)}, 0))
		ban, _ = other.Find("old")
		assert.True(t, ban.Since.IsZero(), "what is not known is not made up")
	})
}

func TestNotesArePrintableAndShort(t *testing.T) {
	m := newMemory(t, bans.Options{})
	for _, reason := range []string{strings.Repeat("a", 201), "a\nb", "\x00", "\xff", "a\u202eb", "\x1f"} {
		err := m.Ban(t.Context(), "key", 0, bans.Reason(reason))
		assert.ErrorContains(t, err, "bans: Reason ", "%q", reason)
	}
	assert.ErrorContains(t, m.Ban(t.Context(), "key", 0, bans.By(strings.Repeat("a", 101))), "bans: By has 101 bytes: it may have 100")
	assert.ErrorContains(t, m.Restore(bans.Ban{Key: "key", By: "a\tb"}, 0), "bans: By ")
	assert.True(t, m.Empty(), "a ban that is not as it was asked for is none")
	require.NoError(t, m.Ban(t.Context(), "key", 0, bans.Reason("<b>Größe</b> 漢字"), bans.By("ada@example.org")))
}
