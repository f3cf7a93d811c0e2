package document

type kind string

const (
	text    kind = "text"
	number  kind = "a number"
	boolean kind = "true or false"
	null    kind = "null"
	list    kind = "a list"
	mapping kind = "a mapping"
)

func (k kind) scalar() bool { return k == text || k == number || k == boolean }

// A node is a value of a document, be it YAML or JSON. Nodes that are aliased are shared.
type node struct {
	Position
	kind    kind
	text    string  // of a scalar: as it is written, without quotes
	items   []*node // of a list
	entries []entry // of a mapping, in the order of the document, duplicates too

	first map[string]int // of entries, by key

	values int // it and all below it, what is aliased as often as it is
	height int // collections in each other; 0 for a scalar
}

// An entry is a value in a mapping, with its key.
type entry struct {
	key   string
	at    Position // of the key
	value *node
}

// where is where to point at for what an entry is, or lacks.
func (e entry) where() Position {
	if e.at != (Position{}) {
		return e.at
	}
	return e.value.Position
}

// A builder makes nodes within the limits.
type builder struct {
	problems problems
	refused  bool // a limit was passed; what was built is of no use
}

// refuse notes a problem after which reading on makes no sense, once.
func (b *builder) refuse(at Position, format string, args ...any) {
	if !b.refused {
		b.problems.add(at, nil, format, args...)
	}
	b.refused = true
}

// add puts e into parent, a list or a mapping, and accounts for it.
func (b *builder) add(parent *node, e entry) {
	if parent.kind == list {
		parent.items = append(parent.items, e.value)
	} else {
		if parent.first == nil {
			parent.first = map[string]int{}
		}
		if _, twice := parent.first[e.key]; !twice {
			parent.first[e.key] = len(parent.entries)
		}
		parent.entries = append(parent.entries, e)
	}
	parent.values += e.value.values
	parent.height = max(parent.height, e.value.height+1)
	if parent.values > maxValues {
		b.refuse(e.value.Position, "more than %d values, counting those of an alias wherever it stands", maxValues)
	}
	if parent.height > maxDepth {
		b.refuse(e.value.Position, "%s", tooDeep())
	}
}
