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
			of = info.Main.Version // of a working copy, the revision and whether it was changed
		}
		_, err := fmt.Fprintf(s.out, "weir %s, %s on %s/%s\n", of, runtime.Version(), runtime.GOOS, runtime.GOARCH)
		return err
	}
}
