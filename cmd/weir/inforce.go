package main

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/textproto"
	"net/url"
	"os"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/weirgo/weir/limiter"
	"github.com/weirgo/weir/middleware"
	"github.com/weirgo/weir/middleware/rules"
	"github.com/weirgo/weir/redis/redisrules"
)

// A ruleset is the rules in force, as JSON.
type ruleset struct {
	Source   string        `json:"source"` // redis, or service
	Key      string        `json:"key,omitempty"`
	Version  string        `json:"version,omitempty"`
	Rules    []ruleInForce `json:"rules"`
	NotShown int           `json:"not_shown,omitempty"` // how many more the service has
	Loaded   []loaded      `json:"loaded,omitempty"`    // what a service says of where it has its rules from
}

// A loaded is a file, or a key in Redis, that a service has rules from.
type loaded struct {
	Source  string    `json:"source,omitempty"` // none: those in force are not what is written
	Version string    `json:"version"`
	At      time.Time `json:"at"`                // when they came into force
	Refused uint64    `json:"refused,omitempty"` // how often others were
	Error   string    `json:"error,omitempty"`   // why what is written now is not in force
}

type ruleInForce struct {
	Rule     string `json:"rule"`
	Tier     string `json:"tier,omitempty"`
	Limit    string `json:"limit"`
	For      string `json:"for,omitempty"` // a route, or a tier
	OnOutage string `json:"on_outage,omitempty"`
	Shadow   bool   `json:"shadow,omitempty"`
	Deny     bool   `json:"deny,omitempty"`
}

func inForce(s *session, args []string) error {
	flags := flag.NewFlagSet("rules", flag.ContinueOnError)
	server := connectionFlags(flags)
	at := rulesKey(flags)
	service := flags.String("service", "", "`URL` of a service's page (package dashboard), whose rules in force are listed in place of those in Redis")
	header := http.Header{}
	headerFlags(flags, header)
	asText := flags.Bool("text", false, "write the text in Redis as it stands")
	asJSON := flags.Bool("json", false, "write JSON")
	tiers, keys := knowing(flags)
	err := s.parseFlags(flags, args)
	switch {
	case err != nil:
		return err
	case *service != "" && *asText:
		return usageError{errors.New("--text is of the rules in Redis: a service has them without their text")}
	case *service == "" && len(header) > 0:
		return usageError{errors.New("a header is for a --service")}
	}
	var found ruleset
	if *service != "" {
		found, err = askService(*service, header)
	} else {
		err = server.with(patience, func(ctx context.Context, client redis.UniversalClient) error {
			text, err := redisrules.Read(ctx, client, *at)
			if err != nil {
				return err
			}
			if *asText {
				_, err := s.out.Write(text)
				return err
			}
			found, err = rulesOf(*at, text, options(*tiers, *keys))
			return err
		})
	}
	switch {
	case err != nil || *asText:
		return err
	case *asJSON:
		return writeJSON(s.out, found)
	}
	return found.write(s)
}

// rulesOf are those of a text in Redis.
func rulesOf(key string, text []byte, o rules.Options) (ruleset, error) {
	found := ruleset{Source: "redis", Key: key, Version: rules.VersionOf(text), Rules: []ruleInForce{}}
	loaded, err := rules.Parse(text, o)
	if err != nil {
		return found, fmt.Errorf("the rules in Redis, version %s, have problems, so that services keep the ones that they had:\n%w", found.Version, err)
	}
	config := loaded.Config()
	if config.Store, err = limiter.NewMemory(limiter.MemoryOptions{}); err != nil { // which is not asked
		return found, err
	}
	config.Logger = slog.New(slog.DiscardHandler) // check warns
	limits, err := middleware.New(config)
	if err != nil {
		return found, err
	}
	for _, info := range limits.Rules() {
		r := ruleInForce{Rule: info.Name, Tier: info.Tier, Limit: info.LimitText(), For: info.Route, OnOutage: info.OnOutage.String(), Shadow: info.Shadow, Deny: info.Deny}
		if info.ForTier != "" {
			r.For = "tier " + info.ForTier
		}
		found.Rules = append(found.Rules, r)
	}
	return found, nil
}

