package limiter

// Helpers of the tests inside the package, for those outside it.
var (
	EveryAlgorithm = everyAlgorithm
	InBubble       = inBubble
	MustQuota      = mustQuota
	Named          = named
	Refunds        = refunds
	Debts          = debts
)
