package serverlimit

import (
	"cmp"
	"net/http"
	"slices"
	"strings"
	"time"
)

// Unsaid is a Limit or Remaining that the server does not state. It differs from 0, which is none.
const Unsaid = -1

// MaxWait is the longest [Reading.Wait]. So a field that was misread, or written in the wrong unit,
// costs a day at most.
const MaxWait = 24 * time.Hour

const (
	year      = 366 * 24 * time.Hour
	maxQuotas = 16  // of one response; further quotas are merged into the last
	maxName   = 128 // bytes, of a quota and of a field
	maxLines  = 64  // of a field
	maxLine   = 8 << 10
)

// A Reading is what a response says about the server's limits.
type Reading struct {
	// Limited reports that the server refused the request because of a limit, or because it is
	// too busy and says until when: status 429 and 420; 403, 418 and 500 or above with a time to
	// wait; 403 with a quota that is used up; and GitHub's secondary limits.
	Limited bool

	// Wait is how long the client should send no more requests of this kind after the response, at most
	// MaxWait. If the response is an error with a Retry-After, it is that time, whether or not the
	// error is Limited. Otherwise it is the time until all used-up quotas have reset, even if the
	// request was served. Zero: the server says neither. Zero after a refusal does not mean that the
	// client may retry at once.
	Wait time.Duration

	// Unsure is by how much Wait may be too short, as servers round times to whole seconds. It
	// is 0 if Wait is.
	Unsure time.Duration

	// Retry is whether the server wants this request to be sent again.
	Retry Retry

	// Quota is the quota that is closest to being used up. Its Limit and Remaining are Unsaid if the
	// server states no quota.
	Quota Quota

	// Others are the further quotas of the response, the closest to being used up first.
	Others []Quota

	// BodyTells reports that the body may say what the fields leave open: whether a limit refused the
	// request (GitHub), or how long to wait (Google). [ReadWithBody] reads it.
	BodyTells bool
}

// A Quota is one limit of a server, and how much of it remains.
type Quota struct {
	// Name is the server's name of the quota. It may name a policy ("default"), a bucket, a resource
	// ("search"), a unit ("tokens"), or a period ("minute"). If it is part of a field's name, it is in
	// lower case. Empty: the server names no quota.
	Name string

	// Limit is the size of the quota, in units of the server's choice; or Unsaid.
	Limit int64

	// Remaining is how much remains; or Unsaid. If the server states a limit below Remaining, Limit is
	// Unsaid.
	Remaining int64

	// Reset is the time until more remains. Some servers mean the time until the whole quota remains.
	// Reset is at most a year. It is 0 if more remains now, or if the server does not say when. If nothing
	// remains, it can be that of another field, or Window: see Doubt in the package documentation.
	Reset time.Duration

	// Unsure is by how much Reset may be too short.
	Unsure time.Duration

	// Window is the period of Limit; 0 if it was not said.
	Window time.Duration

	// Unit is what is counted, if the server says so: "requests", "tokens", "content-bytes",
	// "concurrent-requests".
	Unit string
}

// Retry is whether a server wants a request to be sent again.
type Retry uint8

const (
	RetryUnsaid Retry = iota
	RetryYes          // x-should-retry: true
	RetryNo           // x-should-retry: false, or several such fields that disagree
)

// Read returns what the response says. It neither reads nor closes the body.
func Read(r *http.Response) Reading { return ReadWithBody(r, nil) }

// ReadWithBody is [Read] with the beginning of the body, which the caller has read; 16 KiB are
// enough. It uses the body only if [Reading.BodyTells].
func ReadWithBody(r *http.Response, body []byte) Reading {
	fields := fieldsOf(r.Header)
	if len(fields) == 0 && r.StatusCode < 400 {
		return Reading{Quota: unsaid("")} // as most do
	}
	return read(r, fields, body)
}

func read(r *http.Response, fields []string, body []byte) Reading {
	failed := r.StatusCode >= 400
	said := Reading{Quota: unsaid("")}
	if !failed && fromCache(r.Header) {
		return said // it says how things were when the cache was filled
	}
	if !failed {
		fields = slices.DeleteFunc(fields, isAnnounced)
	}
	c := collector{clock: clock{header: r.Header}}
	c.clock.date, _ = http.ParseTime(r.Header.Get("Date"))
	c.readAll(fields)
	said.Retry = c.retry
	quotas := c.finish()
	if len(quotas) > 0 {
		said.Quota = quotas[0].Quota
	}
	if len(quotas) > 1 {
		said.Others = make([]Quota, len(quotas)-1)
		for i := range said.Others {
			said.Others[i] = quotas[i+1].Quota
		}
	}

	reset, exhausted := untilAnew(quotas, r.StatusCode)
	switch {
	case failed && c.wait.d > 0:
		said.Wait, said.Unsure = min(c.wait.d, MaxWait), c.wait.step
	case reset.d > 0:
		said.Wait, said.Unsure = min(reset.d, MaxWait), reset.step
	}
	switch status := r.StatusCode; {
	case status == http.StatusTooManyRequests, status == 420: // which is Twitter's for it
		said.Limited = true
	case status == http.StatusForbidden:
		said.Limited = c.wait.d > 0 || exhausted
	case status == http.StatusTeapot, status >= 500:
		said.Limited = c.wait.d > 0
	}
	if failed {
		said.readBody(r, body)
	}
	return said
}

// fromCache reports whether the response was not made for this request. X-From-Cache is
// what Go's caching transports set.
func fromCache(h http.Header) bool {
	age, kept := h["Age"], h["X-From-Cache"]
	return len(age) > 0 && strings.Trim(age[0], "0 ") != "" || len(kept) > 0 && kept[0] == "1"
}

// untilAnew is the time until all used-up quotas have reset. In a 429 quotas that do not say what
// remains count as used up.
func untilAnew(quotas []slot, status int) (reset span, exhausted bool) {
	for i := range quotas {
		q := &quotas[i]
		if q.Remaining == 0 || q.Remaining == Unsaid && status == http.StatusTooManyRequests {
			exhausted = true
			if q.Reset > reset.d {
				reset = span{q.Reset, q.Unsure}
			}
		}
	}
	return reset, exhausted
}

func unsaid(name string) Quota { return Quota{Name: name, Limit: Unsaid, Remaining: Unsaid} }

// closestFirst orders quotas by the part that remains. Of used-up quotas the last to reset is first.
// Quotas that do not say what remains are last.
func closestFirst(a, b slot) int {
	return cmp.Or(cmp.Compare(a.part(), b.part()), cmp.Compare(b.Reset, a.Reset), cmp.Compare(a.Name, b.Name))
}

// part is for the order alone, so that rounding does not matter.
func (q *slot) part() float64 {
	switch {
	case q.Remaining == Unsaid:
		return 3
	case q.Remaining == 0:
		return 0
	case q.Limit == Unsaid:
		return 2
	}
	return float64(q.Remaining) / float64(q.Limit)
}
