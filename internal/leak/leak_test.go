package leak

import (
	"testing"

	"github.com/stretchr/testify/assert"
)

func TestAGoroutineThatStaysIsFoundAndOneThatEndsIsNot(t *testing.T) {
	before := Now()
	end, ended := make(chan struct{}), make(chan struct{})
	go func() { <-end; close(ended) }()
	found := 0
	for id, stack := range stacks() {
		if !before[id] {
			assert.False(t, isOthers(stack), stack)
			found++
		}
	}
	assert.Equal(t, 1, found)
	close(end)
	<-ended
	before.Verify(t)
	assert.Empty(t, before.Left())
}

func TestAGoroutineOfOthersIsNoLeak(t *testing.T) {
	t.Run("", func(t *testing.T) { Goroutines{}.Verify(t) }) // the parent waits in testing.(*T).Run
}
