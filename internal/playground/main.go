// Command playground builds playground.html from the files in page and from engine, which is package
// limiter compiled to WebAssembly. It writes to the current folder, or to the given path.
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
