package tally

import (
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/weirgo/weir/middleware"
)

func TestACacheIsBoundedHoweverManyRulesComeAndGo(t *testing.T) {
	const most = 1000
	var c Cache[int]
	found, n := 0, new(int)
	find := func(*middleware.RuleInfo) *int { found++; return n }
	for range 3 * most {
		rule := &middleware.RuleInfo{}
		for range 2 {
			assert.Same(t, n, c.Of(rule, most, find))
		}
		size := 0
		c.known.Range(func(any, any) bool { size++; return true })
		assert.LessOrEqual(t, size, most)
	}
	assert.Equal(t, 3*most, found)
}
