package rules

import (
	"slices"
	"strings"

	"github.com/weirgo/weir/limiter"
	"github.com/weirgo/weir/middleware/rules/internal/document"
)

// Schema is the JSON Schema (draft 2020-12) of rules files, for editors to complete them
// by. It is made from the types that they are read into.
func Schema() []byte {
	return document.Schema(file{}, "https://github.com/weirgo/weir/rules.schema.json", "Weir rules", wrapper)
}

// What follows is what fields say of each other, as far as a schema can tell: what it refuses
// is a problem of check too, whatever the application's Options are. Mistakes that need more
// than one field's neighbors, or arithmetic, are check's alone.

// says is a schema. Each constraint has a description, for people who read the schema.
type says = map[string]any

// never refuses what one of these schemas is true of.
func never(why string, schemas ...says) says {
	return says{"description": why, "not": either(schemas...)}
}

// implied has a mapping that is like one schema be like another.
func implied(why string, condition, then says) says {
	return says{"description": why, "if": condition, "then": then}
}

func either(schemas ...says) says {
	if len(schemas) == 1 {
		return schemas[0]
	}
	return says{"anyOf": schemas}
}

// having is a mapping with all of the fields: of what is no mapping, required says nothing.
func having(fields ...string) says { return says{"type": "object", "required": fields} }

// havingAny is a mapping with one of the fields.
func havingAny(fields ...string) says {
	var each []says
	for _, f := range fields {
		each = append(each, having(f))
	}
	return either(each...)
}

// havingTwo is a mapping with two of the fields.
func havingTwo(fields ...string) says {
	var pairs []says
	for i, f := range fields {
		for _, other := range fields[i+1:] {
			pairs = append(pairs, having(f, other))
		}
	}
	return either(pairs...)
}

// with is a mapping with all of these fields, each like its schema.
func with(fields says) says {
	var names []string
	for name := range fields {
		names = append(names, name)
	}
	slices.Sort(names)
	return says{"type": "object", "required": names, "properties": fields}
}

func oneOfWords(words ...string) says { return says{"enum": words} }

func like(pattern string) says { return says{"type": "string", "pattern": pattern} }

// isTrue is a mapping in which a field is true.
func isTrue(field string) says { return with(says{field: says{"enum": []bool{true}}}) }

// above is a number from n on; text such as 10_000 it does not know.
func above(n int64) says { return says{"type": "number", "exclusiveMinimum": n} }

// filled is a list that is not empty.
var filled = says{"type": []string{"array", "string"}, "minItems": 1}

// eachLike is a text, or a list of them.
func eachLike(pattern string) says {
	return says{"pattern": pattern, "items": says{"pattern": pattern}}
}

func (ruleList) JSONConstraints() []map[string]any {
	return []says{{"description": "A rule, or a list of some.", "type": []string{"object", "string", "array"}, "minItems": 1}}
}

const (
	routePattern  = `^([^/ a-z]+\s+)?/`                                                                // without a host
	choicePattern = `([A-Za-z0-9_-]+|(apikey|header|cookie):\s*[^|\s]+|(path|query):[^|]*[^|\s][^|]*)` // the application may call its own by any word
	keyPattern    = `^\s*` + choicePattern + `\s*(\|\s*` + choicePattern + `\s*)*$`
)

func (file) JSONConstraints() []map[string]any {
	unkeyed := never("These need a key: without one there is one counter for all.",
		says{"not": having("key"), "anyOf": []says{having("no_key"), having("escalate"), having("overrides")}})
	named := says{"required": []string{"name"}, "type": []string{"object", "array"}, "items": says{"required": []string{"name"}, "type": "object"}}
	on := says{"type": []string{"string", "object"}, "not": with(says{"mode": oneOfWords("off")})}
	return []says{
		{"properties": says{"global": unkeyed}},
		{"properties": says{"global": says{"items": unkeyed}}},
		{"properties": says{"endpoints": says{
			"description":       "A name is at most 128 characters of ASCII, so other endpoints need one of their own.",
			"patternProperties": says{"[^ -~]|^.{129}": named},
		}}},
		never("An endpoint for every request leaves nothing to default.", with(says{"default": says{}, "endpoints": with(says{"/*": on})})),
		{"properties": says{"refusal": never("It is for mode: deny: a limit knows by itself when to come back.", having("retry_after"))}},
	}
}

