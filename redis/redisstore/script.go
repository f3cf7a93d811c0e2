package redisstore

import (
	_ "embed"
	"strings"

	"github.com/weirgo/weir/redis/internal/counters"
	"github.com/weirgo/weir/redis/internal/wire"
)

var (
	//go:embed decide.lua
	decideLua string

	//go:embed log.lua
	logLua string

	//go:embed plain.lua
	plainLua string

	//go:embed request.lua
	requestLua string

	//go:embed shape.lua
	shapeLua string

	//go:embed slots.lua
	slotsLua string

	//go:embed state.lua
	stateLua string

	//go:embed struct.lua
	structLua string

	//go:embed write.lua
	writeLua string
)

// scriptLua decides about rates. It is one script for all algorithms.
var scriptLua = structLua + logLua + counters.Lua + writeLua + strings.Replace(stateLua, "--[[shape.lua]]", shapeLua, 1) +
	requestLua + strings.Replace(decideLua, "--[[plain.lua]]", plainLua, 1)

var (
	script      = wire.NewScript(scriptLua)
	slotsScript = wire.NewScript(structLua + slotsLua)
)
