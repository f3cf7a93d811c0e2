package ask

import (
	"net/http"
	"slices"
	"strings"

	"github.com/weirgo/weir/cmd/weir/internal/serving"
	"github.com/weirgo/weir/internal/route"
	"github.com/weirgo/weir/middleware/rules"
)

// A Service is a serving.Service that other proxies ask.
type Service struct {
	*serving.Server // nil before Start
	listen          string
	paths           string // the value of --paths
}

// New returns a service for the values of --ask and --paths.
func New(listen, paths string) *Service { return &Service{listen: listen, paths: paths} }

// Lacks implements serving.Service.
func (s *Service) Lacks(proxies *rules.Proxies, need rules.Need) string {
	switch kind, name, _ := strings.Cut(need.Of, ":"); {
	case kind == "user", kind == "tier":
		return "needs a " + kind + ", which a proxy that asks does not say"
	case kind == "status", kind == "settled", kind == "usage", kind == "answer", kind == "concurrency", kind == "overload":
		return "needs to know how requests end, which a proxy that asks does not say"
	case kind == "stream":
		return "answers with status 200, which a proxy that asks takes for a yes"
	case kind == "json", kind == "form", need.Of == "header:Content-Length":
		return "needs the body, which a proxy that asks keeps"
	case kind == "header" && (name == "Expect" || route.IsOfConnection(name)): // the question comes on another connection
		return "needs " + name + ", which a proxy that asks does not pass on"
	case kind == "header" && slices.Contains(ofQuestions, name) && (name != "X-Forwarded-For" || proxies.None() && !proxies.Hops()):
		return "needs " + name + ", in which the proxy that asks describes the request: what its client sends is not there"
	}
	return ""
}

// Start implements serving.Service.
func (s *Service) Start(l serving.Limits, failed func(error)) error {
	server, err := serving.Listen("--ask", s.listen, handler(func(next http.Handler) http.Handler {
		return l.Gateway(next, s.paths)
	}), l.Logger)
	if err != nil {
		return err
	}
	s.Server = server
	server.Start(failed)
	return nil
}
