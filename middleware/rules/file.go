package rules

import (
	"cmp"

	"github.com/weirgo/weir/internal/operate"
)

// The types of this file are the format. Beside the tags of [yamlfile.Read], a field has what schema.json and the table in
// docs/fields.md say of it: doc, default, pattern of text, and keys, the pattern of a mapping's keys.

// file is a whole rules file.
type file struct {
	Version     int64               `yaml:"version" min:"1" max:"1" required:"true" doc:"The version of this format: 1."`
	Mode        string              `yaml:"mode" words:"enforce shadow" default:"enforce" doc:"shadow counts and logs, and refuses nothing."`
	Proxies     *proxies            `yaml:"proxies" doc:"The proxies that name the client, in one of these ways. {}: the client is the TCP peer; so it is without proxies, but weir check warns."`
	Ban         *banned             `yaml:"ban" doc:"Clients that are refused before anything else."`
	Allow       *allowed            `yaml:"allow" doc:"Clients and routes that are never limited."`
	Global      ruleList            `yaml:"global" doc:"Limits on every request. Each rule names its key."`
	Tiers       map[string]ruleList `yaml:"tiers" keys:"^[!-~]([ -~]*[!-~])?$" doc:"Limits by the application's tier, in place of default."`
	Endpoints   map[string]ruleList `yaml:"endpoints" keys:"^([^/ a-z]+\\s+)?([^/ ^:\\[]*|\\[[0-9A-Fa-f:.]+\\])/" doc:"Limits by route, such as \"GET /users/{id}\", \"/beta/*\" or \"*.example.org/*\". The most specific applies."`
	Default     ruleList            `yaml:"default" doc:"Limits on requests that match no endpoint and are in no tier of tiers."`
	Descriptors []descriptor        `yaml:"descriptors" min:"1" doc:"Limits for Envoy (weir serve --rls). The most specific applies. Of a rule they have name, limit, on_outage, mode (not deny) and when: after."`
	Overload    *overload           `yaml:"overload" doc:"An adaptive bound on requests in flight; {} for the defaults. A program must set rules.Options.Overload."`
	Soft        *soft               `yaml:"soft" default:"off" doc:"A warning before the limit is reached."`
	Headers     *headers            `yaml:"headers" doc:"Which header fields responses carry."`
	Refusal     *refusal            `yaml:"refusal" doc:"The answer to refused clients."`
}

type proxies struct {
	Trusted    []network     `yaml:"trusted" doc:"Proxies whose X-Forwarded-For names the client."`
	Forwarded  []network     `yaml:"forwarded" doc:"Proxies whose Forwarded field (RFC 7239) names the client."`
	Header     *clientHeader `yaml:"header" doc:"A header in which your proxies name the client."`
	Hops       *int64        `yaml:"hops" min:"1" doc:"How many proxies append to X-Forwarded-For, if their addresses are unknown."`
	UnixSocket bool          `yaml:"unix_socket" default:"false" doc:"A peer on a unix socket is a trusted proxy."`
	IPv6Prefix *int64        `yaml:"ipv6_prefix" min:"32" max:"128" default:"64" doc:"The bits of an IPv6 address that count, from 32 to 128."`
}

type clientHeader struct {
	Name  string    `yaml:"name" pattern:"^[A-Za-z0-9_-]+$" required:"true" doc:"Such as CF-Connecting-IP."`
	CIDRs []network `yaml:"cidrs" min:"1" default:"any peer" doc:"The proxies that set it."`
}

type banned struct {
	CIDRs  []client `yaml:"cidrs" doc:"Addresses and networks. With an end: {198.51.100.0/24: {until: 2026-12-24, because: scraper}}."`
	Keys   []string `yaml:"keys" doc:"Keys as weir explain shows them: user:42. Weir's messages never quote them."`
	File   string   `yaml:"file" doc:"The path, from this file, of more addresses and keys, one a line, # for comments. Changes are loaded."`
	Status *int64   `yaml:"status" default:"403" doc:"403 or 429, for all bans."`
}

type allowed struct {
	CIDRs  []client `yaml:"cidrs" doc:"Addresses and networks, as in ban.cidrs."`
	Keys   []string `yaml:"keys" doc:"Keys, as in ban.keys."`
	File   string   `yaml:"file" doc:"A file, as in ban.file."`
	Routes []string `yaml:"routes" doc:"Routes, as in endpoints, without a host."`

	Preflights bool `yaml:"preflights" default:"false" doc:"CORS preflights. Safe only if no handler behind it runs on OPTIONS: see weir.IsPreflight."`
}

// A client is an address or a network, alone or as the only key of a mapping to a dated.
type client struct {
	network
	dated
}

