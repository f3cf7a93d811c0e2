package main

import (
	"bytes"
	"compress/gzip"
	"encoding/base64"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
)

const enginePackage = "github.com/weirgo/weir/internal/playground/engine"

// build compiles the engine.
func build() (engine, error) {
	dir, err := os.MkdirTemp("", "weir-playground-*")
	if err != nil {
		return engine{}, err
	}
	defer func() { _ = os.RemoveAll(dir) }()
	path := filepath.Join(dir, "engine.wasm")
	if err := goTool("build", "-buildmode=c-shared", "-trimpath", "-buildvcs=false", "-ldflags=-s -w -buildid=", "-o", path, enginePackage); err != nil {
		return engine{}, err
	}
	code, err := os.ReadFile(path)
	if err != nil {
		return engine{}, err
	}
	var packed bytes.Buffer
	w, err := gzip.NewWriterLevel(&packed, gzip.BestCompression)
	if err != nil {
		return engine{}, err
	}
	if _, err := w.Write(code); err != nil {
		return engine{}, err
	}
	if err := w.Close(); err != nil {
		return engine{}, err
	}
	return engine{lines(base64.StdEncoding.EncodeToString(packed.Bytes())), runtime.Version()}, nil
}

// goTool runs the go command for the engine's platform.
func goTool(args ...string) error {
	var complaints bytes.Buffer
	cmd := exec.Command("go", args...)
	cmd.Env = append(os.Environ(), "GOOS=wasip1", "GOARCH=wasm", "GOWASM=", "GOFLAGS=", "GOEXPERIMENT=", "CGO_ENABLED=0")
	cmd.Stderr = &complaints
	if err := cmd.Run(); err != nil {
		return fmt.Errorf("go %s: %w\n%s", strings.Join(args, " "), err, complaints.Bytes())
	}
	return nil
}
