package main

import (
	"net/http"
	"slices"

	"github.com/weirgo/weir/benchmarks/peers"
	"github.com/weirgo/weir/middleware"
)

// An contestant is a contestant, in those stages that it takes part in.
type contestant struct {
	peers.Peer
	only   string // the one stage; empty: both
	status int    // of its refusals; 0: 429
}

// contestants are all of them. To add one, add it here; a peer is added to package peers.
var contestants = slices.Concat([]contestant{
	{Peer: peers.Peer{Name: bare, Wrap: wrapNothing, About: "the handler alone, beside itself: what is left of the difference is the noise"}, only: allowed},

	{Peer: peers.Peer{Name: weir, Wrap: weirWith(nil), About: "middleware.Config with one rule by address, a token bucket, both families of fields"}},
	{Peer: peers.Peer{Name: weirLegacy, Wrap: weirWith(func(c *middleware.Config) { c.Headers = middleware.HeadersLegacy }), About: "the same with HeadersLegacy"}},
	{Peer: peers.Peer{Name: "weir-none", Wrap: weirWith(func(c *middleware.Config) { c.Headers = middleware.HeadersNone }), About: "the same with HeadersNone"}},
	{Peer: peers.Peer{Name: weirLean, Wrap: weirWith(func(c *middleware.Config) { c.Headers, c.NoResult = middleware.HeadersNone, true }), About: "the same with HeadersNone and NoResult"}},
	{Peer: peers.Peer{Name: weirBan, Wrap: weirWith(banClient), About: "weir, where the client is in Config.Bans for an hour"}, only: refused, status: http.StatusForbidden},
	{Peer: peers.Peer{Name: weirThreeRules, Wrap: weirWith(addRules), About: "weir with three rules by address"}, only: allowed},
	{Peer: peers.Peer{Name: weirGin, Wrap: wrapGinlimit, Frame: frameGin, Module: "github.com/gin-gonic/gin", About: "weir by ginlimit, less a gin with a middleware that does nothing"}},
	{Peer: peers.Peer{Name: weirEcho, Wrap: wrapEcholimit, Frame: peers.FrameEcho, Module: "github.com/labstack/echo/v4", About: "weir by echolimit, less an Echo with a middleware that does nothing"}},
}, all(peers.All))

// Those that goals and tables speak of.
const (
	bare           = "bare"
	weir           = "weir"
	weirLegacy     = "weir-legacy"
	weirLean       = "weir-lean"
	weirBan        = "weir-ban"
	weirThreeRules = "weir-3-rules"
	weirGin        = "weir-gin"
	weirEcho       = "weir-echo"
)

func all(of []peers.Peer) (list []contestant) {
	for _, p := range of {
		list = append(list, contestant{Peer: p})
	}
	return list
}

func named(name string) (contestant, bool) {
	for _, e := range contestants {
		if e.Name == name {
			return e, true
		}
	}
	return contestant{}, false
}

// isPeer reports whether a contestant is another library.
func isPeer(name string) bool {
	return slices.ContainsFunc(peers.All, func(p peers.Peer) bool { return p.Name == name })
}

func wrapNothing(_ peers.Quota, next http.Handler) (http.Handler, error) { return next, nil }