// Hint implements yamlfile.Hinter.
func (client) Hint(kind string) string {
	if kind == "a mapping" {
		return "want a network alone, or {198.51.100.0/24: {until: 2026-12-24}}"
	}
	return ""
}

func (n client) String() string { return n.Prefix.String() + operate.Ends(n.Until.Time, n.Because) }

// dated is when a client of a list or an override ends, and why there is one.
type dated struct {
	Until   date   `yaml:"until" default:"it does not end" doc:"2026-12-24 (from 00:00 UTC), or 2026-12-24T18:00:00+01:00."`
	Because string `yaml:"because" doc:"Why, for operators."`
}

type overload struct {
	Priority []string `yaml:"priority" min:"1" default:"all are equal" doc:"Tiers, the most important first. Other requests come last."`
	MaxWait  *period  `yaml:"max_wait" default:"300ms" doc:"The longest wait, from 1ms to 10s."`
	PerRoute bool     `yaml:"per_route" default:"false" doc:"Each route has its own bound."`
	Exempt   []string `yaml:"exempt" min:"1" doc:"Routes without a bound, as in allow.routes: health checks, long polls."`
}

// limitFields is a limit in either spelling, or several, and how many requests at once.
type limitFields struct {
	Limit     *limitText  `yaml:"limit" short:"true" doc:"The limit in one piece: 100/1m, 10/s burst 20, 10_000 monthly Europe/Berlin."`
	Limits    []limitText `yaml:"limits" min:"1" doc:"Several limits: [10/s, 1000/h]. algorithm is for each. Clients see all but the first with the window in seconds: api.3600."`
	Requests  *int64      `yaml:"requests" min:"1" max:"1000000000000" doc:"How many units fit in the window: limit in two pieces."`
	Window    *window     `yaml:"window" doc:"Seconds, a duration, or the calendar's daily, weekly, monthly or yearly."`
	Algorithm *algorithm  `yaml:"algorithm" default:"sliding_window" doc:"sliding_window, sliding_window_counter, sliding_window_log (or sliding_log), token_bucket (or gcra; the default with a burst), leaky_bucket or fixed_window."`
	Burst     *int64      `yaml:"burst" min:"1" default:"requests" doc:"How many requests can pass at once (token_bucket), or wait (leaky_bucket)."`

	Concurrency *concurrency `yaml:"concurrency" doc:"How many requests of a key may be in progress."`
}

// Hint implements yamlfile.Hinter.
func (limitFields) Hint(kind string) string {
	if kind == "a list" {
		return "write several limits as {limits: [10/s, 1000/h]}"
	}
	return ""
}

type concurrency struct {
	Max     *int64  `yaml:"max" short:"true" min:"1" max:"1000000000" required:"true" doc:"The number of slots."`
	Queue   *int64  `yaml:"queue" min:"1" max:"10000" doc:"How many more of a key may wait, with max_wait; of all keys at most 10,000 in a process."`
	MaxWait *period `yaml:"max_wait" doc:"The longest wait, below the server's write timeout."`
}

// An override is the limit of a single key.
type override struct {
	limitFields
	dated
}

// A ruleList is one rule, or several for the same requests.
type ruleList []rule

type rule struct {
	Name string `yaml:"name" pattern:"^[!-~]([ -~]{0,126}[!-~])?$" doc:"For clients, metrics and counters. Default: the endpoint, tier:NAME, global or default; later rules of a list add the key: POST /login by user."`
	limitFields
	Tiers     map[string]limitFields `yaml:"tiers" keys:"^[!-~]([ -~]*[!-~])?$" doc:"Limits of some tiers, in place of the rule's."`
	Overrides map[string]override    `yaml:"overrides" doc:"Limits of single keys, as in ban.keys. With an end: {limit: 500/m, until: 2026-12-24, because: import}."`
	Key       []string               `yaml:"key" min:"1" default:"ip" doc:"What has its own counter (in tiers the default is user|ip; global has no default): ip, ip/24/48 (networks, IPv4 and IPv6), user, bearer, apikey:HEADER, header:NAME, cookie:NAME, path:NAME (a parameter of the route), query:NAME, param:NAME (an argument of a tool call by MCP), json:PATH (a field of a JSON body of up to 8 MiB, such as json:model, or json:generationConfig.model inside another; up to four deep), form:NAME (a field of a form of up to 8 MiB), route, method, host, tool, fingerprint, global (all requests together), or a key of the application. user|ip is the first that the request has. A list is a combination; a missing part is blank."`
	NoKey     string                 `yaml:"no_key" words:"share skip bad_request unauthorized" default:"share" doc:"Requests without a key share one counter, skip the rule, or are answered 400 or 401."`
	Distinct  string                 `yaml:"distinct" doc:"Counts different values of a key, or of json:NAME (a field of a JSON body of up to 4 KiB), instead of requests. Without a value, no_key decides."`
	Cost      *cost                  `yaml:"cost" default:"1" doc:"The units that a request costs."`
	Counts    []answers              `yaml:"counts" min:"1" default:"all" doc:"Which answers use up the limit: 401, 2xx, or !5xx for all others. Other answers are refunded."`
	When      *when                  `yaml:"when" doc:"Which requests the rule is for, and when it charges them."`
	OnOutage  string                 `yaml:"on_outage" words:"local open closed" default:"local" doc:"If Redis does not answer: local counts in the process, open admits requests, closed answers 503."`
	MCP       mcpVersion             `yaml:"mcp" doc:"For endpoints: the oldest version of MCP, 2026-07-28 or later. Before all rules of the endpoint, a request with an earlier version, or with none, is answered 400, as clients of MCP expect. A rule with mcp alone needs no limit."`
	Mode      string                 `yaml:"mode" words:"enforce shadow off deny" default:"enforce" doc:"shadow counts and logs, and refuses nothing. off removes the rule. deny refuses every request, counts none, and needs no limit."`
	Refusal   *refusal               `yaml:"refusal" default:"the file's refusal" doc:"Each field replaces the file's."`
	Soft      *soft                  `yaml:"soft" default:"the file's soft" doc:"The rule's own soft."`
	Escalate  *escalate              `yaml:"escalate" doc:"A ban for keys that are refused again and again."`
}

