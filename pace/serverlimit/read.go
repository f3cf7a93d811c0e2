package serverlimit

import (
	"cmp"
	"net/http"
	"strings"
	"time"
)

// Unsaid is the Limit or Remaining that a server does not tell. It is not 0, which is "none".
const Unsaid = -1

// MaxWait is the longest [Reading.Wait]. A server that asks for more is asked again after
// a day: so a field that was misread, or written in the wrong unit, costs a day at most.
const MaxWait = 24 * time.Hour

const (
	year      = 366 * 24 * time.Hour
	maxQuotas = 16  // of one response; further ones are read as if they were the last
	maxName   = 128 // bytes, of a quota and of a field
	maxLines  = 64  // of a field
	maxLine   = 8 << 10
)

// A Reading is what a response says about the server's limits.
type Reading struct {
	// Limited says that the server refused the request because of a limit, or because it is
	// too busy and says until when: status 429 and 420; 403, 418 and all from 500 on with a time
	// to wait; 403 with a quota of which nothing remains; an error that AWS calls throttling.
	Limited bool

	// Wait is how long to send no more requests of this kind, from the response on, at most
	// MaxWait. Of an error it is what the server asked for (Retry-After), whether or not
	// it is Limited; else the time until all quotas of which nothing remains have begun anew,
	// also after a request that was served. It is 0 if neither is said: after a refusal,
	// that does not mean at once.
	Wait time.Duration

	// Unsure is by how much Wait may be too short, as the server rounded, or told the time in
	// whole seconds. It is 0 if Wait is.
	Unsure time.Duration

	// Retry is what the server says about sending this very request again, apart from when.
	Retry Retry

	// Quota is the one that is closest to its end. Its Limit and Remaining are Unsaid where
	// the server tells of none.
	Quota Quota

	// Others are the further quotas of the response, the closest to its end first.
	Others []Quota

	// BodyTells says that the body may tell what the fields leave open: whether this is a
	// limit (GitHub, AWS), or how long to wait (Google). [ReadWithBody] reads both.
	BodyTells bool
}

// A Quota is one limit of a server, and what is left of it.
type Quota struct {
	// Name is the server's own: of a policy ("default"), a bucket, a resource ("search"), what
	// is counted ("tokens"), or a period ("minute"). Names taken of a field's name are in
	// lower case. It is empty where the server has only one quota to tell of.
	Name string

	// Limit is how much there is at most, in units of the server's choice; or Unsaid.
	Limit int64

	// Remaining is how much is left; or Unsaid. A Limit below it is taken for Unsaid.
	Remaining int64

	// Reset is the time until more remains. Some servers mean until all of it does. It is
	// 0 if that is now, or is not said; a year at most.
	Reset time.Duration

	// Unsure is by how much Reset may be too short.
	Unsure time.Duration

	// Window is the period that Limit is for; 0 if it is not said.
	Window time.Duration

	// Unit is what is counted, where that is said: "requests", "tokens", "content-bytes",
	// "concurrent-requests".
	Unit string
}

// Retry is whether a server wants a request to be sent again.
type Retry uint8

const (
	RetryUnsaid Retry = iota
	RetryYes          // x-should-retry: true
	RetryNo           // x-should-retry: false. Where fields disagree, it is this.
)

// Read reads what the response says. The body is neither read nor closed.
func Read(r *http.Response) Reading { return ReadWithBody(r, nil) }

// ReadWithBody is [Read] for a response of which the caller has read the beginning of the
// body; 16 KiB are enough. The body is looked into where [Reading.BodyTells] alone.
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
		return said // it tells how things were when the cache was filled
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

// untilAnew is when all quotas of which nothing remains have begun anew. In a 429, which
// says that something is used up, those that do not tell what remains are among them.
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

// closestFirst orders quotas by the part of them that remains. Of those of which nothing does,
// the one that lasts longest is the first; those that do not tell are last.
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
