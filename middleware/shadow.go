package middleware

import (
	"cmp"
	"context"
	"log/slog"
	"sync"
	"time"

	"github.com/weirgo/weir/internal/missing"
	"github.com/weirgo/weir/internal/seldom"
	"github.com/weirgo/weir/limiter"
)

// notes survive a change of the rules. Each rule has some, and the bans in shadow.
type notes struct {
	refused seldom.Log // requests that would have been refused

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
	if requests := n.refused.Add(shadowLogEvery); requests > 0 {
		attrs = append(attrs, slog.String("code", "weir-shadow"), slog.Uint64("requests", requests))
		cmp.Or(logger, slog.Default()).LogAttrs(context.Background(), slog.LevelInfo, message, attrs...)
	}
}
