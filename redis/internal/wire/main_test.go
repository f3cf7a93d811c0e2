package wire

import (
	"testing"

	"github.com/weirgo/weir/internal/redistest"
)

func TestMain(m *testing.M) { redistest.Main(m) }
