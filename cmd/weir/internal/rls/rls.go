// Package rls implements Envoy's rate limit service (RLS v3) with the descriptors of a rules file.
// Istio, Envoy Gateway and Contour use the same service.
package rls

import (
	"context"
	"errors"
	"log/slog"
	"math"
	"sync"
	"time"

	common "github.com/envoyproxy/go-control-plane/envoy/extensions/common/ratelimit/v3"
	pb "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/weirgo/weir/limiter"
)

// A Decider decides about requests.
type Decider struct {
	pb.UnimplementedRateLimitServiceServer
	store  limiter.Store
	table  func() *table // returns the table of the rules in force
	logger *slog.Logger
	warned sync.Once // of a request with too many counters
}

// An asked is a descriptor of a request, with its limit and decision.
type asked struct {
	limit  *limit // nil: the descriptor has no limit
	key    string
	hits   int64 // 0: a look
	refund bool

	refused  bool
	decision limiter.Decision // of the tightest quota
	found    bool             // decision is set
}

// ShouldRateLimit decides about all descriptors of a request together. If one is over its limit, none is
// charged. A descriptor without a limit is OK.
func (d *Decider) ShouldRateLimit(ctx context.Context, r *pb.RateLimitRequest) (*pb.RateLimitResponse, error) {
	if r.Domain == "" {
		return nil, status.Error(codes.InvalidArgument, "weir: the request has no domain")
	}
	if len(r.Descriptors) == 0 {
		return nil, status.Error(codes.InvalidArgument, "weir: the request has no descriptors")
	}
	table := d.table()
	if table == nil {
		return nil, status.Error(codes.Unavailable, "weir: there are no rules yet")
	}
	all := make([]asked, len(r.Descriptors))
	for i, descriptor := range r.Descriptors {
		hits, err := hitsOf(r, descriptor)
		if err != nil {
			return nil, err
		}
		all[i].hits, all[i].refund = hits, descriptor.IsNegativeHits
		if all[i].limit, all[i].key, err = table.find(r.Domain, descriptor); err != nil {
			return nil, status.Error(codes.InvalidArgument, "weir: "+err.Error())
		}
	}
	switch err := d.decide(ctx, all); {
	case errors.Is(err, limiter.ErrCharges): // Envoy admits a request after an error, and this one is not the store's
		d.warned.Do(func() {
			d.logger.Error("weir: a request with descriptors for too many counters is refused", slog.String("code", "weir-too-many-counters"),
				slog.String("domain", r.Domain), slog.Int("descriptors", len(all)), slog.Int("most", limiter.MaxCharges))
		})
		for i := range all {
			all[i].refused = true
		}
	case err != nil:
		return nil, status.Error(codes.Unavailable, "weir: the store could not decide: "+err.Error())
	}
	return respond(all, time.Now()), nil
}

// hitsOf returns the cost of a descriptor. A request's hits_addend of 0 means 1; a descriptor's hits_addend
// of 0 means a look.
func hitsOf(r *pb.RateLimitRequest, d *common.RateLimitDescriptor) (int64, error) {
	if d.HitsAddend == nil {
		return int64(max(1, r.HitsAddend)), nil
	}
	if d.HitsAddend.Value > math.MaxInt64 {
		return 0, status.Error(codes.InvalidArgument, "weir: hits_addend is above 2^63-1")
	}
	return int64(d.HitsAddend.Value), nil
}

// A share is a charge with its descriptors. Several descriptors may count on one key.
type share struct {
	limiter.Charge
	of []*asked
}

// decide sets the decisions. The store decides about all limits in one batch, which shadow limits do not refuse. For
// refunds, and for limits that are charged afterwards, it only looks.
func (d *Decider) decide(ctx context.Context, all []asked) error {
	shares := make([]share, 0, len(all))
	looks, charges := false, false
	for i := range all {
		a := &all[i]
		if a.limit == nil {
			continue
		}
		cost := a.hits
		if a.refund || a.limit.After {
			cost = 0
		}
		looks, charges = looks || a.isLook(), charges || cost > 0
		for _, q := range a.limit.quotas {
			shares = add(shares, limiter.Charge{Quota: q, Key: a.key, Cost: cost, Optional: a.limit.shadow}, a)
		}
	}
	if len(shares) == 0 {
		return nil
	}
	if looks && charges { // if a look finds no unit left, nothing must be charged
		if refused, err := d.ask(ctx, shares, true); refused || err != nil {
			return err
		}
		for i := range all {
			all[i].found = false
		}
	}
	if refused, err := d.ask(ctx, shares, !charges); refused || err != nil {
		return err
	}
	return d.settle(ctx, all)
}

