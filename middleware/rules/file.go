package rules

import "cmp"

// The types of this file are the format. A field's tags are its name (yaml), whether it is
// required, min and max of an integer, min of a list that may not be empty, words that can be written, whether it is what a scalar in place
// of the mapping says (short), and what schema.json and the table in docs/rules.md say of it: doc,
// default, pattern of text, and keys, the pattern of a mapping's keys.

// file is a whole rules file.
type file struct {
	Version     int64               `yaml:"version" min:"1" max:"1" required:"true" doc:"The version of this format: 1."`
	Mode        string              `yaml:"mode" words:"enforce shadow" default:"enforce" doc:"shadow decides, counts and logs everything, and refuses nothing."`
	Proxies     *proxies            `yaml:"proxies" doc:"The proxies that may say which client a request comes from, in one of these ways. Without it, the client is the TCP peer; {} says that there is no proxy."`
	Ban         *banned             `yaml:"ban" doc:"Clients and keys that are refused before anything else."`
	Allow       *allowed            `yaml:"allow" doc:"Clients and routes that are never limited."`
	Global      ruleList            `yaml:"global" doc:"A limit on every request. Without a key it has one counter for all."`
	Tiers       map[string]ruleList `yaml:"tiers" keys:"^[!-~]([ -~]*[!-~])?$" doc:"Limits on the requests that the application puts in a tier, by its name. Their key is user|ip unless they say otherwise."`
	Endpoints   map[string]ruleList `yaml:"endpoints" keys:"^([^/ a-z]+\\s+)?([^/ ^:\\[]*|\\[[0-9A-Fa-f:.]+\\])/" doc:"Limits by route, as in \"GET /users/{id}\", \"/beta/*\" or \"*.example.org/*\". The most specific one applies: one for the request's host before one for any, then the longest path, then one with a method."`
	Default     ruleList            `yaml:"default" doc:"The limit on requests that match no endpoint."`
	Descriptors []descriptor        `yaml:"descriptors" min:"1" doc:"Limits of the rate limit service that Envoy asks (weir serve --rls), by descriptors: a domain, entries of a key, and a value or any, and of a rule name, the fields of a limit, on_outage, mode (not deny) and when: after. The most specific one applies. Other programs ignore them."`
	Overload    *overload           `yaml:"overload" doc:"A bound on how many requests are in flight, by what the service can do; {} for the defaults. The program has to say what makes it (rules.Options.Overload)."`
	Soft        *soft               `yaml:"soft" default:"off" doc:"Warnings before the limit is reached, for all rules."`
	Headers     *headers            `yaml:"headers" doc:"Which header fields responses carry, for clients that know them from elsewhere."`
	Refusal     *refusal            `yaml:"refusal" doc:"What clients are answered that exceed a limit, where its rule does not say it."`
}

type proxies struct {
	Trusted    []network     `yaml:"trusted" doc:"Proxies that are believed in X-Forwarded-For."`
	Forwarded  []network     `yaml:"forwarded" doc:"Proxies that are believed in the Forwarded field (RFC 7239)."`
	Header     *clientHeader `yaml:"header" doc:"A header that your proxy sets to the client's address."`
	Hops       *int64        `yaml:"hops" min:"1" doc:"How many proxies append to X-Forwarded-For, where their addresses can't be known."`
	UnixSocket bool          `yaml:"unix_socket" default:"false" doc:"Also believe a peer on a unix socket."`
	IPv6Prefix *int64        `yaml:"ipv6_prefix" min:"32" max:"128" default:"64" doc:"How many bits of an IPv6 address make a key, from 32 to 128."`
}

type clientHeader struct {
	Name  string    `yaml:"name" pattern:"^[A-Za-z0-9_-]+$" required:"true" doc:"Such as CF-Connecting-IP."`
	CIDRs []network `yaml:"cidrs" min:"1" default:"any peer" doc:"The proxies that set it."`
}

type banned struct {
	CIDRs  []network `yaml:"cidrs" doc:"Addresses and networks."`
	Keys   []string  `yaml:"keys" doc:"Keys as weir explain shows them, such as user:42. No message quotes them."`
	File   string    `yaml:"file" doc:"A file with more of both, one on a line, # for comments; relative to this one, and watched like it."`
	Status *int64    `yaml:"status" default:"403" doc:"What is answered: 403 or 429. Also for bans by escalation."`
}

type allowed struct {
	CIDRs  []network `yaml:"cidrs" doc:"Addresses and networks that are never limited."`
	Keys   []string  `yaml:"keys" doc:"Keys that are never limited, as weir explain shows them, such as user:42. No message quotes them."`
	File   string    `yaml:"file" doc:"A file with more networks and keys, as ban.file has them."`
	Routes []string  `yaml:"routes" doc:"Routes that are never limited, written as endpoints are, without a host, which clients write as they like."`

	Preflights bool `yaml:"preflights" default:"false" doc:"CORS preflights are never limited. Only for a limiter outside of the CORS handling, and only safe if no handler behind it runs on OPTIONS: see middleware.IsPreflight."`
}