func (r *ruleset) write(s *session) error {
	if r.Version != "" {
		fmt.Fprintf(s.out, "%s, version %s\n", r.Key, r.Version)
	}
	for _, l := range r.Loaded {
		fmt.Fprintf(s.out, "%s, version %s, in force since %s\n", cmp.Or(l.Source, "a fallback"), l.Version, l.At.Local().Format(time.RFC3339))
		if l.Error != "" {
			fmt.Fprintf(s.out, "what is written now is refused: %s\n", l.Error)
		}
	}
	table := newTable(s)
	fmt.Fprintln(table, "RULE\tLIMIT\tFOR\tIN AN OUTAGE\tMODE")
	for _, rule := range r.Rules {
		mode := "enforce"
		switch {
		case rule.Deny:
			mode = "deny"
		case rule.Shadow:
			mode = "shadow"
		}
		fmt.Fprintf(table, "%s\t%s\t%s\t%s\t%s\n", ruleName(rule.Rule, rule.Tier), rule.Limit, cmp.Or(rule.For, "all"), rule.OnOutage, mode)
	}
	if err := table.Flush(); err != nil {
		return err
	}
	if r.NotShown > 0 {
		fmt.Fprintf(s.err, "weir rules: the service has %d more, which it does not show\n", r.NotShown)
	}
	return nil
}

// headerFlags are for what a service asks of operators that may see its page.
func headerFlags(flags *flag.FlagSet, header http.Header) {
	flags.Func("header", "a `header` for the service, such as \"X-Admin: 1\"; may be repeated. Others on this machine can see it: see --header-file", func(text string) error {
		name, value, ok := strings.Cut(text, ":")
		if !ok || strings.TrimSpace(name) == "" {
			return errors.New("want a name, a colon and a value")
		}
		header.Add(strings.TrimSpace(name), strings.TrimSpace(value))
		return nil
	})
	flags.Func("header-file", "a `file` with such headers, one on a line, such as Authorization: Bearer ...", func(name string) error {
		text, err := os.ReadFile(name)
		if err != nil {
			return err
		}
		lines := bytes.TrimRight(text, "\r\n")
		read, err := textproto.NewReader(bufio.NewReader(bytes.NewReader(append(lines, "\r\n\r\n"...)))).ReadMIMEHeader()
		if err != nil {
			return errors.New("the file is not a list of headers, NAME: VALUE on each line") // without its text
		}
		for name, values := range read {
			header[name] = append(header[name], values...)
		}
		return nil
	})
}

// mostPage is how much a service may say.
const mostPage = 64 << 20

// askService gets the rules of a service from its page.
func askService(address string, header http.Header) (ruleset, error) {
	found := ruleset{Source: "service", Rules: []ruleInForce{}}
	u, err := url.Parse(address)
	if err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https" {
		return found, usageError{errors.New("--service is no URL: want something like https://api.internal/debug/limits/")}
	}
	ctx, cancel := context.WithTimeout(context.Background(), 4*patience)
	defer cancel()
	request := (&http.Request{Method: http.MethodGet, URL: u, Header: header.Clone()}).WithContext(ctx)
	request.Header.Set("Accept", "application/json")
	client := http.Client{CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }} // which would take the headers elsewhere
	answer, err := client.Do(request)
	if err != nil {
		if inner := (*url.Error)(nil); errors.As(err, &inner) {
			err = inner.Err // without the URL, which may have a password
		}
		return found, fmt.Errorf("the service does not answer: %w", err)
	}
	defer answer.Body.Close()
	switch {
	case answer.StatusCode == http.StatusForbidden || answer.StatusCode == http.StatusUnauthorized:
		return found, fmt.Errorf("the service answers %s: it asks for other credentials (--header-file)", answer.Status)
	case answer.StatusCode >= 300 && answer.StatusCode < 400:
		return found, fmt.Errorf("the service answers %s: it wants to be asked elsewhere, such as with a / at the end", answer.Status)
	case answer.StatusCode != http.StatusOK:
		return found, fmt.Errorf("the service answers %s", answer.Status)
	}
	var page struct {
		Rows []struct {
			Rule, Tier, Limit, For, OnOutage string
			Shadow                           bool
		}
		Hidden  int
		Written []struct {
			Source, Version, Error string
			Loaded                 int64 // Unix milliseconds
			Refused                uint64
		}
	}
	if err := json.NewDecoder(io.LimitReader(answer.Body, mostPage)).Decode(&page); err != nil || page.Rows == nil {
		return found, errors.New("what answers there is not the page of package dashboard")
	}
	for _, row := range page.Rows {
		found.Rules = append(found.Rules, ruleInForce{
			Rule: row.Rule, Tier: row.Tier, Limit: row.Limit, For: row.For, OnOutage: row.OnOutage, Shadow: row.Shadow, Deny: row.Limit == "none",
		})
	}
	found.NotShown = page.Hidden
	for _, w := range page.Written {
		found.Loaded = append(found.Loaded, loaded{w.Source, w.Version, time.UnixMilli(w.Loaded).UTC().Truncate(time.Second), w.Refused, w.Error})
	}
	return found, nil
}
