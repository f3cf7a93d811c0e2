// Command playground makes docs/playground.html of its sources: the page's parts, which are in
// page, and package limiter, which engine is compiled to WebAssembly with. Run it in the
// module's folder, or with the path to write to.
//
//	go run ./internal/playground
package main

import (
	"fmt"
	"os"
)

func main() {
	path := "docs/playground.html"
	if len(os.Args) > 1 {
		path = os.Args[1]
	}
	if err := write(path); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func write(path string) error {
	engine, err := build()
	if err != nil {
		return err
	}
	page, err := join(engine)
	if err != nil {
		return err
	}
	return os.WriteFile(path, page, 0o644)
}
