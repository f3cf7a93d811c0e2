// Command playground makes playground.html of its sources: the page's parts, which are in
// page, and package limiter, which engine is compiled to WebAssembly with. It writes
// to the current folder, or to the path that is given.
//
//	go run ./internal/playground
package main

import (
	"fmt"
	"os"
)

func main() {
	path := "playground.html"
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