func (proxies) JSONConstraints() []map[string]any {
	return []says{
		never("An address is found in one way.", havingTwo("trusted", "forwarded", "header", "hops")),
		implied("It needs a way that says which header to read.", isTrue("unix_socket"), havingAny("trusted", "forwarded", "header", "hops")),
		{"description": "None is trusted over a unix socket alone.", "if": isTrue("unix_socket"),
			"else": says{"properties": says{"trusted": filled, "forwarded": filled}}},
	}
}

func (clientHeader) JSONConstraints() []map[string]any {
	return []says{
		never("It is a list that the client may have begun; use trusted, or forwarded.",
			with(says{"name": like("^(" + anyCase([]string{"x-forwarded-for", "forwarded"}) + ")$")})),
		{"properties": says{"cidrs": filled}},
	}
}

func (banned) JSONConstraints() []map[string]any {
	return []says{{"properties": says{"status": says{"enum": []any{403, 429, "403", "429"}}, "file": says{"minLength": 1}}}}
}

func (allowed) JSONConstraints() []map[string]any {
	return []says{{"properties": says{"routes": eachLike(routePattern), "file": says{"minLength": 1}}}}
}

func (overload) JSONConstraints() []map[string]any {
	return []says{
		{"properties": says{"exempt": filled, "priority": filled}},
		{"properties": says{"exempt": eachLike(routePattern), "priority": says{"uniqueItems": true}}},
	}
}

// algorithmNames are what a limit may call an algorithm, by the algorithm.
func algorithmNames() map[limiter.Algorithm][]string {
	names := map[limiter.Algorithm][]string{}
	for _, name := range algorithms {
		var a algorithm
		if a.UnmarshalText([]byte(name)) == nil {
			names[a.Algorithm] = append(names[a.Algorithm], name)
		}
	}
	return names
}

// inLimit is a limit in one piece that has one of these words behind the window.
func inLimit(words ...string) says {
	return like(`\s(` + anyCase(words) + `)(\s|$)`)
}

// anyCase is a pattern of these words in any case, with - or _ between their parts.
func anyCase(words []string) string {
	var pattern strings.Builder
	for _, r := range strings.Join(words, "|") {
		switch {
		case r == '_':
			pattern.WriteString("[-_]")
		case 'a' <= r && r <= 'z':
			pattern.WriteString("[" + strings.ToUpper(string(r)) + string(r) + "]")
		default:
			pattern.WriteRune(r)
		}
	}
	return pattern.String()
}

var waiting = algorithmNames()[limiter.LeakyBucket]

// queued is a limit whose requests wait.
func queued() says {
	return either(with(says{"limit": inLimit(waiting...)}), with(says{"algorithm": oneOfWords(waiting...)}))
}

func (limitFields) JSONConstraints() []map[string]any {
	var several, unburst []says
	names := algorithmNames()
	for a := limiter.TokenBucket; len(names[a]) > 0; a++ {
		others := slices.DeleteFunc(slices.Clone(algorithms), func(name string) bool { return slices.Contains(names[a], name) })
		several = append(several, with(says{"limit": inLimit(names[a]...), "algorithm": oneOfWords(others...)}))
		if a != limiter.TokenBucket && a != limiter.LeakyBucket {
			unburst = append(unburst, with(says{"burst": says{}, "algorithm": oneOfWords(names[a]...)}), with(says{"burst": says{}, "limit": inLimit(names[a]...)}))
		}
	}
	return []says{
		never("A limit is written in one way.", having("limit", "requests"), having("limit", "window"),
			having("limits", "limit"), having("limits", "requests"), having("limits", "window"), having("limits", "algorithm"), having("limits", "burst")),
		{"dependentRequired": says{"requests": []string{"window"}, "window": []string{"requests"}}},
		never("The algorithm is given once.", several...),
		never("The burst is given once.", with(says{"burst": says{}, "limit": inLimit("burst")})),
		never("Only buckets have a burst.", unburst...),
		never("A log remembers at most 10,000 requests.", with(says{"requests": above(10_000), "algorithm": oneOfWords(names[limiter.SlidingLog]...)})),
		{"properties": says{"limits": filled}},
		{"description": "There is a limit, or a concurrency, unless nothing is let through.",
			"anyOf": []says{havingAny("limit", "limits", "requests", "concurrency"), with(says{"mode": oneOfWords("deny")})}},
	}
}

