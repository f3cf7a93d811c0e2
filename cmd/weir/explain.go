package main

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"

	"github.com/spf13/pflag"

	"github.com/weirgo/weir/middleware/rules"
)

func explain(s *session, flags *pflag.FlagSet) action {
	q := rules.Request{Header: http.Header{}}
	flags.StringVar(&q.Method, "method", http.MethodGet, "the request's `method`")
	flags.StringVar(&q.Path, "path", "", "the request's `path`, such as /users/42, or its route, such as /users/{id}")
	flags.StringVar(&q.Query, "query", "", "the request's `query`, such as tenant=acme")
	flags.StringVar(&q.Host, "host", "", "the requested `host`, for endpoints that begin with one")
	flags.BoolVar(&q.ServeMux, "servemux", false, "the router is an http.ServeMux, where \"/static/\" matches all paths below it")
	flags.StringVar(&q.IP, "ip", "", "the `address` of the TCP peer; by default 192.0.2.1")
	flags.StringVar(&q.Tier, "tier", "", "the `tier` that the application gives the request")
	flags.StringVar(&q.User, "user", "", "the `id` of the user that the application finds")
	flags.Int64Var(&q.ContentLength, "length", 0, "the length of its body in `bytes`; -1: unknown")
	flags.Func("header", "a `header` of the request, such as \"X-Device: 7\"; may be repeated", func(text string) error {
		name, value, ok := strings.Cut(text, ":")
		if !ok || strings.TrimSpace(name) == "" {
			return errors.New("want a name, a colon and a value")
		}
		q.Header.Add(strings.TrimSpace(name), strings.TrimSpace(value))
		return nil
	})
	body := flags.String("body", "", "a `file` with the body of the request, for rules that read it")
	answered := flags.String("answer", "", "a `file` with the answer, which settles what rules reserve: the body alone, or all of it as curl -i writes it")
	out := s.output(flags)
	tiers, keys := knowing(flags)
	return func(files []string) (err error) {
		if q.Path == "" {
			return usageError{errors.New("name a --path")}
		}
		if *body != "" {
			if q.Body, err = s.read(*body); err != nil {
				return err
			}
		}
		if *answered != "" {
			if q.Answer, err = s.answer(*answered); err != nil {
				return err
			}
		}
		loaded, err := s.load(files[0], options(*tiers, *keys))
		if err != nil {
			return err
		}
		explanation, err := loaded.Explain(q)
		if err != nil {
			return usageError{err}
		}
		return out.write(explanation, func(table io.Writer) {
			fmt.Fprintf(table, "%s %s%s, routed as %s\n", q.Method, q.Host, q.Path, explanation.Route)
			writeSteps(table, explanation.Steps)
			for _, note := range explanation.Notes {
				fmt.Fprintf(table, "note: %s\n", note)
			}
		})
	}
}

// answer reads an answer from a file.
func (s *session) answer(name string) (*http.Response, error) {
	text, err := s.read(name)
	if err != nil {
		return nil, err
	}
	if bytes.HasPrefix(text, []byte("HTTP/")) {
		return http.ReadResponse(bufio.NewReader(bytes.NewReader(text)), nil)
	}
	answer := &http.Response{StatusCode: http.StatusOK, Header: http.Header{}, Body: io.NopCloser(bytes.NewReader(text))}
	if object := bytes.TrimSpace(text); len(object) > 0 && object[0] != '{' {
		answer.Header.Set("Content-Type", "text/event-stream")
	}
	return answer, nil
}

// writeSteps writes the steps of an explanation, each in a line.
func writeSteps(table io.Writer, steps []rules.Step) {
	for i, step := range steps {
		line := ""
		if step.Line > 0 {
			line = fmt.Sprintf("line %d", step.Line)
		}
		says := step.Says
		if step.Rule != "" && step.Rule != step.Section {
			says = fmt.Sprintf("%q: %s", step.Rule, says)
		}
		fmt.Fprintf(table, "%d.\t%s\t%s\t%s\n", i+1, step.Section, line, says)
	}
}

func schema(s *session, _ *pflag.FlagSet) action {
	return func([]string) error {
		_, err := s.out.Write(rules.Schema())
		return err
	}
}
