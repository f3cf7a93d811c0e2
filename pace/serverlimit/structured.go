package serverlimit

import (
	"time"

	"github.com/dunglas/httpsfv"
)

// readList reads a line of the RateLimit field: since draft 08 a List of RFC 9651
// ("default";r=50;t=30), in draft 07 a Dictionary (limit=100, remaining=50, reset=5).
// It ignores other lines, as the drafts require.
func (c *collector) readList(prefix, line string) {
	list, err := httpsfv.UnmarshalList([]string{line})
	if err != nil {
		c.readDictionary(prefix, line)
		return
	}
	for _, m := range list {
		name, integer, params := parts(m)
		s := slot{Quota: unsaid(name), prefix: prefix}
		switch r := count(params, "r"); {
		case name != "" && r != Unsaid:
			s.Remaining, s.listed = r, true
			s.setSeconds(count(params, "t"))
			c.add(&s)
		case integer != Unsaid:
			s.Limit = integer // Zendesk's X-Rate-Limit: 700
			c.add(&s)
		}
	}
}

// readDictionary reads a line of draft 07.
func (c *collector) readDictionary(prefix, line string) {
	dictionary, err := httpsfv.UnmarshalDictionary([]string{line})
	if err != nil {
		return
	}
	get := func(key string) int64 {
		m, _ := dictionary.Get(key)
		_, n, _ := parts(m)
		return n
	}
	s := slot{Quota: unsaid(""), prefix: prefix}
	s.Limit, s.Remaining = get("limit"), get("remaining")
	s.setSeconds(get("reset"))
	c.add(&s)
}

// readPolicy reads a line of the RateLimit-Policy field: "burst";q=100;w=60. In drafts up to 07 it is
// 100;w=60, about the unnamed quota that has this limit.
func (c *collector) readPolicy(prefix, line string) {
	list, err := httpsfv.UnmarshalList([]string{line})
	if err != nil {
		return
	}
	for _, m := range list {
		name, integer, params := parts(m)
		q := unsaid(name)
		q.Window = seconds(count(params, "w"))
		switch limit := count(params, "q"); {
		case name != "" && limit != Unsaid:
			q.Limit, q.Unit = limit, "requests" // the draft's default
			if unit, ok := params.Get("qu"); ok && textOf(unit) != "" {
				q.Unit = textOf(unit)
			}
			c.add(&slot{Quota: q, prefix: prefix, listed: true})
		case integer != Unsaid:
			if i := c.find(prefix, ""); i >= 0 && c.slots[i].Limit == integer {
				c.slots[i].join(q)
			}
		}
	}
}

func (s *slot) setSeconds(n int64) {
	if n != Unsaid {
		s.setReset(span{time.Duration(min(n, 2*yearSeconds)) * time.Second, time.Second})
	}
}

// parts returns a member's value as a name or a count, and its parameters. An inner list is neither.
func parts(m httpsfv.Member) (name string, integer int64, params *httpsfv.Params) {
	switch m := m.(type) {
	case httpsfv.Item:
		name = textOf(m.Value)
		return name[:min(len(name), maxName)], countOf(m.Value), m.Params
	case httpsfv.InnerList:
		return "", Unsaid, m.Params
	}
	return "", Unsaid, nil
}

// count returns a parameter, or Unsaid if it is missing or has another type.
func count(params *httpsfv.Params, key string) int64 {
	v, _ := params.Get(key)
	return countOf(v)
}

func countOf(v any) int64 {
	if n, ok := v.(int64); ok && n >= 0 {
		return n
	}
	return Unsaid
}

func textOf(v any) string {
	switch v := v.(type) {
	case string:
		return v
	case httpsfv.Token:
		return string(v)
	}
	return ""
}
