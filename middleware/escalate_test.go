package middleware_test

import (
	"github.com/weirgo/weir/middleware"
	"time"
)

// strict bans for a minute who is refused three times in ten.
var strict = middleware.Escalation{After: 3, Within: 10 * time.Minute, Ban: time.Minute, Factor: 2, Max: 3 * time.Minute}
