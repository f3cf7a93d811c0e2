package tokens

import (
	"math"
	"slices"
	"strconv"
)

// A use says what a member means.
type use int

const (
	leads use = iota // to other members
	input            // tokens of the request, with the following ones of it
	inputCached
	inputWritten
	moreInput // tokens of the request that input lacks
	moreCached
	moreWritten
	output
	moreOutput
	total // of all tokens
	counts

	text     // of the answer
	choices  // if empty, a chunk has only the usage
	kind     // if one of lastKinds, the event is the last
	reason   // if a string, the event is the last
	finished // if true, the event is the last
)

// answers has the members of each dialect. No path means two things, so an answer needs no dialect.
var answers = tree(map[use][]string{
	// Chat completions of OpenAI, openai-go v3.98.0, November 2026. prompt_tokens has all tokens of the request. Others
	// leave the reasoning out of completion_tokens, but not of total_tokens (xAI).
	input:        {"usage.prompt_tokens"},
	inputCached:  {"usage.prompt_tokens_details.cached_tokens"},
	inputWritten: {"usage.prompt_tokens_details.cache_write_tokens"},
	output:       {"usage.completion_tokens"},
	total:        {"usage.total_tokens"},
	choices:      {"choices"},
	text: {
		"choices.delta.content", "choices.delta.refusal", "choices.delta.reasoning_content", "choices.delta.reasoning",
		"choices.delta.tool_calls.function.arguments", "choices.message.tool_calls.function.arguments", "choices.text",
		"choices.message.content", "choices.message.refusal", "choices.message.reasoning_content", "choices.message.reasoning",
	},
}, map[use][]string{
	// Responses of OpenAI, openai-go v3.98.0, November 2026. Only response.completed, .incomplete and .failed have a usage.
	input: {"usage.input_tokens", "response.usage.input_tokens"},
	inputCached: {
		"usage.input_tokens_details.cached_tokens", "response.usage.input_tokens_details.cached_tokens"},
	inputWritten: {
		"usage.input_tokens_details.cache_write_tokens", "response.usage.input_tokens_details.cache_write_tokens"},
	output: {"usage.output_tokens", "response.usage.output_tokens"},
	total:  {"response.usage.total_tokens"},
	kind:   {"type"},
	text:   {"delta", "output.content.text", "output.content.refusal", "output.arguments"},
}, map[use][]string{
	// Messages of Anthropic, anthropic-sdk-go v2.15.0, November 2026. input_tokens has neither those read from the cache
	// nor those written. message_start says all of the request, message_delta the sums since the beginning.
	input:       {"message.usage.input_tokens"},
	output:      {"message.usage.output_tokens"},
	moreCached:  {"usage.cache_read_input_tokens", "message.usage.cache_read_input_tokens"},
	moreWritten: {"usage.cache_creation_input_tokens", "message.usage.cache_creation_input_tokens"},
	reason:      {"delta.stop_reason"},
	text:        {"delta.text", "delta.thinking", "delta.partial_json", "content.text", "content.thinking"},
}, map[use][]string{
	// generateContent of Gemini, genai v1.77.0, November 2026. promptTokenCount has those read from the cache.
	input:       {"usageMetadata.promptTokenCount"},
	inputCached: {"usageMetadata.cachedContentTokenCount"},
	moreInput:   {"usageMetadata.toolUsePromptTokenCount"},
	output:      {"usageMetadata.candidatesTokenCount"},
	moreOutput:  {"usageMetadata.thoughtsTokenCount"},
	total:       {"usageMetadata.totalTokenCount"},
	reason:      {"candidates.finishReason", "promptFeedback.blockReason"},
	text:        {"candidates.content.parts.text"},
}, map[use][]string{
	// chat and generate of Ollama, docs/api.md, November 2026.
	input:    {"prompt_eval_count"},
	output:   {"eval_count"},
	finished: {"done"},
	text:     {"message.content", "message.thinking", "response", "thinking"},
})

var lastKinds = []string{"response.completed", "response.incomplete", "response.failed"}

