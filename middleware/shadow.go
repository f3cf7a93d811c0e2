package middleware

import (
	"cmp"
	"context"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/weirgo/weir/internal/missing"
	"github.com/weirgo/weir/limiter"
)

// notes survive a change of the rules. Each rule has some, and the bans in shadow.
type notes struct {
	// Requests that would have been refused are counted, and the count is logged at most once a minute.
	refused atomic.Uint64 // since the last log
	nextLog atomic.Int64  // in nanoseconds since 1970

	keys missing.Detector // of clients; found by any request, also before a change of the rules

	// A quota for each name and tier that the rule and its own limits have used lately, for Reset.
	mu            sync.Mutex
	quotas, older map[counterKey]*limiter.Quota
}

const shadowLogEvery = time.Minute

func (n *notes) wouldRefuse(logger *slog.Logger, rule *RuleInfo) {
	n.logShadow(logger, "weir: a rule in shadow would have refused requests",
		slog.String("rule", rule.Name), slog.String("tier", rule.Tier))
}

func (n *notes) logShadow(logger *slog.Logger, message string, attrs ...slog.Attr) {
	n.refused.Add(1)
	now, next := time.Now().UnixNano(), n.nextLog.Load()
	isEarly := now < next && next-now <= int64(shadowLogEvery) // otherwise the clock was set back
	if isEarly || !n.nextLog.CompareAndSwap(next, now+int64(shadowLogEvery)) {
		return
	}
	attrs = append(attrs, slog.String("code", "weir-shadow"), slog.Uint64("requests", n.refused.Swap(0)))
	cmp.Or(logger, slog.Default()).LogAttrs(context.Background(), slog.LevelInfo, message, attrs...)
}
