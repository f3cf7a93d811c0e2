package limiter

import (
	"context"
	"errors"
	"time"
)

// What a [Store] may implement besides. [As] finds these methods through wrappers, except
// for Bounded's.

// A Wrapper is a store around another one. What the inner store says of itself, in the
// methods below, is then true of the wrapper too, where the wrapper does not say otherwise.
type Wrapper interface {
	// Unwrap returns the inner store, or nil.
	Unwrap() Store
}

// A Claimer knows which rules are counted in it.
type Claimer interface {
	// Claim notes that a limiter counts under rule. A second one of this process under the
	// same name gets an error that wraps [ErrClaimed], which [New] and the middleware's New
	// warn about. Any other error says that the store cannot be used.
	Claim(rule string) error
}

// ErrClaimed is what Claim returns for a name that is taken.
var ErrClaimed = errors.New("limiter: another limiter counts under this name in this store")

// A Checker cannot count for every quota.
type Checker interface {
	// Check returns why the store cannot count for q, or nil. [New] and the middleware's New
	// fail with that error.
	Check(q *Quota) error
}

// A Bounded store ends its calls by itself. Package failover gives the calls to other
// stores a context with a deadline.
type Bounded interface {
	// Within returns the same store; its calls fail when the server has given no answer
	// for that time. A store with outage policies of its own returns itself without them.
	// It is not looked for in what a store wraps, as that would leave the wrapper out.
	Within(deadline time.Duration) Store
}

// A Partitioned store has its counters on several servers, which fail independently.
type Partitioned interface {
	// Part is the number of the server that holds c's counter, from 0 to 63.
	Part(c *Charge) int
}

// A Writer can find out whether its servers accept writes. A refused decision writes
// nothing, so it does not tell.
type Writer interface {
	// TryWrite writes something that does not last to the servers of these charges.
	TryWrite(ctx context.Context, charges []Charge) error
}

// A Settler does not make its callers wait while it settles.
type Settler interface {
	// Settle has the charges corrected later, together with the next decision on a key if one
	// comes first, so that a caller's next request meets what came back. What waits is
	// bounded: beyond that, Settle returns when it is done. Its error is what it already knows,
	// such as [ErrCharges]. The end of ctx does not end what waits.
	Settle(ctx context.Context, settlements []Settlement) error
}

// A Placer can count events that are under way ([NewConcurrency]): a place is free again when
// its event ends, and also when the process that took it has died.
type Placer interface {
	// Places returns why the store cannot do so for q, or nil.
	Places(q *Quota) error
}

// A Diagnoser knows its servers by name.
type Diagnoser interface {
	// Diagnose names the server of that number ([Partitioned]), and returns err, which a
	// call to it failed with, together with what more can be found out: whether the server
	// can be reached, if it gave no answer. It may take a second. With a nil err it only
	// names the server.
	Diagnose(part int, err error) (server string, _ error)
}

// A Kind says what holds the counters, for metrics.
type Kind interface {
	// Kind is one lower-case word, such as "redis".
	Kind() string
}

// A Batcher sends several decisions to its server together.
type Batcher interface {
	// Batches returns how many batches were sent, and how many decisions were taken without
	// the server, as refusals that are remembered.
	Batches() (sent, remembered uint64)
}

// A MemoryReporter has its counters in this process, as [Memory] has.
type MemoryReporter interface {
	Stats() MemoryStats
}

// What an error of a store, or one that it wraps, may say of itself. errors.As finds it.
type (
	// An AnsweredError tells an error that a server answered with (true) from a server that
	// gave no answer. Logs say which it was.
	AnsweredError interface {
		error
		Answered() bool
	}

	// An UnusableError says, if true, that the server cannot do what the store needs,
	// however often it is asked: a wrong configuration and no outage.
	UnusableError interface {
		error
		Unusable() bool
	}

	// A KeyError says, if true, that one charge's key is what could not be decided on. The
	// policy of its rule decides, and the server is not taken to be down.
	KeyError interface {
		error
		OfOneKey() bool
	}

	// A PartsError is the set of servers ([Partitioned]) that failed, as bits, bit 0 for the
	// first. Without it all that were asked are taken to have failed.
	PartsError interface {
		error
		Parts() uint64
	}
)

// mostWrappers ends the search where a store unwraps to itself.
const mostWrappers = 16

// As finds the first store that is a T: s, or the store that it wraps ([Wrapper]), and so on.
//
//	if c, ok := limiter.As[limiter.Claimer](store); ok {
//		err := c.Claim("mail")
//	}
func As[T any](s Store) (found T, ok bool) {
	for range mostWrappers {
		if found, ok = s.(T); ok {
			return found, true
		}
		w, isWrapper := s.(Wrapper)
		if !isWrapper {
			break
		}
		s = w.Unwrap()
	}
	return found, false
}
