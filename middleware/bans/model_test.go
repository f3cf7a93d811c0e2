package bans_test

import (
	"cmp"
	"fmt"
	"maps"
	"testing"
	"testing/synctest"
	"time"

	"pgregory.net/rapid"

	"github.com/weirgo/weir/middleware/bans"
)

// A model is a list of bans in plain words, with times since its beginning.
type model struct {
	max  int
	now  time.Duration
	bans map[string]modelBan
}

type modelBan struct {
	until, remember time.Duration
	isEndless       bool
	byHand          bool
	times           int
}

func (m *model) inForce(b modelBan) bool { return b.isEndless || m.now < b.until }

// rank is which of two bans gives way first, as a number and, of equal ones, a time: those that are
// over, those by escalation, those by hand.
func (m *model) rank(b modelBan) (class int, due time.Duration) {
	switch {
	case !m.inForce(b):
		return 0, b.until + b.remember
	case !b.byHand:
		return 1, b.until
	}
	return 2, b.until
}

func (m *model) pass(d time.Duration) {
	m.now += d
	maps.DeleteFunc(m.bans, func(_ string, b modelBan) bool { return !m.inForce(b) && m.now >= b.until+b.remember })
}

// put reports whether there is room for a ban.
func (m *model) put(key string, b modelBan) bool {
	if _, ok := m.bans[key]; !ok && len(m.bans) == m.max {
		most, _ := m.rank(b)
		first := ""
		for other, o := range m.bans {
			class, due := m.rank(o)
			firstClass, firstDue := m.rank(m.bans[first])
			if class <= most && !o.isEndless && (first == "" || cmp.Or(cmp.Compare(class, firstClass), cmp.Compare(due, firstDue)) < 0) {
				first = other
			}
		}
		if first == "" {
			return false
		}
		delete(m.bans, first)
	}
	m.bans[key] = b
	return true
}

// An action on a list. Durations differ, so that no two bans end together.
type action struct {
	what, key string
	d         time.Duration
}

func TestMemoryIsWhatAModelOfItSays(t *testing.T) {
	keys := []string{"a", "b", "c", "d", "e"}
	rapid.Check(t, func(rt *rapid.T) {
		m := &model{max: rapid.IntRange(1, 4).Draw(rt, "MaxBans"), bans: map[string]modelBan{}}
		var actions []action
		for i := range rapid.IntRange(1, 40).Draw(rt, "actions") {
			actions = append(actions, action{
				rapid.SampledFrom([]string{"ban", "ban for ever", "escalate", "escalate", "unban", "pass"}).Draw(rt, "what"),
				rapid.SampledFrom(keys).Draw(rt, "key"),
				time.Duration(rapid.IntRange(1, 10).Draw(rt, "hours"))*time.Hour + time.Duration(i)*time.Second,
			})
		}
		wrong := ""
		synctest.Test(t, func(t *testing.T) {
			list := newMemory(t, bans.Options{MaxBans: m.max})
			for i := 0; i < len(actions) && wrong == ""; i++ {
				wrong = m.compare(t, list, actions[i], keys)
			}
		})
		if wrong != "" {
			rt.Fatal(wrong)
		}
	})
}

// compare does an action to the model and to the list, and returns how they differ.
func (m *model) compare(t *testing.T, list *bans.Memory, a action, keys []string) string {
	old, known := m.bans[a.key]
	var err error
	hasRoom := true
	switch a.what {
	case "pass":
		m.pass(a.d)
		time.Sleep(a.d)
	case "ban", "ban for ever":
		b := modelBan{until: m.now + a.d, byHand: true, times: old.times, remember: old.remember}
		if a.what != "ban" {
			b.isEndless, a.d = true, 0
		}
		hasRoom = m.put(a.key, b)
		err = list.Ban(t.Context(), a.key, a.d)
	case "escalate":
		e := bans.Escalation{Ban: a.d, Factor: 2, Max: 30 * time.Hour}
		if !known || !m.inForce(old) {
			hasRoom = m.put(a.key, modelBan{until: m.now + e.Duration(old.times+1), remember: e.Max, times: old.times + 1})
		}
		_, err = list.Escalate(t.Context(), a.key, "rule", e)
	default:
		delete(m.bans, a.key)
		lifted, _ := list.Unban(t.Context(), a.key)
		if lifted != (known && m.inForce(old)) {
			return fmt.Sprintf("%+v: lifted %t, of %+v at %v", a, lifted, old, m.now)
		}
	}
	if hasRoom != (err == nil) {
		return fmt.Sprintf("%+v: %v, with %+v at %v", a, err, m.bans, m.now)
	}
	inForce := 0
	for _, key := range keys {
		b, ok := m.bans[key]
		ok = ok && m.inForce(b)
		got, found := list.Find(key)
		until := time.Duration(0)
		if found && !got.Until.IsZero() {
			until = time.Until(got.Until) + m.now
		}
		if found != ok || ok && (got.Times != b.times || (got.Rule == "") != b.byHand || got.Until.IsZero() != b.isEndless || !b.isEndless && until != b.until) {
			return fmt.Sprintf("after %+v: %s is %+v, until %v, want %+v at %v", a, key, got, until, b, m.now)
		}
		if ok {
			inForce++
		}
	}
	all, _ := list.All(t.Context())
	if len(all) != inForce || list.Count() != inForce || list.Empty() != (inForce == 0) {
		return fmt.Sprintf("after %+v: %d are listed, %d counted, empty %t, want %d", a, len(all), list.Count(), list.Empty(), inForce)
	}
	for i := 1; i < len(all); i++ {
		if before, after := all[i-1].Until, all[i].Until; before.IsZero() && !after.IsZero() || !after.IsZero() && after.Before(before) {
			return fmt.Sprintf("%v is listed before %v", before, after)
		}
	}
	return ""
}
