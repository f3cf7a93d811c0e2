package keyfunc

import (
	"context"
	"log/slog"
	"net/http"
	"sync/atomic"

	"github.com/weirgo/weir/internal/missing"
)

type userContextKey struct{}

// usersGiven is set by the first WithUser of the process. Since then, some requests should have a user.
var (
	usersGiven atomic.Bool
	users      missing.Detector
)

// WithUser returns a context that names the request's user, for [User]:
//
//	r = r.WithContext(keyfunc.WithUser(r.Context(), account.ID))
//
// Call it in your authentication, which must run before the limiter (else code weir-keyless is logged). Use the id of the account, not a
// name that a user can spell in several ways. An empty id removes the user from the context.
func WithUser(ctx context.Context, id string) context.Context {
	key := ""
	if id != "" {
		if !usersGiven.Load() {
			usersGiven.Store(true)
		}
		key = userTag + id
	}
	return context.WithValue(ctx, userContextKey{}, key)
}

// User is the user that [WithUser] put in the request's context: "user:42".
// Nothing in the request itself can change it. It does not allocate.
func User(r *http.Request) (string, error) {
	key, _ := r.Context().Value(userContextKey{}).(string)
	if key == "" {
		if usersGiven.Load() && users.Lacks(r) {
			slog.Default().LogAttrs(r.Context(), slog.LevelWarn,
				"keyfunc: WithUser is called, and none of five requests had a user when a limit asked for it: "+
					"authentication probably runs behind the limiter, so users have no limits of their own. Put it in front.",
				slog.String("code", "weir-keyless"))
		}
		return "", ErrNoKey
	}
	users.Found()
	return key, nil
}