// A meter finds what an answer used. Counts only grow: all dialects repeat sums, and of two that differ the larger is
// charged.
type meter struct {
	scanner
	single bool // the answer is one value
	counts [counts]int64
	given  [counts]bool
	wrong  bool  // a count is not a number of tokens
	bytes  int64 // of text
	event  event
	before bool // the event before had counts
	final  bool
}

// An event is what a meter knows of one event of a stream, or of one value.
type event struct {
	counted bool
	last    bool
	choices int // 0: none, 1: an empty array, 2: others
	ended   bool
}

// nextEvent forgets the event.
func (m *meter) nextEvent() {
	if m.event.ended {
		m.before = m.event.counted
	}
	m.event = event{}
	m.start(answers)
}

// isUsageOnly reports whether the event, which has ended, is the chunk that a request for the usage adds.
func (e *event) isUsageOnly() bool { return e.ended && e.counted && e.choices == 1 }

// mayBeUsageOnly reports whether the event is or may become that chunk.
func (e *event) mayBeUsageOnly() bool {
	return e.choices < 2 && (!e.ended || e.isUsageOnly())
}

// begin implements visitor.
func (m *meter) begin(n *node, c byte) {
	e := &m.event
	if n == answers {
		*e = event{}
	}
	switch {
	case n.use == choices && e.choices == 0 && c == '[':
		e.choices = 1
	case n.use == choices, n == answers && c != '{':
		e.choices = 2
	}
}

// end implements visitor.
func (m *meter) end(n *node, c byte, value []byte, length int64) {
	e := &m.event
	switch {
	case n == answers && string(value) == "DONE": // [DONE] ends a stream of OpenAI
		m.final = m.final || m.before
	case n == answers:
		e.ended = true
		m.final = m.final || e.counted && (e.last || e.choices == 1 || m.single && m.depth == 0 && c == '{')
	case n.use < counts && n.use != leads:
		m.count(n, c, value, length)
	case n.use == text && c == '"':
		m.bytes, m.final = m.bytes+length, false // text after a count
	case n.use == kind && c == '"':
		e.last = e.last || slices.Contains(lastKinds, string(value))
	case n.use == reason && c == '"', n.use == finished && string(value) == "true" && c == 't':
		e.last = true
	}
}

// most is the largest count that a JSON number holds exactly everywhere.
const most = 1 << 53

func (m *meter) count(n *node, c byte, value []byte, length int64) {
	if c == 'n' && string(value) == "null" {
		return
	}
	number, err := strconv.ParseFloat(string(value), 64)
	if err != nil || c == '"' || length > int64(len(value)) || !(number >= 0 && number <= most) {
		m.wrong = true
		return
	}
	is := &m.counts[n.use]
	switch tokens := int64(math.Ceil(number)); {
	case n.use == inputCached && m.given[n.use]:
		*is = min(*is, tokens) // cached tokens cost less
	default:
		*is = max(*is, tokens)
	}
	m.given[n.use] = true
	m.event.counted = m.event.counted || !n.early
}

// report returns what is known of an answer with that status.
func (m *meter) report(status int) Report {
	c := m.counts
	if status >= 400 && !m.wrong && m.given == [counts]bool{} {
		return Report{Final: true}
	}
	if !m.given[input] {
		c[input] = c[inputCached] + c[inputWritten]
	}
	cached := min(c[inputCached], c[input])
	written := min(c[inputWritten], c[input]-cached)
	u := Usage{
		Input:   c[input] - cached - written + c[moreInput],
		Cached:  cached + c[moreCached],
		Written: written + c[moreWritten],
		Output:  c[output] + c[moreOutput],
	}
	u.Output += max(0, c[total]-u.Input-u.Cached-u.Written-u.Output)
	if m.final && !m.wrong {
		return Report{Usage: u, Final: true}
	}
	bytes := m.bytes
	if n := m.node(); n != nil && n.use == text && m.state != between {
		bytes += m.length // of text that is cut
	}
	u.Output = max(u.Output, (bytes+3)/4)
	return Report{Usage: u}
}
