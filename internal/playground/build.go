package main

import (
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"go/scanner"
	"go/token"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
)

const enginePackage = "github.com/weirgo/weir/internal/playground/engine"

// build compiles the engine. With one Go version, it is the same bytes everywhere.
func build() (engine, error) {
	dir, err := os.MkdirTemp("", "weir-playground-*")
	if err != nil {
		return engine{}, err
	}
	defer func() { _ = os.RemoveAll(dir) }()
	path := filepath.Join(dir, "engine.wasm")
	if _, err := goTool("build", "-buildmode=c-shared", "-trimpath", "-buildvcs=false", "-ldflags=-s -w -buildid=", "-o", path, enginePackage); err != nil {
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
	sources, err := digestOfSources()
	return engine{lines(base64.StdEncoding.EncodeToString(packed.Bytes())), runtime.Version(), sources}, err
}

// goTool runs the go command for the engine's platform.
func goTool(args ...string) ([]byte, error) {
	var out, complaints bytes.Buffer
	cmd := exec.Command("go", args...)
	cmd.Env = append(os.Environ(), "GOOS=wasip1", "GOARCH=wasm", "GOWASM=", "GOFLAGS=", "GOEXPERIMENT=", "CGO_ENABLED=0")
	cmd.Stdout, cmd.Stderr = &out, &complaints
	if err := cmd.Run(); err != nil {
		return nil, fmt.Errorf("go %s: %w\n%s", strings.Join(args, " "), err, complaints.Bytes())
	}
	return out.Bytes(), nil
}

// digestOfSources is a digest of the code that the engine is made of, beside Go itself: of its
// words, so that a comment changes nothing, and neither does how gofmt lays it out.
func digestOfSources() (string, error) {
	out, err := goTool("list", "-deps", "-json=ImportPath,Dir,Standard,GoFiles,EmbedFiles", enginePackage)
	if err != nil {
		return "", err
	}
	sum := sha256.New()
	for decoder := json.NewDecoder(bytes.NewReader(out)); ; {
		var p struct {
			ImportPath, Dir     string
			Standard            bool
			GoFiles, EmbedFiles []string
		}
		if err := decoder.Decode(&p); errors.Is(err, io.EOF) {
			return hex.EncodeToString(sum.Sum(nil)), nil
		} else if err != nil {
			return "", err
		}
		if p.Standard {
			continue
		}
		for _, name := range slices.Concat(p.GoFiles, p.EmbedFiles) {
			text, err := os.ReadFile(filepath.Join(p.Dir, filepath.FromSlash(name)))
			if err != nil {
				return "", err
			}
			fmt.Fprintf(sum, "%s/%s\n", p.ImportPath, name)
			if slices.Contains(p.GoFiles, name) {
				writeWords(sum, text)
			} else {
				_, _ = sum.Write(text)
			}
		}
	}
}

func writeWords(w io.Writer, text []byte) {
	var s scanner.Scanner
	files := token.NewFileSet()
	s.Init(files.AddFile("", files.Base(), len(text)), text, nil, 0)
	for {
		_, word, literal := s.Scan()
		if word == token.EOF {
			return
		}
		fmt.Fprintf(w, "%v %s\n", word, literal)
	}
}
