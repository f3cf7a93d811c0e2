package main

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
)

// answer answers as OpenAI does: with as many words as the request allows, 20 at most. A word is a token.
func answer(w http.ResponseWriter, r *http.Request) {
	var request struct {
		Model    string            `json:"model"`
		Messages []json.RawMessage `json:"messages"`
		Max      int               `json:"max_completion_tokens"`
		OldMax   int               `json:"max_tokens"`
		Stream   bool              `json:"stream"`
		Options  struct {
			Usage bool `json:"include_usage"`
		} `json:"stream_options"`
	}
	w.Header().Set("Content-Type", "application/json")
	if err := json.NewDecoder(r.Body).Decode(&request); err != nil || len(request.Messages) == 0 {
		w.WriteHeader(http.StatusBadRequest)
		fmt.Fprint(w, `{"error":{"message":"messages: at least one is needed","type":"invalid_request_error","param":"messages","code":null}}`)
		return
	}
	input, output := 0, 20
	for _, message := range request.Messages {
		input += len(message)/8 + 1
	}
	for _, most := range []int{request.Max, request.OldMax} {
		if most > 0 {
			output = min(output, most)
		}
	}
	usage := map[string]any{"prompt_tokens": input, "completion_tokens": output, "total_tokens": input + output}
	reply := func(object string, choices []any) map[string]any {
		return map[string]any{"id": "chatcmpl-1", "object": object, "created": 1, "model": request.Model, "choices": choices}
	}
	if !request.Stream {
		whole := reply("chat.completion", []any{map[string]any{"index": 0, "finish_reason": "stop",
			"message": map[string]any{"role": "assistant", "content": strings.Repeat("word ", output)}}})
		whole["usage"] = usage
		_ = json.NewEncoder(w).Encode(whole)
		return
	}
	w.Header().Set("Content-Type", "text/event-stream")
	send := func(data any) {
		text, _ := json.Marshal(data)
		fmt.Fprintf(w, "data: %s\n\n", text)
		_ = http.NewResponseController(w).Flush()
	}
	for range output {
		send(reply("chat.completion.chunk", []any{map[string]any{"index": 0, "finish_reason": nil, "delta": map[string]any{"content": "word "}}}))
	}
	send(reply("chat.completion.chunk", []any{map[string]any{"index": 0, "finish_reason": "stop", "delta": map[string]any{}}}))
	if request.Options.Usage {
		last := reply("chat.completion.chunk", []any{})
		last["usage"] = usage
		send(last)
	}
	fmt.Fprint(w, "data: [DONE]\n\n")
}
