// Package serverlimit reads what a server says about its limits, in any of their many dialects:
// draft-ietf-httpapi-ratelimit-headers-11 and earlier drafts, X-RateLimit-* of all kinds, Retry-After,
// and the fields that providers have added.
//
//	said := serverlimit.Read(resp)
//	if said.Limited {
//		time.Sleep(said.Wait) // 0: the server does not say; use a backoff of your own
//	}
//
// It reads the status and the header fields, sends nothing, keeps nothing, and does not touch the body.
// It knows a field by its name, whatever the host: "-Limit", "-Remaining" and "-Reset" after
// "RateLimit", "Rate-Limit" or "Quota", with any prefix, and with the name of a quota between or after
// them, as in Anthropic-Ratelimit-Tokens-Remaining, X-RateLimit-Limit-Minute and X-API-Quota-Remaining.
//
// So it reads the fields of agent.ai, Akamai, Anthropic, Atlassian, Azure, Brevo, Cerebras, Cloudflare,
// Datadog, Diffcord, Discord, Docker Hub, express-rate-limit, GitHub, GitLab, Groq, HighLevel, HubSpot,
// Kong, lemlist, Linear, MailerLite, Mastodon, Mistral, Okta, OpenAI, Persona, Reddit, Shopify,
// Smartsheet, Stripe, Twitch, Weir, Whatnot, WHOOP, X and Zendesk (not its limits of single endpoints).
// x-amzn-RateLimit-Limit is ignored: it is a rate.
//
// Fields that begin with Beta-, Preview- or Report-Only- are about quotas that are announced and not in
// force. They count only in the response to a request that was refused.
//
// # Times
//
// Times in a Reading are durations from the moment at which the server answered. If a server names an
// instant, it is compared with the Date of the same response: neither clock needs to be right. If Date
// is missing, or more than a year away from the instant, the clock of this process replaces it, and
// Unsure is at least a minute. An instant that has passed is 0. An instant without a zone is in UTC, and
// without seconds Unsure is a minute.
//
// A number is a duration in seconds if that is a year or less. A greater number is an instant, in
// seconds since 1970, and in milliseconds from 10^11 on. Only the name of a field says that a duration
// is in milliseconds (Retry-After-Ms, …-Milliseconds). If a server sends milliseconds in
// X-RateLimit-Reset, the wait is too long.
//
// # Doubt
//
// Fields are untrusted input. A count that cannot be read is [Unsaid], which is neither 0 nor
// "unlimited". If fields disagree, the reading is the safe one: the least that remains, the lower
// limit, the longer wait. Three cases are no disagreement:
//
//   - If two times agree within the precision of the coarser, the finer one is right: Retry-After: 1
//     beside Retry-After-Ms: 350 is 350 ms.
//   - Retry-After overrides the reset of a quota, as the drafts require: a token bucket has a token for
//     one request long before all its tokens are back.
//   - If fields that name no quota have the same values as a policy of RateLimit, they repeat that
//     policy in an older dialect.
//
// If a used-up quota has no reset with its name, its Reset is the reset without a name beside it, or else
// its window: that of its policy, or the period that its name ends with (tokens-minute). If it has neither, a
// reset or a policy with another name counts.
//
// Nothing panics. No Wait is negative or above [MaxWait], and no Reset above a year. Lines above 8 KiB
// are ignored, and so are all lines of a field after the first 64.
package serverlimit
