package dashboard

import "time"

// Age makes a page one that has been there for so long, for tests on the real clock.
func (d *Dashboard) Age(by time.Duration) { d.start = d.start.Add(-by) }
