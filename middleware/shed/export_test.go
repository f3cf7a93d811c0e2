package shed

// Bounds that tests from outside must reach.
const (
	InitialLimit = initialLimit
	MostRoutes   = mostRoutes
	MostSlow     = mostSlow
	CohortSize   = cohortSize
	SlowTime     = slowTime
	SweepEvery   = sweepEvery
)

// Slow is how many requests of slow clients are counted apart.
func (l *Limiter) Slow() int { return l.all.slow }
