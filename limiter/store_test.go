package limiter

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestCheckChargesNamesTheChargeThatMakesNoSense(t *testing.T) {
	q := mustQuota(t, PerSecond(10))
	gold, err := NewQuota("rule", "gold", PerSecond(10))
	require.NoError(t, err)
	good := Charge{Quota: q, Key: "key", Cost: 1}
	long := make([]Charge, 0, MaxCharges+1)
	for i := range MaxCharges + 1 {
		long = append(long, Charge{Quota: q, Key: fmt.Sprint(i), Cost: 1})
	}
	for _, tt := range []struct {
		name    string
		charges []Charge
		want    string
	}{
		{"none", nil, ""},
		{"one", []Charge{good}, ""},
		{"a look", []Charge{{Quota: q, Key: "key", Cost: 0}}, ""},
		{"as many as fit", long[:MaxCharges], ""},
		{"two keys", []Charge{good, {Quota: q, Key: "", Cost: 1}}, ""},
		{"two tiers", []Charge{good, {Quota: gold, Key: "key", Cost: 1}}, ""},
		{"too many", long, "there are 65, at most 64 fit in a batch"},
		{"no quota", []Charge{good, {Quota: nil, Key: "key", Cost: 1}}, "charge 1 has no quota"},
		{"a quota that NewQuota did not make", []Charge{good, {Quota: &Quota{}, Key: "key", Cost: 1}}, "charge 1 has no quota"},
		{"a negative cost", []Charge{good, {Quota: gold, Key: "key", Cost: -1}}, `charge 1, of rule "rule", has cost -1`},
		{"twice", []Charge{good, {Quota: gold, Key: "key", Cost: 1}, good}, `charges 0 and 2 are both for one key of rule "rule"`},
		{"twice, through two quotas", []Charge{good, {Quota: mustQuota(t, PerHour(5)), Key: "key", Cost: 1}}, "charges 0 and 1"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			err := CheckCharges(tt.charges)
			if tt.want == "" {
				require.NoError(t, err)
				return
			}
			require.ErrorIs(t, err, ErrCharges)
			assert.ErrorContains(t, err, tt.want)
		})
	}
}

func TestASettlementThatMakesNoSenseIsAMistake(t *testing.T) {
	m, err := NewMemory(MemoryOptions{})
	require.NoError(t, err)
	good := Charge{Quota: mustQuota(t, PerHour(100)), Key: "key", Cost: 1}
	require.NoError(t, CheckSettlements([]Settlement{{Charge: good}, {Charge: Charge{Quota: good.Quota, Key: "other"}, Actual: 5}}))
	for _, bad := range []Settlement{{}, {Charge: good}, {Charge: Charge{Quota: good.Quota, Key: "other"}, Actual: -1}} {
		require.ErrorIs(t, CheckSettlements([]Settlement{{Charge: good}, bad}), ErrCharges)
	}
	require.ErrorIs(t, m.Settle(t.Context(), []Settlement{{Charge: good, Actual: -1}}), ErrCharges)
}
