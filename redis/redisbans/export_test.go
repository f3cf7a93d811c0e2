package redisbans

import "time"

// Patient returns o with more patience with Redis.
func (o Options) Patient(d time.Duration) Options {
	o.patience = d
	return o
}
