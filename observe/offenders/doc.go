// Package offenders finds the keys that are refused most, and those that ask most, by rule, over
// the last hour or so: in fixed memory, however many keys there are.
//
//	top, err := offenders.New(offenders.Options{})
//	...
//	limits, err := middleware.New(middleware.Config{Observer: top, ...})
//	...
//	for _, o := range top.Top("ip", 10) {
//		fmt.Println(o.Key, o.Refused.N)
//	}
//
// It is the Space-Saving algorithm (Metwally, Agrawal and El Abbadi, 2005), in parts that
// are merged when they are read, as Agarwal and others showed it (Mergeable Summaries,
// 2012). So these hold for whatever comes, also from an attacker that chooses the keys:
//
//   - of N requests that a rule refused, every key with more than N/K of them is among the
//     first K that Top returns;
//   - no count is too low; none is too high by more than its Error, and no Error is above N/K.
//
// Most errors are far smaller, and nought as long as there are few keys.
//
// The same goes for Busiest and all N requests that the rule applied to.
//
// Requests are counted, whatever they cost. What a rule in shadow would have refused is
// refused here. Not counted are those that met no rule: they were banned, exempt, or had no
// key; and what the store could not decide about was not refused by a rule.
package offenders
