package pace

import (
	"cmp"
	"errors"
	"fmt"
	"hash/maphash"
	"net/http"
	"strings"
	"sync/atomic"

	"github.com/weirgo/weir/internal/route"
	"github.com/weirgo/weir/keyfunc"
)

// Token is a [Rule]'s Key that returns the Authorization field, whatever its scheme: each token has its
// own quota. Tokens are digested at once and never logged. Requests without a token share a quota.
//
// A transport that sets the field must wrap the Transport of pace, or Token finds nothing. If tokens
// are short-lived, make the transport that sets them the base of pace instead: then a request that
// waited gets a fresh token. Pace then sees no token, so use a Key that returns the token's owner
// instead of Token.
func Token(r *http.Request) (string, error) {
	switch values := r.Header["Authorization"]; {
	case len(values) == 1 && values[0] != "":
		return values[0], nil
	case len(values) > 1:
		return strings.Join(values, "\n"), nil
	}
	return "", keyfunc.ErrNoKey
}

// An account is what this process knows about one key of a rule.
type account struct {
	rule *rule
	key  string // the digest: what requests are counted under

	cooldown cooldown
	turns    turns
	slowdown atomic.Pointer[slowdown] // nil: none
}

// mostAccounts bounds how many keys of a rule are remembered.
const mostAccounts = 10_000

var seed = maphash.MakeSeed()

// accountOf is the account that a request is counted under.
func (t *Transport) accountOf(r *rule, request *http.Request) (*account, error) {
	key := ""
	if r.key != nil {
		var err error
		if key, err = r.key(request); err != nil && !errors.Is(err, keyfunc.ErrNoKey) {
			return nil, fmt.Errorf("pace: %s: the key of the request: %w", r.name, err)
		}
	}
	if r.host.name.Host == "" { // or one server could stop requests to all
		key = serverOf(request) + "\x00" + key
	}
	if key == "" {
		return r.accounts.Get(0, func() (*account, error) { return newAccount(r, ""), nil })
	}
	return r.accounts.Get(maphash.String(seed, key), func() (*account, error) {
		return newAccount(r, t.digests.Digest(key).String()), nil
	})
}

// serverOf is the host that a request goes to, whatever its Host field says. Each host has one text.
func serverOf(request *http.Request) string {
	return cmp.Or(route.Host(request.URL.Host), strings.ToLower(request.URL.Host))
}

func newAccount(r *rule, key string) *account {
	return &account{
		rule: r, key: key,
		cooldown: cooldown{rule: r, name: "pace:" + r.name + ":" + key},
		turns:    turns{rule: r, key: key, looking: make(chan struct{}, 1)},
	}
}

func (a *account) isIdle() bool {
	return a.slowdown.Load() == nil && a.cooldown.isIdle()
}