// Hint returns no hint: a list of rules is one.
func (rule) Hint(string) string { return "" }

// name is the name of the i-th rule. Without one in the file, it is made of the scope's name.
func (l ruleList) name(i int, scope string, fallback []string) string {
	if i > 0 {
		scope += " by " + cmp.Or(keyText("+", l[i].parts(fallback)), "all")
	}
	return cmp.Or(l[i].Name, scope)
}

// parts are what the key of a rule is made of.
func (r *rule) parts(fallback []string) []string {
	if r.Key != nil {
		return r.Key
	}
	return fallback
}

type when struct {
	Charge string `yaml:"charge" short:"true" words:"before after" default:"before" doc:"With counts or cost.settle: charges a request when it arrives, or when its answer is known; then requests in flight can exceed the limit."`
	Header values `yaml:"header" doc:"Only requests with these header fields. * is any text, in any case: *bot*. A client that omits one escapes the rule."`
	Query  values `yaml:"query" doc:"Only requests with these query parameters, as in header."`
	Tool   string `yaml:"tool" doc:"Only calls of this tool, as in key: tool, with * as in header. A call in an MCP before 2026-07-28 escapes the rule: see mcp."`
}

type cost struct {
	Units   *int64      `yaml:"units" short:"true" min:"1" doc:"A fixed cost, at most what the limit allows at once."`
	Header  string      `yaml:"header" pattern:"^[A-Za-z0-9_-]+$" doc:"The header with the cost, such as Content-Length."`
	Param   string      `yaml:"param" pattern:"^[A-Za-z0-9_-]+$" doc:"The argument of a tool call by MCP with the cost, as in key: param:NAME."`
	JSON    string      `yaml:"json" doc:"The field of a JSON body with the cost, as in key: json:PATH. If it is there, it must be a whole number, or the answer is 400."`
	Per     *size       `yaml:"per" default:"1" doc:"How much of the header, argument or field costs one unit, rounded up: 1MiB, 500."`
	Missing *int64      `yaml:"missing" min:"1" default:"1" doc:"The cost if the header, argument or field is missing (as in a chunked upload of any size) or the header or argument is not a number. Above the limit, the request is refused."`
	Max     *int64      `yaml:"max" min:"1" doc:"The highest cost."`
	Reserve *reserve    `yaml:"reserve" doc:"In place of the fields above: a reservation by the request's maximum of tokens, at most what the limit allows at once. It needs settle."`
	Settle  *settlement `yaml:"settle" default:"false" doc:"What settles the real cost. true: the application, with weir.Settle. With reserve also usage: the usage of tokens in the answer, or {header: X-Cost}, as weir serve --proxy does."`
	Weights *weights    `yaml:"weights" doc:"With reserve: the units that a token costs, such as its price: {input: 1, cached: 0.1, output: 4}."`
	Usage   *usage      `yaml:"usage" doc:"With settle: usage, how weir serve --proxy finds the usage of streams."`
}

type reserve struct {
	JSON    []string `yaml:"json" min:"1" doc:"The fields of the JSON body with the maximum of tokens, as in key: json:PATH. The largest counts: [max_completion_tokens, max_tokens]. Other values than whole numbers are answered 400."`
	Missing *int64   `yaml:"missing" short:"true" min:"1" required:"true" doc:"The tokens to reserve if the body has none of these fields."`
	Times   []string `yaml:"times" min:"1" default:"n" doc:"Fields that multiply the maximum, such as n, the number of answers."`
	Input   *input   `yaml:"input" default:"nothing" doc:"What to reserve for the prompt: {bytes_per_unit: 4} is a token for each 4 bytes of the body."`
}

