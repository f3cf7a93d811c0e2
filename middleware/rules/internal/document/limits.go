package document

import "fmt"

// More than this is refused before it costs much. It is far above what people write.
const (
	maxBytes    = 1 << 20
	maxDepth    = 32      // collections in each other, aliases followed
	maxValues   = 200_000 // aliases followed
	maxProblems = 100
)

// More than this the YAML parser would take too long for: it needs the square of the first
// five, and the memory of the last. JSON has a parser of its own, and no such limits.
const (
	maxLine       = 4096 // characters
	maxTabs       = 100  // in a line
	maxEmptyLines = 100  // in a row
	maxKeys       = 10_000
	maxEmpty      = 1_000    // keys and elements without a value
	maxPaths      = 64 << 20 // bytes, in the paths of all values
)

func tooDeep() string { return fmt.Sprintf("nested more than %d deep", maxDepth) }
