package document

import "fmt"

// More than this is refused. It is far above what people write.
const (
	MaxBytes  = 1 << 20
	maxDepth  = 32      // collections in each other, aliases followed
	maxValues = 200_000 // aliases followed
)

func tooDeep() string { return fmt.Sprintf("nested more than %d deep", maxDepth) }
