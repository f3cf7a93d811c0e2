package main

import (
	"fmt"
	"go/version"
	"os"
	"path/filepath"
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
		_, err := fmt.Fprintf(s.out, "weir %s, %s on %s/%s, time zones of %s\n", of, runtime.Version(), runtime.GOOS, runtime.GOARCH, zoneData())
		return err
	}
}

// zoneData returns the source of time zones, where time.LoadLocation finds it, and its version.
func zoneData() string {
	for _, source := range []string{
		os.Getenv("ZONEINFO"), "/usr/share/zoneinfo", "/usr/share/lib/zoneinfo", "/usr/lib/locale/TZ", "/etc/zoneinfo",
	} {
		info, err := os.Stat(source)
		if err == nil && info.IsDir() {
			_, err = os.Stat(filepath.Join(source, "Europe", "Berlin"))
		}
		if err != nil {
			continue
		}
		release := "version unknown"
		for _, name := range []string{"tzdata.zi", "+VERSION"} { // "# version 2026f", and of macOS "2026f"
			if text, err := os.ReadFile(filepath.Join(source, name)); err == nil {
				line, _, _ := strings.Cut(string(text), "\n")
				release = strings.TrimSpace(strings.TrimPrefix(line, "# version "))
				break
			}
		}
		return fmt.Sprintf("%s (%s)", source, release)
	}
	return "the copy in this program, of " + runtime.Version()
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
