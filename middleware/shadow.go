package middleware

import (
	"context"
	"log/slog"
	"sync/atomic"
	"time"
)

// A shadowCount counts the requests that would have been refused, and logs the count at most once a
// minute.
type shadowCount struct {
	refused atomic.Uint64 // since the last log
	next    atomic.Int64  // time of the next log, in nanoseconds since 1970
}

const shadowLogEvery = time.Minute

func (c *shadowCount) note(logger *slog.Logger, rule *RuleInfo) {
	c.log(logger, "weir: a rule in shadow would have refused requests",
		slog.String("rule", rule.Name), slog.String("tier", rule.Tier))
}

func (c *shadowCount) log(logger *slog.Logger, message string, attrs ...slog.Attr) {
	c.refused.Add(1)
	now, next := time.Now().UnixNano(), c.next.Load()
	isEarly := now < next && next-now <= int64(shadowLogEvery) // otherwise the clock was set back
	if isEarly || !c.next.CompareAndSwap(next, now+int64(shadowLogEvery)) {
		return
	}
	if logger == nil {
		logger = slog.Default()
	}
	attrs = append(attrs, slog.String("code", "weir-shadow"), slog.Uint64("requests", c.refused.Swap(0)))
	logger.LogAttrs(context.Background(), slog.LevelInfo, message, attrs...)
}
