package signin_test

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// isKnown reports whether the client's device is known to an account that strangers have locked.
func (c *client) isKnown(account string) bool {
	c.t.(*testing.T).Helper()
	stranger := c.from("203.0.113.1")
	for stranger.guess(account, 1) > 0 {
	}
	was, known := c.cookie, *c
	known.address = "203.0.113.1"
	status := known.try(account, "wrong")
	c.cookie = was
	return status == 200
}

func TestTheCookieIsForThisHostAlone(t *testing.T) {
	a := newSite(t)
	w := httptest.NewRecorder()
	require.NoError(t, a.s.Remember(w, httptest.NewRequest("GET", "/", nil), "jane"))
	c := w.Result().Cookies()[0]
	assert.Equal(t, "__Host-signin", c.Name)
	assert.True(t, c.HttpOnly && c.Secure)
	assert.Equal(t, http.SameSiteStrictMode, c.SameSite)
	assert.Equal(t, "/", c.Path)
	assert.Empty(t, c.Domain)
	assert.Equal(t, 400*24*3600, c.MaxAge)
	assert.NotContains(t, c.Value, "jane")
}

func TestNobodyForgesACookie(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := newSite(t)
		jane := a.device("192.0.2.1")
		require.True(t, jane.isKnown("jane"))
		assert.False(t, jane.isKnown("joe"), "a cookie of another account")
		joe := a.from("192.0.2.2")
		require.Equal(t, 303, joe.try("joe2", "right"))
		for i := strings.IndexByte(jane.cookie, '=') + 1; i < len(jane.cookie); i++ {
			for _, c := range []byte{'A', jane.cookie[i] ^ 1} {
				if forged := jane.cookie[:i] + string(c) + jane.cookie[i+1:]; forged != jane.cookie {
					assert.False(t, (&client{a, "", forged}).isKnown("jane"), "byte %d", i)
				}
			}
			if i%5 == 0 {
				assert.False(t, (&client{a, "", jane.cookie[:i]}).isKnown("jane"), "cut off at %d", i)
			}
		}
		name, value, _ := strings.Cut(jane.cookie, "=")
		_, other, _ := strings.Cut(joe.cookie, "=")
		for what, cookies := range map[string]string{
			"twice":              jane.cookie + "; " + jane.cookie,
			"and another":        jane.cookie + "; " + joe.cookie,
			"and an empty one":   name + "=; " + jane.cookie,
			"another name":       "signin=" + value,
			"more behind":        name + "=" + value + value,
			"entries put in one": name + "=" + value[:82] + other[2:],
			"an entry twice":     name + "=" + value[:82] + value[2:],
			"no entry":           name + "=1." + value[82:],
			"too long":           name + "=1." + strings.Repeat(value[2:82], 10_000) + value[82:],
			"only points":        name + "=....",
			"no point":           name + "=1",
		} {
			assert.False(t, (&client{a, "", cookies}).isKnown("jane"), what)
		}
		assert.True(t, jane.isKnown("jane"))
	})
}

func TestACookieEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := newSite(t)
		jane := a.device("192.0.2.1")
		time.Sleep(400*24*time.Hour - time.Second)
		assert.True(t, jane.isKnown("jane"))
		time.Sleep(time.Second)
		assert.False(t, jane.isKnown("jane"), "after 400 days")

		a = newSite(t)
		jane = a.device("192.0.2.1")
		a.epoch.Add(1)
		assert.False(t, jane.isKnown("jane"), "with the password of before")
		time.Sleep(24 * time.Hour)
		old := jane.cookie
		require.Equal(t, 303, jane.try("jane", "right"))
		assert.True(t, jane.isKnown("jane"))
		assert.False(t, (&client{a, "", old}).isKnown("jane"))
	})
}

func TestSecretsAreExchanged(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		next := []byte("another thirty-two bytes, also not random")
		a := newSite(t)
		jane := a.device("192.0.2.1")
		require.Equal(t, 303, jane.try("ann", "right"))
		both := newSite(t, func(a *site) { a.options.Secrets = [][]byte{next, secret} })
		jane.site = both
		assert.True(t, jane.isKnown("jane"))
		require.Equal(t, 303, jane.from("192.0.2.9").try("kim", "right"))
		require.Equal(t, 303, jane.try("ann", "right"))
		jane.site = newSite(t, func(a *site) { a.options.Secrets = [][]byte{next} })
		assert.True(t, jane.isKnown("ann"), "signed in since")
		assert.False(t, jane.isKnown("jane"), "not signed in since")
	})
}

func TestADeviceIsKnownToEightAccounts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := newSite(t)
		c := a.from("192.0.2.1")
		for i := range 9 {
			require.Equal(t, 303, c.try(fmt.Sprint("user", i), "right"))
			require.Equal(t, 303, c.try(fmt.Sprint("user", i), "right"))
			time.Sleep(time.Hour)
		}
		assert.Less(t, len(c.cookie), 700)
		for i := range 9 {
			assert.Equal(t, i > 0, c.isKnown(fmt.Sprint("user", i)), i)
		}
		b := newSite(t, func(b *site) { b.options.Name = "staff" })
		staff := &client{b, "192.0.2.1", strings.Replace(c.cookie, "__Host-signin", "__Host-staff", 1)}
		assert.False(t, staff.isKnown("user8"), "a cookie of another sign-in with the same secret")
	})
}

// A thief of a cookie has 10 guesses in 15 minutes. The owner's next cookie has a limit of its own.
func TestAStolenCookieHasALimitOfItsOwn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := newSite(t)
		owner := a.device("192.0.2.1")
		thief := &client{a, "", owner.cookie}
		require.Equal(t, 303, owner.try("jane", "right"))
		passed := 0
		for i := range 2000 {
			thief.address = fmt.Sprintf("10.0.%d.%d", i/256, i%256)
			passed += thief.guess("jane", 1)
		}
		assert.Equal(t, 10, passed)
		assert.Equal(t, 303, owner.try("jane", "right"))
	})
}
