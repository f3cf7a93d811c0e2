package promlimit

import (
	"context"
	"time"

	"github.com/weirgo/weir/middleware/bans"
)

// sharedBans is a list that processes share, as that of package redisbans is.
type sharedBans interface{ Stale() time.Duration }

// bansPatience is how long a list in Redis may take before what is known here is counted.
const bansPatience = 250 * time.Millisecond

// countBans counts the bans of a list, if that can be told.
func countBans(list bans.List) (n int, ok bool) {
	if list.Empty() {
		return 0, true
	}
	ctx, cancel := context.WithTimeout(context.Background(), bansPatience)
	defer cancel()
	all, err := list.All(ctx)
	return len(all), err == nil || len(all) > 0 // with an error, those known in this process
}
