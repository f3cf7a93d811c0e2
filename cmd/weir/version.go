package main

import (
	"cmp"
	"fmt"
	"runtime"
	"runtime/debug"

	"github.com/spf13/pflag"
)

// A build is what a binary was built of.
type build struct {
	Version  string `json:"version"`            // of the module; "(devel)": of a working copy
	Revision string `json:"revision,omitempty"` // of the version control
	Time     string `json:"time,omitempty"`     // of that revision
	Modified bool   `json:"modified,omitempty"` // the working copy had changes beside it
	Go       string `json:"go"`
	Platform string `json:"platform"`
}

func thisBuild() build {
	b := build{Version: "unknown", Go: runtime.Version(), Platform: runtime.GOOS + "/" + runtime.GOARCH}
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return b
	}
	b.Version = cmp.Or(info.Main.Version, b.Version)
	for _, setting := range info.Settings {
		switch setting.Key {
		case "vcs.revision":
			b.Revision = setting.Value
		case "vcs.time":
			b.Time = setting.Value
		case "vcs.modified":
			b.Modified = setting.Value == "true"
		}
	}
	return b
}

func version(s *session, flags *pflag.FlagSet) action {
	asJSON := flags.Bool("json", false, "write JSON")
	return func([]string) error {
		b := thisBuild()
		if *asJSON {
			return writeJSON(s.out, b)
		}
		fmt.Fprintf(s.out, "weir %s\n", b.Version)
		if b.Revision != "" {
			changes := ""
			if b.Modified {
				changes = ", with changes"
			}
			fmt.Fprintf(s.out, "revision %s of %s%s\n", b.Revision, b.Time, changes)
		}
		fmt.Fprintf(s.out, "%s on %s\n", b.Go, b.Platform)
		return nil
	}
}
