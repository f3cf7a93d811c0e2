package middleware

import (
	"context"
	"encoding/binary"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
)

// However many keys clients make up, and however long answers are, what is kept is bounded.
func TestKeptUsageIsBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for name, size := range map[string]int{"many": 100, "long": 1 << 20} {
			c, set := &usageCache{}, &ruleset{}
			for i := range 25_000 / (1 + size/10_000) {
				var id usageID
				binary.LittleEndian.PutUint64(id[:], uint64(i))
				_, err := c.of(t.Context(), set, id, func(context.Context) ([]byte, error) { return make([]byte, size), nil })
				assert.NoError(t, err)
				bytes := 0
				for _, answers := range []map[usageID]*usageAnswer{c.young, c.old} {
					bytes += size * len(answers)
				}
				if len(c.young)+len(c.old) > 2*mostUsages || bytes > 2*(mostUsageText+size) {
					t.Fatalf("%s: %d answers with %d bytes are kept", name, len(c.young)+len(c.old), bytes)
				}
			}
			time.Sleep(2 * usageKept)
			_, _ = c.of(t.Context(), set, usageID{}, func(context.Context) ([]byte, error) { return nil, nil })
			time.Sleep(usageKept)
			_, _ = c.of(t.Context(), set, usageID{1}, func(context.Context) ([]byte, error) { return nil, nil })
			assert.LessOrEqual(t, len(c.young)+len(c.old), 2, "what is old is forgotten")
		}
	})
}

// A store that panics takes one request with it, and not those that wait for the same answer.
func TestAPanicDoesNotHoldOthersUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, set := &usageCache{}, &ruleset{}
		asked := make(chan struct{})
		go func() {
			defer func() { assert.Equal(t, "broken", recover()) }()
			_, _ = c.of(t.Context(), set, usageID{}, func(context.Context) ([]byte, error) {
				close(asked)
				time.Sleep(time.Second / 2)
				panic("broken")
			})
		}()
		<-asked
		_, err := c.of(t.Context(), set, usageID{}, func(context.Context) ([]byte, error) { return nil, errors.New("asked twice") })
		assert.EqualError(t, err, "it panicked")
	})
}
