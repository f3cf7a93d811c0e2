package failover

import (
	"context"
	"errors"
	"net"
)

// A kind of failure decides how it is told, and on nothing else.
type kind uint8

const (
	unknown  kind = iota
	silence       // the server gave no answer
	answer        // it answered with an error
	unusable      // it answered that it cannot do what the store needs
)

// kindOf is what err says of itself, in the way that New's comment describes, or what the
// network's errors are known to mean.
func kindOf(err error) kind {
	var wrong interface{ Unusable() bool }
	if errors.As(err, &wrong) && wrong.Unusable() {
		return unusable
	}
	var said interface{ Answered() bool }
	if errors.As(err, &said) {
		if said.Answered() {
			return answer
		}
		return silence
	}
	var network *net.OpError
	if errors.Is(err, context.DeadlineExceeded) || errors.As(err, &network) {
		return silence
	}
	return unknown
}

// verb is what a server does that fails like this.
func (k kind) verb() string {
	switch k {
	case silence:
		return "gives no answer"
	case answer, unusable:
		return "answers with an error"
	default:
		return "fails"
	}
}
