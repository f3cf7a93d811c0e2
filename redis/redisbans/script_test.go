package redisbans

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
)

// Redis's clock may be wrong, and a ban is as long all the same.
func TestATimeOfTheServersIsReadByThisProcesssClock(t *testing.T) {
	n := news{now: 1_000_000, received: time.Now()}
	assert.Equal(t, n.received.Add(2*time.Second), n.at(1_002_000))
	assert.Zero(t, n.at(0))
}