func (concurrency) JSONConstraints() []map[string]any {
	return []says{
		having("max"),
		{"dependentRequired": says{"queue": []string{"max_wait"}, "max_wait": []string{"queue"}}},
		{"properties": says{"max": says{"minimum": 1, "maximum": 1_000_000_000}, "queue": says{"minimum": 1, "maximum": 10_000}}},
	}
}

func (r rule) JSONConstraints() []map[string]any {
	deny := with(says{"mode": oneOfWords("deny")})
	after := with(says{"when": oneOfWords("after")})
	settling := with(says{"cost": isTrue("settle")})
	queuedTier := with(says{"tiers": says{"not": says{"additionalProperties": says{"not": either(inLimit(waiting...), queued())}}}})
	return append(r.limitFields.JSONConstraints(),
		says{"properties": says{"key": filled}},
		says{"properties": says{"key": says{"uniqueItems": true}}},
		says{"properties": says{"key": eachLike(keyPattern)}},
		implied("Of a concurrency alone each request takes one place, and returns it when it ends.",
			says{"type": "object", "required": []string{"concurrency"}, "not": havingAny("limit", "limits", "requests", "window", "algorithm", "burst")},
			says{"not": havingAny("cost", "counts", "when")}),
		never("The requests of a leaky_bucket have waited when they are answered.",
			says{"allOf": []says{either(queued(), queuedTier), either(having("counts"), after)}}),
		implied("Nothing but counts and cost.settle is known only afterwards.", after, either(having("counts"), settling)),
		implied("What is settled was reserved, or is charged when it is known.",
			with(says{"cost": says{"type": "object", "required": []string{"settle"}, "properties": says{"settle": says{"enum": []bool{true}}}, "not": havingAny("units", "header")}}), after),
		implied("Outcomes are those that counts names.", with(says{"escalate": with(says{"of": oneOfWords("outcomes")})}), having("counts")),
		never("A key in overrides has one limit.",
			with(says{"overrides": says{"not": says{"additionalProperties": says{"not": havingAny("limits", "concurrency")}}}})),
		says{"if": deny, "then": says{"properties": says{"refusal": says{"properties": says{"status": says{"enum": []any{403, 429, 503, "403", "429", "503"}}}}}},
			"else": says{"properties": says{"refusal": never("It is for mode: deny: a limit knows by itself when to come back.", having("retry_after"))}}},
	)
}

func (cost) JSONConstraints() []map[string]any {
	return []says{
		never("A cost is either fixed or read from a header.", having("units", "header"), having("units", "per"), having("units", "missing"), having("units", "max")),
		says{"description": "It is fixed, or read from a header, or said later.",
			"anyOf": []says{having("units"), having("header"), {"allOf": []says{isTrue("settle"), {"not": havingAny("per", "missing", "max")}}}}},
	}
}

func (soft) JSONConstraints() []map[string]any { return []says{having("at")} }

func (headers) JSONConstraints() []map[string]any {
	return []says{never("These are about the legacy fields, which are not sent.",
		says{"allOf": []says{with(says{"send": oneOfWords("draft", "none")}), havingAny("limit", "reset")}})}
}

func (refusal) JSONConstraints() []map[string]any {
	text := says{"minLength": 1}
	return []says{{"properties": says{"type": text, "title": text, "message": text}}}
}

func (escalate) JSONConstraints() []map[string]any {
	return []says{never("A ban is at least a millisecond.", with(says{"ban": like(`^(0*[0-9]{1,3}(us|µs|μs)|us|microsecond|0*[0-9]{1,5}ns)$`)}))}
}
