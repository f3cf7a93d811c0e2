package main

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"strings"
)

// A command is what the first argument names. Help, completions and the manual are made of
// this table and of the flags that commands declare.
type command struct {
	name, args, does string
	examples         []string // without "weir" and the name
	run              func(*session, []string) error

	words func() []string // what its arguments can be; nil: files
}

func commands() []command {
	return []command{
		{
			name: "check", args: "FILE...", does: "tells everything that is wrong with rules files", run: check,
			examples: []string{"limits.yaml", "--json limits.yaml", "--tiers free,premium limits.yaml", "- < limits.yaml"},
		}, {
			name: "explain", args: "FILE --path PATH", does: "tells which rules apply to a request, in what order, with which keys and limits", run: explain,
			examples: []string{"limits.yaml --path /users/42", "limits.yaml --method POST --path /login --ip 203.0.113.7 --tier free"},
		}, {
			name: "diff", args: "OLD NEW", does: "tells what changes for which requests between two rules files, or the rules in a Redis and a file", run: diff,
			examples: []string{"limits.yaml new.yaml", "redis new.yaml", "--exit-code --json old.yaml new.yaml"},
		}, {
			name: "simulate", args: "FILE [NEW-FILE] LOG", does: "tells what rules would have refused of the requests in a log, or what new rules change", run: simulateLog,
			examples: []string{"limits.yaml access.log", "limits.yaml new.yaml access.log --report week.html"},
		}, {
			name: "recommend", args: "LOG", does: "tells what limit the clients in a log need, and what any limit would have refused", run: recommend,
			examples: []string{"access.log --per 1m --spare 99.9%"},
		}, {
			name: "schema", does: "writes the JSON Schema of rules files, for editors", run: schema, words: none,
			examples: []string{"> limits.schema.json"},
		}, {
			name: "publish", args: "FILE", does: "checks a rules file and writes it to the key in Redis that a fleet has its rules from", run: publish,
			examples: []string{"limits.yaml", "limits.yaml --if-version 3f9c0a71d2be", "limits.yaml --rules-key api:limits --strict"},
		}, {
			name: "rules", does: "lists the rules in force, of a service or in a Redis", run: inForce, words: none,
			examples: []string{"", "--service https://api.internal/debug/limits --header-file admin.txt", "--text > limits.yaml"},
		}, {
			name: "top", does: "lists the keys in a Redis that have used most of their limit", run: top, words: none,
			examples: []string{"", "--watch", "--rule 'POST /login' -n 50", "--names users.txt", "--watch --json --interval 10s"},
		}, {
			name: "peek", args: "FILE --key KEY", does: "tells what a key has left of each rule, and takes nothing", run: peek,
			examples: []string{"limits.yaml --key user:42", "limits.yaml --key 203.0.113.7 --rule 'POST /login'"},
		}, {
			name: "reset", args: "FILE --key KEY", does: "makes a key as if its rules had never seen it", run: reset,
			examples: []string{"limits.yaml --key user:42 --rule 'POST /login'"},
		}, {
			name: "ban", args: "KEY", does: "locks a key out of all processes that share the list of bans", run: ban, words: none,
			examples: []string{"203.0.113.7 --for 1h", "user:42 --reason 'card testing' --by ann"},
		}, {
			name: "unban", args: "KEY", does: "lets a banned key in again; exits with 1 if it was not banned", run: unban, words: none,
			examples: []string{"203.0.113.7", "EsoXtJryKJQ28wPgFmAwog"},
		}, {
			name: "bans", does: "lists the keys that are banned", run: listBans, words: none,
			examples: []string{"", "--names users.txt", "--json"},
		}, {
			name: "completion", args: "SHELL", does: "writes the completion of bash, zsh or fish", run: completion, words: func() []string { return shells },
			examples: []string{"bash > /etc/bash_completion.d/weir", `zsh > "${fpath[1]}/_weir"`, "fish > ~/.config/fish/completions/weir.fish"},
		}, {
			name: "version", does: "tells the version, and what it was built of", run: version, words: none,
			examples: []string{"", "--json"},
		}, {
			name: "help", args: "[COMMAND]", does: "lists the commands, or tells of one", run: help, words: commandNames,
			examples: []string{"top"},
		},
	}
}

func none() []string { return nil }

func commandNames() (names []string) {
	for _, c := range commands() {
		names = append(names, c.name)
	}
	return names
}

// flags are what a command declares.
func (c *command) flags() (declared *flag.FlagSet) {
	s := &session{in: strings.NewReader(""), out: io.Discard, err: io.Discard, declared: func(flags *flag.FlagSet) { declared = flags }}
	_ = c.run(s, nil) // which ends where it would read its arguments
	return declared
}

func help(s *session, args []string) error {
	names, err := s.parse(flag.NewFlagSet("help", flag.ContinueOnError), args)
	switch {
	case err != nil:
		return err
	case len(names) == 0:
		s.overview(s.out)
		return nil
	case len(names) > 1:
		return usageError{errors.New("name one command")}
	}
	c, err := commandNamed(names[0])
	if err != nil {
		return err
	}
	c.help(s.out, c.flags())
	return nil
}

// overview lists the commands.
func (s *session) overview(to io.Writer) {
	fmt.Fprintln(to, "usage: weir COMMAND, which is one of")
	for _, c := range commands() {
		fmt.Fprintf(to, "  %-28s %s\n", strings.TrimSpace(c.name+" "+c.args), c.does)
	}
	fmt.Fprintln(to, "weir help COMMAND tells of one, with examples and its flags.")
	fmt.Fprintln(to, "exits with 0; 1 if that failed or a file has problems; 2 for a mistake on the command line.")
}

// help tells of a command.
func (c *command) help(to io.Writer, flags *flag.FlagSet) {
	line := "usage: weir " + c.name
	if hasFlags(flags) {
		line += " [FLAGS]"
	}
	fmt.Fprintf(to, "%s\n\nIt %s.\n", strings.TrimSpace(line+" "+c.args), c.does)
	if len(c.examples) > 0 {
		fmt.Fprintln(to, "\nexamples:")
	}
	for _, example := range c.examples {
		fmt.Fprintf(to, "  %s\n", strings.TrimSpace("weir "+c.name+" "+example))
	}
	if hasFlags(flags) {
		fmt.Fprintln(to, "\nflags:")
	}
	flags.VisitAll(func(f *flag.Flag) {
		value, says := flag.UnquoteUsage(f)
		fmt.Fprintf(to, "  %s\n        %s", strings.TrimSpace(dashed(f.Name)+" "+value), says)
		if f.DefValue != "" && f.DefValue != "false" && f.DefValue != "0" && f.DefValue != "0s" {
			fmt.Fprintf(to, " (default %s)", f.DefValue)
		}
		fmt.Fprintln(to)
	})
}

func hasFlags(flags *flag.FlagSet) (has bool) {
	flags.VisitAll(func(*flag.Flag) { has = true })
	return has
}

// dashed is how a flag is written: -n, --rule.
func dashed(name string) string {
	if len(name) == 1 {
		return "-" + name
	}
	return "--" + name
}
