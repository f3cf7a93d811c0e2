package redisstore

import (
	_ "embed"

	"github.com/weirgo/weir/redis/internal/counters"
	"github.com/weirgo/weir/redis/internal/wire"
)

var (
	//go:embed struct.lua
	structLua string

	//go:embed slots.lua
	slotsLua string

	//go:embed decide.lua
	decideLua string
)

// scriptLua decides about rates. It is one script for all algorithms.
var scriptLua = structLua + counters.Lua + decideLua

var (
	script      = wire.NewScript(scriptLua)
	slotsScript = wire.NewScript(structLua + slotsLua)
)