// ask has the store decide about shares, or only look, and reports whether a limit that is not in shadow refuses.
func (d *Decider) ask(ctx context.Context, shares []share, look bool) (refused bool, err error) {
	charges := make([]limiter.Charge, len(shares))
	for i := range shares {
		charges[i] = shares[i].Charge
		if look {
			charges[i].Cost = 0
		}
	}
	if err := d.store.Decide(ctx, charges); err != nil {
		return false, err
	}
	for i := range shares {
		for _, a := range shares[i].of {
			a.note(&charges[i].Decision, look)
			refused = refused || a.refused && !a.limit.shadow
		}
	}
	return refused, nil
}

// add appends a charge, or adds it to the charge of the same quota and key.
func add(shares []share, c limiter.Charge, a *asked) []share {
	for i := range shares {
		if s := &shares[i]; s.Quota == c.Quota && s.Key == c.Key {
			s.Cost = sum(s.Cost, c.Cost)
			s.of = append(s.of, a)
			return shares
		}
	}
	return append(shares, share{c, []*asked{a}})
}

// sum returns a+b, or the largest int64.
func sum(a, b int64) int64 {
	if a > math.MaxInt64-b {
		return math.MaxInt64
	}
	return a + b
}

// isLook reports whether the descriptor only asks if a unit is left.
func (a *asked) isLook() bool { return a.hits == 0 }

// note adds a quota's decision. After a look, a descriptor that only asks is refused if no unit is left.
func (a *asked) note(d *limiter.Decision, look bool) {
	a.refused = a.refused || !d.Allowed || look && a.isLook() && d.Counted() && d.Remaining <= 0
	if !a.found || d.IsTighterThan(&a.decision) {
		a.decision, a.found = *d, true
	}
}

// settle refunds units, and charges what was used already, as a debt if no unit is left.
func (d *Decider) settle(ctx context.Context, all []asked) error {
	var shares []share
	for i := range all {
		a := &all[i]
		if a.limit == nil || a.hits == 0 || !a.refund && !a.limit.After {
			continue
		}
		for _, q := range a.limit.quotas {
			s := limiter.Charge{Quota: q, Key: a.key}
			if a.refund {
				s.Cost = a.hits
			}
			shares = add(shares, s, a)
		}
	}
	if len(shares) == 0 {
		return nil
	}
	settlements := make([]limiter.Settlement, len(shares))
	for i := range shares {
		settlements[i].Charge = shares[i].Charge
		for _, a := range shares[i].of {
			if !a.refund {
				settlements[i].Actual = sum(settlements[i].Actual, a.hits)
			}
		}
	}
	return d.store.Settle(ctx, settlements)
}

// respond returns the response to Envoy.
func respond(all []asked, now time.Time) *pb.RateLimitResponse {
	r := &pb.RateLimitResponse{OverallCode: pb.RateLimitResponse_OK, Statuses: make([]*pb.RateLimitResponse_DescriptorStatus, 0, len(all))}
	for i := range all {
		a := &all[i]
		s := &pb.RateLimitResponse_DescriptorStatus{Code: pb.RateLimitResponse_OK}
		if a.limit != nil && a.refused && !a.limit.shadow {
			s.Code, r.OverallCode = pb.RateLimitResponse_OVER_LIMIT, pb.RateLimitResponse_OVER_LIMIT
		}
		if a.found && a.decision.Counted() {
			s.CurrentLimit = a.limit.described
			s.LimitRemaining = uint32(min(max(0, a.decision.Remaining), math.MaxUint32))
			s.DurationUntilReset = durationpb.New(a.decision.ResetAfter)
		}
		r.Statuses = append(r.Statuses, s)
	}
	r.ResponseHeadersToAdd, r.RawBody = fieldsAndBody(all, r.OverallCode == pb.RateLimitResponse_OVER_LIMIT, now)
	return r
}

// seconds returns d in whole seconds, rounded up.
func seconds(d time.Duration) int64 { return int64((d + time.Second - 1) / time.Second) }
