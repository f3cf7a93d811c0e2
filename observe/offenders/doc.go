// Package offenders finds the keys that a rule refuses most, and the keys with the most requests, over
// the last hour or so. Its memory is bounded, however many keys there are.
//
//	top, err := offenders.New(offenders.Options{})
//	...
//	limits, err := middleware.New(middleware.Config{Observer: top, ...})
//	...
//	for _, o := range top.Top("ip", 10) {
//		fmt.Println(o.Key, o.Refused.N)
//	}
//
// It uses the Space-Saving algorithm (Metwally, Agrawal and El Abbadi, 2005), in parts that are merged
// when they are read, as Agarwal and others describe (Mergeable Summaries, 2012). So the following
// holds for any traffic, even if an attacker chooses the keys. K is [Options].K.
//
//   - If a rule refused N requests, every key with more than N/K of them is among the first K keys that
//     Top returns.
//   - No count is too low. None is too high by more than its Error, and no Error is above N/K.
//
// Most errors are far smaller. With few keys all errors are 0.
//
// The same holds for Busiest, where N is the number of requests that the rule applied to.
//
// Each request counts as one, whatever it costs. A refusal in shadow counts as a refusal. Requests that
// met no rule are not counted: they were banned, exempt, or had no key. A request that the store could
// not decide about is no refusal.
package offenders
