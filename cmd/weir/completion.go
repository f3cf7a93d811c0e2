package main

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"slices"
	"strings"
)

var shells = []string{"bash", "zsh", "fish"}

func completion(s *session, args []string) error {
	rest, err := s.parse(flag.NewFlagSet("completion", flag.ContinueOnError), args)
	if err != nil {
		return err
	}
	if len(rest) != 1 || !slices.Contains(shells, rest[0]) {
		return usageError{errors.New("name a shell: bash, zsh or fish")}
	}
	write := map[string]func(io.Writer){"bash": bashCompletion, "zsh": zshCompletion, "fish": fishCompletion}[rest[0]]
	write(s.out)
	return nil
}

// A completedFlag is a flag as completions have it.
type completedFlag struct {
	name, says string
	takes      string // what its value is; empty: it has none
}

func (c *command) completedFlags() (list []completedFlag) {
	c.flags().VisitAll(func(f *flag.Flag) {
		takes, says := flag.UnquoteUsage(f)
		list = append(list, completedFlag{f.Name, inShort(says), takes})
	})
	return list
}

// inShort is the beginning of a sentence, up to where it goes into detail.
func inShort(says string) string {
	for _, end := range []string{"; ", ": ", ", such as", ", as in", ". "} {
		says, _, _ = strings.Cut(says, end)
	}
	return says
}

func bashCompletion(to io.Writer) {
	fmt.Fprintf(to, `# Completion of weir for bash: source <(weir completion bash)
_weir() {
  local word=${COMP_WORDS[COMP_CWORD]} before=${COMP_WORDS[COMP_CWORD-1]} flags='' takes='' words=''
  COMPREPLY=()
  if ((COMP_CWORD == 1)); then
    COMPREPLY=($(compgen -W '%s' -- "$word"))
    return
  fi
  case ${COMP_WORDS[1]} in
`, strings.Join(commandNames(), " "))
	for _, c := range commands() {
		var flags, takes, words []string
		for _, f := range c.completedFlags() {
			flags = append(flags, dashed(f.name))
			if f.takes != "" {
				takes = append(takes, dashed(f.name))
			}
		}
		if c.words != nil {
			words = c.words()
		}
		fmt.Fprintf(to, "  %s) flags='%s' takes=' %s ' words='%s' ;;\n", c.name, strings.Join(flags, " "), strings.Join(takes, " "), strings.Join(words, " "))
	}
	fmt.Fprint(to, `  esac
  if [[ $takes == *" $before "* || $before == = ]]; then
    return # what -o default completes: names of files
  elif [[ $word == -* ]]; then
    COMPREPLY=($(compgen -W "$flags --help" -- "$word"))
  else
    COMPREPLY=($(compgen -W "$words" -- "$word"))
  fi
}
complete -o default -F _weir weir
`)
}

// zshQuoted is text within '…[…]' of _arguments.
func zshQuoted(text string) string {
	return strings.NewReplacer(`\`, `\\`, `[`, `\[`, `]`, `\]`, `:`, `\:`, `'`, `'\''`).Replace(text)
}

func zshCompletion(to io.Writer) {
	fmt.Fprint(to, "#compdef weir\n# Completion of weir for zsh: source <(weir completion zsh), or a file _weir in $fpath.\n_weir() {\n  local -a commands\n")
	fmt.Fprintln(to, "  if (( CURRENT == 2 )); then\n    commands=(")
	for _, c := range commands() {
		fmt.Fprintf(to, "      '%s:%s'\n", c.name, zshQuoted(c.does))
	}
	fmt.Fprint(to, "    )\n    _describe command commands\n    return\n  fi\n  shift words\n  (( CURRENT-- ))\n  case $words[1] in\n")
	for _, c := range commands() {
		fmt.Fprintf(to, "  %s)\n    _arguments", c.name)
		for _, f := range c.completedFlags() {
			value := ""
			switch {
			case f.takes == "file":
				value = ":file:_files"
			case f.takes != "":
				value = ":" + zshQuoted(f.takes) + ": "
			}
			fmt.Fprintf(to, " \\\n      '%s[%s]%s'", dashed(f.name), zshQuoted(f.says), value)
		}
		rest := "*:file:_files"
		if c.words != nil {
			rest = "*:argument:(" + strings.Join(c.words(), " ") + ")"
		}
		fmt.Fprintf(to, " \\\n      '%s'\n    ;;\n", rest)
	}
	fmt.Fprint(to, "  esac\n}\nif [[ $funcstack[1] == _weir ]]; then\n  _weir\nelse\n  compdef _weir weir\nfi\n")
}

func fishQuoted(text string) string {
	return "'" + strings.NewReplacer(`\`, `\\`, `'`, `\'`).Replace(text) + "'"
}

func fishCompletion(to io.Writer) {
	fmt.Fprint(to, "# Completion of weir for fish: weir completion fish | source\ncomplete -c weir -f\n")
	for _, c := range commands() {
		fmt.Fprintf(to, "complete -c weir -n __fish_use_subcommand -a %s -d %s\n", c.name, fishQuoted(c.does))
	}
	for _, c := range commands() {
		when := "-n " + fishQuoted("__fish_seen_subcommand_from "+c.name)
		for _, f := range c.completedFlags() {
			name, value := "-l "+f.name, ""
			if len(f.name) == 1 {
				name = "-s " + f.name
			}
			switch {
			case f.takes == "file":
				value = " -r -F"
			case f.takes != "":
				value = " -x"
			}
			fmt.Fprintf(to, "complete -c weir %s %s%s -d %s\n", when, name, value, fishQuoted(f.says))
		}
		switch {
		case c.words == nil:
			fmt.Fprintf(to, "complete -c weir %s -F\n", when)
		case len(c.words()) > 0:
			fmt.Fprintf(to, "complete -c weir %s -a %s\n", when, fishQuoted(strings.Join(c.words(), " ")))
		}
	}
}
