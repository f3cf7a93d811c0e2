package simulate

import (
	"context"
	"strings"
	"time"

	"github.com/weirgo/weir/keyfunc"
	"github.com/weirgo/weir/middleware/bans"
)

// Bans is a list of bans with a simulation's clock, for the Config of the rules. Only rules ban. It has no
// cap. Only one goroutine may use it.
type Bans struct {
	bans.List
	clock Clock
	keys  map[string]*ban
}

// A ban is a key's ban by escalation.
type ban struct {
	rule     string
	until    int64
	times    int
	remember int64 // the time after until in which a repetition counts
}

// NewBans returns an empty list.
func NewBans() *Bans { return &Bans{keys: map[string]*ban{}} }

// Now is the simulation's time, by which networks in a rules file are banned or allowed.
func (l *Bans) Now() time.Time { return time.UnixMicro(l.clock.now) }

// Find implements bans.List.
func (l *Bans) Find(key string) (bans.Ban, bool) {
	key, _ = keyfunc.Classify(key)
	b := l.keys[key]
	if b == nil || l.clock.now >= b.until {
		return bans.Ban{}, false
	}
	return b.shown(key), true
}

func (b *ban) shown(key string) bans.Ban {
	return bans.Ban{Key: key, Rule: b.rule, Until: time.UnixMicro(b.until), Times: b.times}
}

// Empty implements bans.List.
func (l *Bans) Empty() bool { return len(l.keys) == 0 }

// Escalate implements bans.List.
func (l *Bans) Escalate(_ context.Context, key, rule string, e bans.Escalation) (bans.Ban, error) {
	if err := bans.CheckEscalation(rule, e); err != nil {
		return bans.Ban{}, err
	}
	key, _ = keyfunc.Classify(key)
	now := l.clock.now
	times, b := 1, l.keys[key]
	if b != nil && now < b.until {
		return b.shown(key), nil
	}
	if b != nil && now < b.until+b.remember {
		times = b.times + 1
	}
	b = &ban{rule: rule, until: now + e.Duration(times).Microseconds(), times: times, remember: e.WithDefaults().Max.Microseconds()}
	l.keys[strings.Clone(key)] = b
	return b.shown(key), nil
}
