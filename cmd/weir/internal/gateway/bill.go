package gateway

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"net/http"
	"slices"
	"strings"

	"github.com/weirgo/weir/internal/reading"
	"github.com/weirgo/weir/keyfunc"
	"github.com/weirgo/weir/middleware"
	"github.com/weirgo/weir/middleware/rules"
	"github.com/weirgo/weir/middleware/tokens"
)

// A bill is what rules have reserved for a request and its answer settles. A nil bill has no rules.
type bill struct {
	ctx    context.Context
	logger *slog.Logger
	rules  []owed
	usage  bool // of tokens settles a rule
	asked  bool // the request was changed to ask for its usage
}

type owed struct {
	rule     string
	reserved int64
	rules.Settlement
}

type billKey struct{}

func billOf(ctx context.Context) *bill {
	b, _ := ctx.Value(billKey{}).(*bill)
	return b
}

// billed returns the request as the upstream gets it, with its bill in its context. If it returns false, it has answered
// the request.
func (g *Gateway) billed(w http.ResponseWriter, r *http.Request) (*http.Request, bool) {
	b := &bill{ctx: r.Context(), logger: g.Logger}
	inForce, asks := g.Watcher.Rules(), true
	for rule, reserved := range middleware.Reserved(b.ctx) {
		if s, ok := inForce.Settlement(rule); ok {
			b.rules = append(b.rules, owed{rule, reserved, s})
			b.usage, asks = b.usage || s.Header == "", asks && (s.Ask || s.Header != "")
		}
	}
	if len(b.rules) > 0 {
		r = r.WithContext(context.WithValue(b.ctx, billKey{}, b))
	}
	asks = asks && strings.HasSuffix(r.URL.Path, "/chat/completions")
	if b.usage && (asks || b.adds()) && r.Body != nil && r.Body != http.NoBody {
		text, err := keyfunc.Body(r, reading.MostJSON)
		if err != nil {
			b.nothing()
			status := http.StatusBadRequest
			if known := (*reading.Error)(nil); errors.As(err, &known) {
				status = known.Status
			} else if len(text) == reading.MostJSON {
				status = http.StatusRequestEntityTooLarge
			}
			if status == http.StatusServiceUnavailable {
				w.Header().Set("Retry-After", "1")
			}
			w.Header().Set("Cache-Control", "no-store")
			http.Error(w, "The body cannot be read.", status)
			return nil, false
		}
		for i := range b.rules {
			text = b.rules[i].WithMax(r, text)
		}
		if asks {
			text, b.asked = tokens.Ask(text)
		}
		if body, ok := reading.Behind[ahead](r.Body); ok {
			body.Replace(text)
			r.ContentLength, r.TransferEncoding = int64(len(text)), nil
		}
	}
	if body, ok := reading.Behind[ahead](r.Body); ok {
		r.Body = &sent{r.Body, body}
	}
	return r, true
}

// adds reports whether a rule may add a maximum of tokens to the body.
func (b *bill) adds() bool {
	return slices.ContainsFunc(b.rules, func(o owed) bool { return o.Max != "" })
}

// ahead is a body that was read ahead.
type ahead interface {
	Replace(text []byte)
	Release()
}

// A sent body frees what was read ahead of a request's body when the upstream has it: a stream may take long. ReverseProxy
// does not close it.
type sent struct {
	io.ReadCloser
	ahead ahead
}

func (s *sent) Read(p []byte) (int, error) {
	n, err := s.ReadCloser.Read(p)
	if err != nil {
		s.ahead.Release()
	}
	return n, err
}

// settle settles the rules by the upstream's answer: now by a field of it, or when its usage of tokens is known.
func (b *bill) settle(answer *http.Response) {
	if b == nil {
		return
	}
	for i := range b.rules {
		if o := &b.rules[i]; o.Header != "" {
			if units, ok := o.Stated(answer); ok {
				b.say(o, units)
			}
		}
	}
	if b.usage {
		tokens.Watch(answer, tokens.Options{Asked: b.asked}, func(report tokens.Report) {
			for i := range b.rules {
				o := &b.rules[i]
				if o.Header != "" {
					continue
				}
				// What is not settled costs what was reserved.
				if units := report.Units(o.Weights, o.reserved); report.Final || units > o.reserved {
					b.say(o, units)
				}
			}
		})
	}
}

// nothing settles all rules with no units: the upstream has not got the request.
func (b *bill) nothing() {
	if b == nil {
		return
	}
	for i := range b.rules {
		b.say(&b.rules[i], 0)
	}
}

func (b *bill) say(o *owed, units int64) {
	if err := middleware.Settle(b.ctx, o.rule, units); err != nil {
		b.logger.Debug("weir: a request was not settled", slog.String("rule", o.rule), slog.String("error", err.Error()))
	}
}

// fields are the fields of the answer that clients do not see.
func (b *bill) fields() (names []string) {
	if b != nil {
		for i := range b.rules {
			if name := b.rules[i].Header; name != "" {
				names = append(names, name)
			}
		}
	}
	return names
}
