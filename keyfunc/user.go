package keyfunc

import (
	"context"
	"net/http"
)

type userContextKey struct{}

// WithUser returns a context that names the request's user, for [User]:
//
//	r = r.WithContext(keyfunc.WithUser(r.Context(), account.ID))
//
// Call it in your authentication, which must run before the limiter. Use the id of the account, not a
// name that a user can spell in several ways. An empty id removes the user from the context.
func WithUser(ctx context.Context, id string) context.Context {
	key := ""
	if id != "" {
		key = userTag + id
	}
	return context.WithValue(ctx, userContextKey{}, key)
}

// User is the user that [WithUser] put in the request's context: "user:42".
// Nothing in the request itself can change it. It does not allocate.
func User(r *http.Request) (string, error) {
	key, _ := r.Context().Value(userContextKey{}).(string)
	if key == "" {
		return "", ErrNoKey
	}
	return key, nil
}
