package mcplimit_test

import (
	"testing"

	"github.com/weirgo/weir/internal/leak"
)

func TestMain(m *testing.M) { leak.VerifyMain(m) }
