package main

import (
	"fmt"
	"go/version"
	"runtime"
	"runtime/debug"
	"strings"

	"github.com/spf13/pflag"
)

func showVersion(s *session, _ *pflag.FlagSet) action {
	return func([]string) error {
		of := "unknown"
		if info, ok := debug.ReadBuildInfo(); ok {
			of = info.Main.Version // for a working copy, its revision and "+dirty" if it was changed
		}
		_, err := fmt.Fprintf(s.out, "weir %s, %s on %s/%s\n", of, runtime.Version(), runtime.GOOS, runtime.GOARCH)
		return err
	}
}

// lacksHTTP2Fix reports whether a release of Go lacks the fix of CVE-2026-97032, by which a client can crash
// an HTTP/2 server. It does not judge development versions.
func lacksHTTP2Fix(release string) bool {
	release, _, _ = strings.Cut(release, " ") // as in "go1.26.9 X:loopvar"
	if !version.IsValid(release) || strings.Contains(release, "devel") {
		return false
	}
	return version.Compare(release, "go1.26.9") < 0 || version.Lang(release) == "go1.27" && version.Compare(release, "go1.27.2") < 0
}
