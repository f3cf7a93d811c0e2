package main

import (
	"fmt"
	"runtime"
	"runtime/debug"

	"github.com/spf13/pflag"
)

func version(s *session, _ *pflag.FlagSet) action {
	return func([]string) error {
		of := "unknown"
		if info, ok := debug.ReadBuildInfo(); ok {
			of = info.Main.Version // for a working copy, its revision and "+dirty" if it was changed
		}
		_, err := fmt.Fprintf(s.out, "weir %s, %s on %s/%s\n", of, runtime.Version(), runtime.GOOS, runtime.GOARCH)
		return err
	}
}
