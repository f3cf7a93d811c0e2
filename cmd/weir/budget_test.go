package main

import (
	"testing"

	"github.com/stretchr/testify/assert"
)

const budgetFile = `version: 1
default: {mode: deny}                      # other endpoints are not metered
endpoints:
  "POST /v1/chat/completions":
    - {name: calls, key: apikey:Authorization, limit: 60/1m}
    - name: tokens
      key: [apikey:Authorization, json:model]
      limit: 1_000_000/1m
      cost:
        reserve: {json: [max_completion_tokens, max_tokens], missing: 4_000, input: {bytes_per_unit: 4}}
        settle: usage                      # of the answer, or of the last chunk of the stream
        weights: {input: 1, cached: 0.1, output: 4}
      refusal: {body: ai, stop_above: 1m}
`

func TestCheckRefusesWhatServeWouldRefuse(t *testing.T) {
	assert.Equal(t, succeed(t, budgetFile, "check", "-"), succeed(t, budgetFile, "check", "--serve", "-"))
	for name, tt := range map[string]struct {
		text, said string
		args       []string
	}{
		"the application settles": {"default: {limit: 5/s, cost: {units: 2, settle: true}}", "-:2:1: default: has cost.settle: true, and a service behind a gateway cannot call weir.Settle", nil},
		"a proxy that asks":       {budgetFile, "needs the body, which a proxy that asks keeps", []string{"--ask"}},
		"a field of the answer":   {"default: {limit: 5/s, cost: {reserve: 2, settle: {header: X-Cost}}}", "needs to know how requests end", []string{"--ask"}},
		"a user":                  {"proxies: {trusted: [10.0.0.0/8]}\ndefault: {limit: 5/s, key: user}", "needs a user: say with --user-header", nil},
		"no proxies":              {"default: {limit: 5/s, key: user}", "name the proxies that may set it", []string{"--user-header", "X-User"}},
	} {
		t.Run(name, func(t *testing.T) {
			if text := "version: 1\n" + tt.text; tt.text != budgetFile {
				tt.text = text
				succeed(t, tt.text, "check", "-")
			}
			exit, out, said := weir(t, tt.text, append([]string{"check", "--serve", "-"}, tt.args...)...)
			assert.Equal(t, exitBad, exit)
			assert.Contains(t, out+said, tt.said)
		})
	}
	file := "version: 1\nproxies: {trusted: [10.0.0.0/8]}\ndefault: {limit: 5/s, key: user}"
	assert.Equal(t, "-: good\n", succeed(t, file, "check", "--serve", "--user-header", "X-User", "-"))
	_, said := ends(t, exitUsage, file, "check", "--user-header", "X-User", "-")
	assert.Contains(t, said, "--user-header and --tier-header need --serve")
	_, said = ends(t, exitUsage, file, "check", "--serve", "--user-header", "X User", "-")
	assert.Contains(t, said, "--user-header")
}

func TestExplainSettlesARequestByItsAnswer(t *testing.T) {
	body := write(t, "request.json", `{"model":"m","max_tokens":100,"messages":[{"role":"user","content":"hi"}]}`)
	explain := func(args ...string) string {
		return succeed(t, budgetFile, append([]string{"explain", "-", "--method", "POST", "--path", "/v1/chat/completions", "--header", "Authorization: Bearer k", "--body", body}, args...)...)
	}
	assert.Contains(t, explain(), `the key "join:15:apikey:Bearer k12:body:model:m", at a cost of 419;`)
	for name, answer := range map[string]string{
		"JSON":     `{"choices":[],"usage":{"prompt_tokens":30,"completion_tokens":12,"prompt_tokens_details":{"cached_tokens":20}}}`,
		"a stream": "data: {\"choices\":[],\"usage\":{\"prompt_tokens\":30,\"completion_tokens\":12,\"prompt_tokens_details\":{\"cached_tokens\":20}}}\n\ndata: [DONE]\n\n",
		"all":      "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n\r\n" + `{"choices":[],"usage":{"prompt_tokens":30,"completion_tokens":12,"prompt_tokens_details":{"cached_tokens":20}}}`,
	} {
		assert.Contains(t, explain("--answer", write(t, "answer", answer)), "at a cost of 419, settled with 60;", name)
	}
	assert.Contains(t, explain("--answer", write(t, "answer", "{}")), "at a cost of 419, settled with 419;")
	assert.Contains(t, explain("--json", "--answer", write(t, "answer", "HTTP/1.1 500 No\r\n\r\n")), `"settled": 0`)
	stated := "version: 1\ndefault: {limit: 50/s, cost: {reserve: 20, settle: {header: X-Cost}}}\n"
	for answer, want := range map[string]string{"HTTP/1.1 200 OK\r\nx-cost: 7\r\n\r\n": "settled with 7;", "{}": "settled with 20;"} {
		assert.Contains(t, succeed(t, stated, "explain", "-", "--path", "/", "--answer", write(t, "answer", answer)), want)
	}
	ambiguous := write(t, "request.json", `{"model":"m","max_tokens":"5"}`)
	assert.Contains(t, succeed(t, budgetFile, "explain", "-", "--method", "POST", "--path", "/v1/chat/completions", "--header", "Authorization: k", "--body", ambiguous), "answered 400")
}
