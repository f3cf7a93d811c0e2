package seldom_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/weirgo/weir/internal/seldom"
)

func TestTheFirstEventIsLoggedAndThenTheirNumber(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var l seldom.Log
		assert.EqualValues(t, 1, l.Add(time.Minute))
		for range 5 {
			assert.Zero(t, l.Add(time.Minute))
		}
		time.Sleep(time.Minute - time.Nanosecond)
		assert.Zero(t, l.Add(time.Minute))
		time.Sleep(time.Nanosecond)
		assert.EqualValues(t, 7, l.Add(time.Minute))
		assert.EqualValues(t, 1, l.Add(0), "each event")
	})
}
