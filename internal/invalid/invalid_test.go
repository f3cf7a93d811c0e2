package invalid_test

import (
	"errors"
	"fmt"
	"io"
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/weirgo/weir/internal/invalid"
)

func TestOnlyNamesAreSaidInOtherWords(t *testing.T) {
	words := map[invalid.Name]string{"Per": "window", "Events": "requests"}
	per := invalid.New("limiter", "%s is %q: it is not as many as %s", invalid.Name("Per"), "Per is Events", invalid.Name("Events"))
	around := invalid.New("middleware", "%s: %w", `"limiter: Per is"`, errors.Join(per, io.EOF, invalid.New("bans", "%s is 1", invalid.Name("Ban"))))

	assert.EqualError(t, per, `limiter: Per is "Per is Events": it is not as many as Events`)
	assert.Equal(t, `window is "Per is Events": it is not as many as requests`, invalid.In(words, per))
	assert.Equal(t, `"limiter: Per is": window is "Per is Events": it is not as many as requests; EOF; Ban is 1`, invalid.In(words, around))
	assert.ErrorIs(t, around, io.EOF)
	assert.Equal(t, "limiter: Per is", invalid.In(words, fmt.Errorf("limiter: Per is")), "an error of others is theirs")
}
