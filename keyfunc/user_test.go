package keyfunc_test

import (
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/weirgo/weir/keyfunc"
)

func TestUserIsWhoTheContextSays(t *testing.T) {
	r := from("192.0.2.1:1", "X-User", "43", "User", "43")
	assertNoKey(t, keyfunc.User, r)

	r = r.WithContext(keyfunc.WithUser(r.Context(), "42"))
	assert.Equal(t, "user:42", keyOf(t, keyfunc.User, r))

	r = r.WithContext(keyfunc.WithUser(r.Context(), "43"))
	assert.Equal(t, "user:43", keyOf(t, keyfunc.User, r), "the innermost user counts")

	r = r.WithContext(keyfunc.WithUser(r.Context(), ""))
	assertNoKey(t, keyfunc.User, r)
}
