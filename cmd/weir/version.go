package main

import (
	"cmp"
	"fmt"
	"runtime"
	"runtime/debug"

	"github.com/spf13/pflag"
)

func version(s *session, _ *pflag.FlagSet) action {
	return func([]string) error {
		of, at := "unknown", ""
		if info, ok := debug.ReadBuildInfo(); ok {
			of = cmp.Or(info.Main.Version, of) // "(devel)": of a working copy
			for _, setting := range info.Settings {
				switch {
				case setting.Key == "vcs.revision":
					at = ", revision " + setting.Value
				case setting.Key == "vcs.modified" && setting.Value == "true":
					at += " with changes"
				}
			}
		}
		_, err := fmt.Fprintf(s.out, "weir %s%s, %s on %s/%s\n", of, at, runtime.Version(), runtime.GOOS, runtime.GOARCH)
		return err
	}
}
