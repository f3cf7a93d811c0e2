package middleware

import "context"

type tierKey struct{}

// WithTier returns a context that puts its request in a tier, for Rule.Tiers and Config.ByTier. Your
// authentication calls it before the limiter runs. If a rule does not have the tier, the request
// counts against Rule.Limit. If no rule has it, a warning is logged.
func WithTier(ctx context.Context, tier string) context.Context {
	return context.WithValue(ctx, tierKey{}, tier)
}

// Tier returns the tier that WithTier set, or the empty string.
func Tier(ctx context.Context) string {
	tier, _ := ctx.Value(tierKey{}).(string)
	return tier
}
