// Package serverlimit reads what a server said about its limits, in whichever of the many
// dialects it speaks: draft-ietf-httpapi-ratelimit-headers-11 and the drafts before it,
// X-RateLimit-* of all kinds, Retry-After, and what providers have made up beside them.
//
//	said := serverlimit.Read(resp)
//	if said.Limited {
//		time.Sleep(said.Wait) // 0: the server does not say; use a backoff of your own
//	}
//
// It reads status and header fields, sends nothing, keeps nothing, and does not touch the
// body. A field is known by its name, whatever the host: "-Limit", "-Remaining" and "-Reset"
// behind "RateLimit" or "Rate-Limit", with any prefix, and with the name of a quota between
// or behind, as in Anthropic-Ratelimit-Tokens-Remaining and X-RateLimit-Limit-Minute.
//
// # Times
//
// Times in a Reading are durations from the moment at which the server answered. A server
// that tells an instant is read against the Date of its own response: neither its clock nor
// ours needs to be right. Where Date is missing, or is more than a year away from the instant,
// the clock of this process takes its place, and Unsure is a minute at least. An instant
// that has passed is 0.
//
// A number is a duration in seconds if that is a year or less. A greater one is an instant, in
// seconds since 1970, and in milliseconds from 10^11 on. Milliseconds as a duration are known
// by the field's name alone (Retry-After-Ms, …-Milliseconds): a server that sends them in
// X-RateLimit-Reset is waited for longer than it meant.
//
// # Doubt
//
// Fields are a stranger's input. What cannot be read was not said, and what was not said is
// never taken for 0, nor for "unlimited". Where fields disagree, the reading is the safe one:
// the least that remains, the lower limit, the longer wait. Three things are not doubt:
//
//   - Of two times that agree within the precision of the coarser, the finer is true:
//     Retry-After: 1 beside Retry-After-Ms: 350 is 350 ms.
//   - Retry-After is believed over the reset of a quota, as the drafts want: a bucket
//     is open for one request long before it is full.
//   - Fields without a name that say the same as a policy of RateLimit are that policy once
//     more, in an older dialect.
//
// Nothing panics. No Wait is negative or above [MaxWait], and no Reset above a year. Lines above
// 8 KiB are not read, nor more than 64 of a field.
package serverlimit
