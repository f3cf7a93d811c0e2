package source

import "time"

const (
	// quiet is how long after the last event a change counts as complete. Editors and
	// os.WriteFile truncate first and write then.
	quiet = 100 * time.Millisecond

	// unrest is how long a file that is written all the time is waited for.
	unrest = time.Second
)

// A settler gathers events that come close together.
type settler struct {
	timer *time.Timer
	since time.Time // the first event that is not yet told of; zero: there is none
}

func newSettler() *settler {
	s := &settler{timer: time.NewTimer(unrest)}
	s.timer.Stop()
	return s
}

// event puts off what settled says, though never for longer than unrest in all.
func (s *settler) event() {
	now := time.Now()
	if s.since.IsZero() {
		s.since = now
	}
	s.timer.Reset(min(quiet, s.since.Add(unrest).Sub(now)))
}

// settled receives when events have come to an end. Whoever receives calls rest.
func (s *settler) settled() <-chan time.Time { return s.timer.C }

func (s *settler) rest() {
	s.timer.Stop()
	s.since = time.Time{}
}