type overload struct {
	Priority []string `yaml:"priority" min:"1" default:"all are equal" doc:"Tiers, the first to be admitted first. Requests in others or in none come last."`
	MaxWait  *period  `yaml:"max_wait" default:"300ms" doc:"How long a request may wait for a place under overload, from 1ms to 10s."`
	PerRoute bool     `yaml:"per_route" default:"false" doc:"Each route has a bound of its own, for routes that depend on different things."`
	Exempt   []string `yaml:"exempt" min:"1" doc:"Routes whose requests take no place, such as health checks and long polls, written as in allow.routes."`
}

// limitFields is a limit in either spelling, or several, and how many requests at once.
type limitFields struct {
	Limit     *limitText  `yaml:"limit" short:"true" doc:"The limit in one piece: 100/1m, 10/s burst 20, 10_000/month Europe/Berlin."`
	Limits    []limitText `yaml:"limits" min:"1" doc:"Several limits in place of one, all of which have to have room, with different windows: [10/s, 1000/h]. The first goes by the rule's name, others by that and their window in seconds: api.3600."`
	Requests  *int64      `yaml:"requests" min:"1" max:"1000000000000" doc:"How many requests, or units of cost, fit in the window; in place of limit."`
	Window    *window     `yaml:"window" doc:"The time in which they fit; a plain number is in seconds; week, month or year is one of the calendar."`
	Algorithm *algorithm  `yaml:"algorithm" default:"sliding_window" doc:"How requests are counted; with a burst, token_bucket is the default."`
	Burst     *int64      `yaml:"burst" min:"1" default:"requests" doc:"How many can pass at once (token_bucket), or wait (leaky_bucket)."`

	Concurrency *concurrency `yaml:"concurrency" doc:"How many requests of a key may be in progress at once, beside a limit or in place of one; in short, concurrency: 5."`
}

type concurrency struct {
	Max     *int64  `yaml:"max" short:"true" min:"1" max:"1000000000" required:"true" doc:"How many, from 1."`
	Queue   *int64  `yaml:"queue" min:"1" max:"10000" doc:"How many more of a key wait for their turn, up to 10,000, of all keys together too; with max_wait."`
	MaxWait *period `yaml:"max_wait" doc:"How long one waits at most; below the server's write timeout."`
}

// A ruleList is one rule, or several for the same requests.
type ruleList []rule

type rule struct {
	Name string `yaml:"name" pattern:"^[!-~]([ -~]{0,126}[!-~])?$" doc:"What clients and metrics call the rule, and counters go by. Default: the endpoint, tier:NAME, global or default; of a list that is the first, and the others have by and their key behind it, as in POST /login by user."`
	limitFields
	Tiers     map[string]limitFields `yaml:"tiers" keys:"^[!-~]([ -~]*[!-~])?$" doc:"Other limits for some tiers, in this rule alone."`
	Overrides map[string]limitFields `yaml:"overrides" doc:"Limits of single keys in place of all others, by the key as weir explain shows it, such as user:42. What a key has used stays used. No message quotes them."`
	Key       []string               `yaml:"key" min:"1" default:"ip" doc:"What is counted apart: ip, ip/24/48 (the network, of IPv4 and IPv6), user, bearer, apikey:HEADER, header:NAME, cookie:NAME, path:NAME (a parameter of the route), query:NAME, route, method, host, fingerprint, global, or a key of the application's; user|ip is the first that the request has; a list is all of them together, a missing one left blank."`
	NoKey     string                 `yaml:"no_key" words:"share skip bad_request unauthorized" default:"share" doc:"What happens to a request without a key: share one counter, skip the rule, bad_request (400) or unauthorized (401)."`
	Distinct  string                 `yaml:"distinct" doc:"Counts different values of this instead of requests: json:NAME, a field of a JSON body of up to 4 KiB, or what key can be, such as header:X-User. A request costs one unit if its value was not counted for the key within the limit's period, and nothing otherwise; without a value no_key decides."`
	Cost      *cost                  `yaml:"cost" default:"1" doc:"How many units a request takes."`
	Counts    []answers              `yaml:"counts" min:"1" default:"all" doc:"Which answers use up the limit: statuses such as 401, classes such as 2xx, or one of them that does not, as in !5xx. What other answers took is returned."`
	When      *when                  `yaml:"when" doc:"Which of these requests the rule is for, and when it charges them; in short, when: after."`
	OnOutage  string                 `yaml:"on_outage" words:"local open closed" default:"local" doc:"While Redis does not answer: local counts in the process, open admits, closed answers 503."`
	Mode      string                 `yaml:"mode" words:"enforce shadow off deny" default:"enforce" doc:"shadow decides, counts and logs what it would refuse, and refuses nothing; off is as if the rule were not there; deny refuses every request, counts none, and needs no limit."`
	Refusal   *refusal               `yaml:"refusal" default:"that of the file" doc:"What a client is answered that the rule refuses, field by field in place of what the file says."`
	Soft      *soft                  `yaml:"soft" default:"that of the file" doc:"A warning before the limit is reached."`
	Escalate  *escalate              `yaml:"escalate" doc:"Bans a key that is refused again and again."`
}

