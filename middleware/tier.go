package middleware

import "context"

type tierKey struct{}

// WithTier puts requests with this context in a tier, for rules that have Tiers.
// Authentication calls it, before the limiter. A tier that a rule does not have
// counts against the rule's Limit, and one that no rule has is warned of.
func WithTier(ctx context.Context, tier string) context.Context {
	return context.WithValue(ctx, tierKey{}, tier)
}

// Tier is the tier that WithTier set, or empty.
func Tier(ctx context.Context) string {
	tier, _ := ctx.Value(tierKey{}).(string)
	return tier
}
