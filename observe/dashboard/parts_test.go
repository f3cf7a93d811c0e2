package dashboard

import (
	"regexp"
	"testing"

	"github.com/stretchr/testify/assert"
)

// In one scope the second function of a name would silently take the place of the first.
func TestPartsOfTheScriptHaveNoNameInCommon(t *testing.T) {
	known := map[string]bool{}
	for _, name := range regexp.MustCompile(`(?m)^(?:(?:async )?function|const|let) (\w+)`).FindAllStringSubmatch(script, -1) {
		assert.False(t, known[name[1]], "there are two of %s", name[1])
		known[name[1]] = true
	}
	assert.NotEmpty(t, known)
}