// name is what the i-th rule is called at a place of the file.
func (l ruleList) name(i int, place string, fallback []string) string {
	if i > 0 {
		place += " by " + cmp.Or(told("+", l[i].parts(fallback)), "all")
	}
	return cmp.Or(l[i].Name, place)
}

// parts are what the key of a rule is made of; none for one counter for all.
func (r *rule) parts(fallback []string) []string {
	if r.Key != nil {
		return r.Key
	}
	return fallback
}

type when struct {
	Charge string `yaml:"charge" short:"true" words:"before after" default:"before" doc:"With counts or cost.settle: before charges a request when it comes, after when its answer is known, so that those that do not count never stand in the way of others, and those that do can exceed the limit by as many as are under way."`
	Header values `yaml:"header" doc:"The rule is only for requests with these values of header fields, by name; * is any value. A client that leaves one out escapes the rule."`
	Query  values `yaml:"query" doc:"The rule is only for requests with these values of parameters in the query, by name; * is any value."`
}

type cost struct {
	Units   *int64 `yaml:"units" short:"true" min:"1" doc:"A fixed cost, no more than the limit allows at once; in short, cost: 5."`
	Header  string `yaml:"header" pattern:"^[A-Za-z0-9_-]+$" doc:"A header with a number that makes the cost, such as Content-Length."`
	Per     *size  `yaml:"per" default:"1" doc:"How much of that number costs a unit, rounded up: 1MiB, 500."`
	Missing *int64 `yaml:"missing" min:"1" default:"1" doc:"The cost where the header is missing or not a number, as for a chunked upload."`
	Max     *int64 `yaml:"max" min:"1" doc:"The most that a request costs."`
	Settle  bool   `yaml:"settle" default:"false" doc:"The cost is reserved, and the application says with weir.Settle what the request really cost."`
}

type soft struct {
	At percent `yaml:"at" short:"true" required:"true" doc:"How much of the limit is used when X-RateLimit-Warning begins: 80%; or off."`
}

type headers struct {
	Send  string `yaml:"send" words:"both legacy draft none" default:"both" doc:"both families, legacy (X-RateLimit-Limit, -Remaining and -Reset), draft (RateLimit-Policy and RateLimit), or none."`
	Limit string `yaml:"limit" pattern:"^[A-Za-z0-9-]{1,64}$" default:"X-RateLimit" doc:"What the names of the legacy fields begin with, before -Limit, -Remaining and -Reset."`
	Reset string `yaml:"reset" words:"unix delta" default:"unix" doc:"Whether the legacy Reset is a time, in seconds since 1970, or delta: in how many seconds it is."`
}

type refusal struct {
	Status     *int64   `yaml:"status" min:"400" max:"599" default:"429" doc:"From 400 to 599. With mode: deny it is 403, 429 or 503, and 403 by default."`
	Type       string   `yaml:"type" doc:"The type of the problem object, a URI."`
	Title      string   `yaml:"title" doc:"Its title."`
	Message    string   `yaml:"message" doc:"A text in which {retry_after} is the time to wait in words, {seconds} in seconds, {rule} the rule's name and {limit} its limit. A text with one of the first two is left where there is no such time."`
	Jitter     *percent `yaml:"jitter" default:"off" doc:"How much later than exact Retry-After may be, at random and by up to a second at least: clients that were refused together come back apart. It is never sooner."`
	RetryAfter *period  `yaml:"retry_after" doc:"With mode: deny, when to come back, as at the end of a maintenance."`
}

type escalate struct {
	After  int64   `yaml:"after" min:"1" max:"10000" required:"true" doc:"How many refusals, or outcomes, up to 10,000."`
	Within *period `yaml:"within" required:"true" doc:"In how much time."`
	Ban    *period `yaml:"ban" required:"true" doc:"For how long the key is banned then."`
	Factor *factor `yaml:"factor" default:"2" doc:"How many times as long each time it happens again, from 1 to 1000."`
	Max    *period `yaml:"max" default:"24h" doc:"The longest ban, and how long after one the next begins anew."`
	Of     string  `yaml:"of" words:"refusals outcomes" default:"refusals" doc:"What is counted: refusals, or outcomes, the answers that the rule's counts names."`
}