type input struct {
	BytesPerUnit int64 `yaml:"bytes_per_unit" min:"1" max:"1000000" required:"true" doc:"How many bytes of the body count as a token of input."`
}

type settlement struct {
	By     string `yaml:"by" short:"true" words:"usage true false" default:"false" doc:"usage, true or false, in place of the mapping."`
	Header string `yaml:"header" pattern:"^[A-Za-z0-9-]+$" doc:"A field of the answer that has the cost in units, and that clients do not see."`
}

func (s settlement) String() string {
	if s.Header != "" {
		return "header: " + s.Header
	}
	return s.By
}

// weights have a nil for a weight that the file does not name.
type weights struct {
	Input   *weight `yaml:"input" default:"1" doc:"Of a token of the prompt, from 0 to 1000000."`
	Cached  *weight `yaml:"cached" default:"input" doc:"Of a token that the provider read from its cache."`
	Written *weight `yaml:"written" default:"input" doc:"Of a token that the provider wrote to its cache."`
	Output  *weight `yaml:"output" default:"1" doc:"Of a token of the answer."`
}

type usage struct {
	Ask   *bool  `yaml:"ask" default:"true" doc:"Adds stream_options.include_usage to streams of chat completions. false: for services that answer 400 to it; needs no_max."`
	NoMax string `yaml:"no_max" words:"bad_request missing" doc:"A body without a maximum of tokens is answered 400, or gets the missing of reserve as its first field of reserve.json."`
}

type soft struct {
	At percent `yaml:"at" short:"true" required:"true" doc:"The used share from which responses carry X-RateLimit-Warning: 80%; or off."`
}

type headers struct {
	Send  string `yaml:"send" words:"legacy both draft none" default:"legacy" doc:"legacy: X-RateLimit-Limit, -Remaining and -Reset. draft: RateLimit-Policy and RateLimit, which list all rules."`
	Limit string `yaml:"limit" pattern:"^[A-Za-z0-9-]{1,64}$" default:"X-RateLimit" doc:"The prefix of the legacy fields: X-Rate-Limit."`
	Reset string `yaml:"reset" words:"unix delta" default:"unix" doc:"The legacy Reset in seconds since 1970, or from now."`

	RetryAfter bool `yaml:"retry_after" default:"false" doc:"Refusals repeat Retry-After as a legacy field: X-RateLimit-Retry-After."`
}

type refusal struct {
	Status     *int64     `yaml:"status" min:"400" max:"599" default:"429" doc:"From 400 to 599. With mode: deny 403 (default), 429 or 503."`
	Type       string     `yaml:"type" doc:"The type of the problem object (RFC 9457), a URI."`
	Title      string     `yaml:"title" doc:"Its title."`
	Message    string     `yaml:"message" doc:"A text with {retry_after} (in words), {seconds}, {rule} and {limit}. If waiting does not help, Weir's sentence replaces a text with a time."`
	Jitter     *percent   `yaml:"jitter" default:"off" doc:"The most that is added at random to Retry-After, at least 1s."`
	Paced      *period    `yaml:"paced" default:"off" doc:"For rules with key: global and a rate: the most that is added to Retry-After, so that clients return at the pace of the limit."`
	StopAbove  *stopAbove `yaml:"stop_above" default:"off" doc:"Refusals with a longer wait, or for which waiting does not help, carry X-Should-Retry: false; or off."`
	Body       string     `yaml:"body" words:"plain ai" default:"plain" doc:"The form of JSON. ai: an error object that SDKs of AI services parse."`
	Stream     bool       `yaml:"stream" default:"false" doc:"For endpoints: a refused EventSource gets an event stream that says when to come back, with status 200. Not with weir serve --ask."`
	RetryAfter *period    `yaml:"retry_after" doc:"With mode: deny, the Retry-After."`
}

type escalate struct {
	After  int64   `yaml:"after" min:"1" max:"10000" required:"true" doc:"How many refusals or outcomes, up to 10,000."`
	Within *period `yaml:"within" required:"true" doc:"The time in which they are counted."`
	Ban    *period `yaml:"ban" required:"true" doc:"How long the first ban lasts."`
	Factor *factor `yaml:"factor" default:"2" doc:"Each further ban is this many times as long, from 1 to 1000."`
	Max    *period `yaml:"max" default:"24h" doc:"The longest ban, and the time after a ban in which another is a further one."`
	Of     string  `yaml:"of" words:"refusals outcomes" default:"refusals" doc:"What is counted. outcomes: the answers in the rule's counts."`
}
