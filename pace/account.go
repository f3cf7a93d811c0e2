package pace

import (
	"cmp"
	"errors"
	"fmt"
	"hash/maphash"
	"net/http"
	"strings"
	"sync"
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

// accounts are the accounts of a rule by the hash of their key, as keys must not be kept. Two keys
// with one hash would be paced as one; that is as good as impossible.
type accounts struct {
	mu sync.Mutex
	of map[uint64]*account
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
		return r.accounts.get(0, func() *account { return newAccount(r, "") }), nil
	}
	return r.accounts.get(maphash.String(seed, key), func() *account { return newAccount(r, t.digests.Digest(key).String()) }), nil
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

func (s *accounts) get(hash uint64, made func() *account) *account {
	s.mu.Lock()
	defer s.mu.Unlock()
	a := s.of[hash]
	if a == nil {
		if s.of == nil {
			s.of = map[uint64]*account{}
		}
		if len(s.of) >= mostAccounts {
			s.forgetOne()
		}
		a = made()
		s.of[hash] = a
	}
	return a
}

// forgetOne removes an account to make room for another: an idle one, if there is one among the few
// that are looked at.
func (s *accounts) forgetOne() {
	const few = 16
	var victim uint64
	n := 0
	for hash, a := range s.of { // in an order that is different each time
		victim = hash
		if n++; n == few || a.isIdle() {
			break
		}
	}
	delete(s.of, victim)
}

func (a *account) isIdle() bool {
	return a.slowdown.Load() == nil && a.cooldown.isIdle()
}

// ended returns the latest end of the cooldowns of all keys; 0: there was none.
func (s *accounts) ended() (end int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, a := range s.of {
		end = max(end, a.cooldown.ended.Load())
	}
	return end
}
