package redisstore

import (
	"time"

	"github.com/weirgo/weir/limiter"
)

func vgCases() []vgCase {
	s := limiter.Limit{Events: 10, Per: time.Hour}
	b := limiter.Limit{Events: 1000, Per: time.Hour, Algorithm: limiter.TokenBucket}
	_ = b
	return []vgCase{
		{"10 per hour x64", s, 64, 1, 128, false},
	}
}

func vgSettle(q *limiter.Quota, settles bool) { q.Settles = settles }
