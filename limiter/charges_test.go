package limiter_test

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/weirgo/weir/limiter"
)

func charge(q *limiter.Quota, key string, cost int64) limiter.Charge {
	return limiter.Charge{Quota: q, Key: key, Cost: cost}
}

func TestCheckChargesNamesTheChargeThatMakesNoSense(t *testing.T) {
	q := mustQuota(t, limiter.PerSecond(10))
	gold, err := limiter.NewQuota("rule", "gold", limiter.PerSecond(10))
	require.NoError(t, err)
	good := charge(q, "key", 1)
	again := mustQuota(t, limiter.PerHour(5))
	long := make([]limiter.Charge, 0, limiter.MaxCharges+1)
	for i := range limiter.MaxCharges + 1 {
		long = append(long, charge(q, fmt.Sprint(i), 1))
	}
	for _, tt := range []struct {
		name    string
		charges []limiter.Charge
		want    string
	}{
		{"none", nil, ""},
		{"one", []limiter.Charge{good}, ""},
		{"a look", []limiter.Charge{charge(q, "key", 0)}, ""},
		{"as many as fit", long[:limiter.MaxCharges], ""},
		{"two keys", []limiter.Charge{good, charge(q, "", 1)}, ""},
		{"two tiers", []limiter.Charge{good, charge(gold, "key", 1)}, ""},
		{"too many", long, "there are 65, at most 64 fit in a batch"},
		{"no quota", []limiter.Charge{good, charge(nil, "key", 1)}, "charge 1 has no quota"},
		{"a quota that NewQuota did not make", []limiter.Charge{good, charge(&limiter.Quota{}, "key", 1)}, "charge 1 has no quota"},
		{"a negative cost", []limiter.Charge{good, charge(gold, "key", -1)}, `charge 1, of rule "rule", has cost -1`},
		{"twice", []limiter.Charge{good, charge(gold, "key", 1), good}, `charges 0 and 2 are both for one key of rule "rule"`},
		{"twice, through two quotas", []limiter.Charge{good, charge(again, "key", 1)}, "charges 0 and 1"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			err := limiter.CheckCharges(tt.charges)
			if tt.want == "" {
				require.NoError(t, err)
				return
			}
			require.ErrorIs(t, err, limiter.ErrCharges)
			assert.ErrorContains(t, err, tt.want)
		})
	}
}

func TestASettlementThatMakesNoSenseIsAMistake(t *testing.T) {
	m, err := limiter.NewMemory(limiter.MemoryOptions{})
	require.NoError(t, err)
	q := mustQuota(t, limiter.PerHour(100))
	good, other := charge(q, "key", 1), charge(q, "other", 0)
	require.NoError(t, limiter.CheckSettlements([]limiter.Settlement{{Charge: good}, {Charge: other, Actual: 5}}))
	for _, bad := range []limiter.Settlement{{}, {Charge: good}, {Charge: other, Actual: -1}} {
		require.ErrorIs(t, limiter.CheckSettlements([]limiter.Settlement{{Charge: good}, bad}), limiter.ErrCharges)
	}
	require.ErrorIs(t, m.Settle(t.Context(), []limiter.Settlement{{Charge: good, Actual: -1}}), limiter.ErrCharges)
}
