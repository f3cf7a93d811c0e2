package main

import (
	"errors"
	"fmt"
	"slices"

	"github.com/spf13/pflag"

	"github.com/weirgo/weir/cmd/weir/internal/rls"
)

func importRules(s *session, _ *pflag.FlagSet) action {
	return func(files []string) error {
		var sources []rls.Source
		for i, file := range files {
			if file == "-" && slices.Contains(files[:i], "-") {
				return usageError{errors.New("the standard input is one file")}
			}
			text, err := s.read(file)
			if err != nil {
				return err
			}
			sources = append(sources, rls.Source{Name: file, Text: text})
		}
		imported, err := rls.Import(sources)
		if err != nil {
			return err
		}
		for _, text := range slices.Concat(imported.Lost, imported.Notes) {
			fmt.Fprintf(s.err, "not kept: %s\n", text)
		}
		if _, err := s.out.Write(imported.Text); err != nil {
			return err
		}
		if len(imported.Lost) > 0 {
			return errBad
		}
		return nil
	}
}
