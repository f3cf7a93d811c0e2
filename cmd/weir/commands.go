package main

import (
	"errors"
	"fmt"
	"math"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// A command is a subcommand of weir.
type command struct {
	group            string
	name, args, does string
	more             string   // sentences for its own help
	examples         []string // without "weir" and the name

	// declare declares the flags, and returns the action.
	declare func(*session, *pflag.FlagSet) action

	noFiles bool // the arguments are not files
}

// takes reports whether the command takes n arguments beside flags.
func (c *command) takes(n int) bool {
	least, most := 0, 0
	for word := range strings.FieldsSeq(c.args) {
		if strings.HasPrefix(word, "--") {
			break
		}
		if most++; word[0] != '[' {
			least++
		}
		if strings.HasSuffix(word, "...") {
			most = math.MaxInt
		}
	}
	return least <= n && n <= most
}

// An action runs a command with the arguments that are not flags.
type action func(args []string) error

// The groups of commands in the help, as docs/command.md has them.
const (
	beforeADeploy = "Before a deploy"
	withoutCode   = "Without Go code"
	rulesInRedis  = "Rules in Redis"
	whoIsLimited  = "Who is limited, and why"
)

func commands() []command {
	return []command{
		{
			group: beforeADeploy, name: "check", args: "FILE...", does: "reports everything that is wrong with rules files", declare: check,
			examples: []string{"weir.yaml", "--json weir.yaml", "--tiers free,premium weir.yaml", "- < weir.yaml"},
		}, {
			group: beforeADeploy, name: "explain", args: "FILE --path PATH", does: "shows which rules apply to a request, in what order, with which keys and limits", declare: explain,
			examples: []string{"weir.yaml --path /users/42", "weir.yaml --method POST --path /login --ip 203.0.113.7 --tier free"},
		}, {
			group: beforeADeploy, name: "diff", args: "OLD NEW", does: "shows what changes for which requests between two rules files, or between the rules in a Redis and a file", declare: diff,
			examples: []string{"weir.yaml new.yaml", "redis new.yaml", "--exit-code --json old.yaml new.yaml"},
		}, {
			group: beforeADeploy, name: "simulate", args: "FILE [NEW-FILE] LOG", does: "shows which requests of a log rules would have refused, or what new rules change", declare: simulateLog,
			examples: []string{"weir.yaml access.log", "weir.yaml new.yaml access.log"},
		}, {
			group: beforeADeploy, name: "test", args: "FILE...", does: "sends requests of test files to rules, at stated times, and compares what is decided", declare: testRules,
			examples: []string{"weir.test.yaml", "weir.test.yaml --verbose --run login", "*.test.yaml --rules new.yaml", "--init weir.yaml > weir.test.yaml"},
		}, {
			group: beforeADeploy, name: "recommend", args: "LOG", does: "shows what limit the clients in a log need, and which clients any limit would have refused", declare: recommend,
			examples: []string{"access.log --per 1m --spare 99.9%"},
		}, {
			group: withoutCode, name: "serve", args: "FILE", does: "limits requests by a rules file, as a gateway in front of services", declare: serve,
			more:     "Each flag is also an environment variable: --user-header is $WEIR_USER_HEADER. Commas separate several values.",
			examples: []string{"weir.yaml --proxy :8080=http://127.0.0.1:3000", "weir.yaml --proxy :8080=http://127.0.0.1:3000 --redis redis://127.0.0.1:6379 --admin 127.0.0.1:9090", "redis --redis redis://127.0.0.1:6379 --proxy :8080=http://127.0.0.1:3000"},
		}, {
			group: beforeADeploy, name: "schema", does: "writes the JSON Schema of rules files, for editors", declare: schema, noFiles: true,
			examples: []string{"> weir.schema.json"},
		}, {
			group: rulesInRedis, name: "publish", args: "FILE", does: "checks a rules file and writes it to the key in Redis that a fleet reads", declare: publish,
			examples: []string{"weir.yaml", "weir.yaml --if-version 3f9c0a71d2be", "weir.yaml --rules-key api:limits --strict"},
		}, {
			group: rulesInRedis, name: "rules", does: "prints the rules in a Redis, and their version on the standard error", declare: inForce, noFiles: true,
			examples: []string{"", "> weir.yaml"},
		}, {
			group: whoIsLimited, name: "top", does: "lists the keys in a Redis that have used most of their limit", declare: top, noFiles: true,
			examples: []string{"", "--rule 'POST /login' -n 50", "--names users.txt", "--json"},
		}, {
			group: whoIsLimited, name: "peek", args: "FILE --key KEY", does: "shows what a key has left of each rule, and uses nothing", declare: peek,
			examples: []string{"weir.yaml --key user:42", "weir.yaml --key 203.0.113.7 --rule 'POST /login'"},
		}, {
			group: whoIsLimited, name: "reset", args: "FILE --key KEY", does: "sets all counters of a key to zero", declare: reset,
			examples: []string{"weir.yaml --key user:42 --rule 'POST /login'"},
		}, {
			group: whoIsLimited, name: "ban", args: "KEY", does: "bans a key in all processes that share the list of bans", declare: ban, noFiles: true,
			examples: []string{"203.0.113.7 --for 1h", "user:42 --reason 'card testing' --by ann"},
		}, {
			group: whoIsLimited, name: "unban", args: "KEY", does: "lifts the ban of a key; exits with 1 if it was not banned", declare: unban, noFiles: true,
			examples: []string{"203.0.113.7", "EsoXtJryKJQ28wPgFmAwog"},
		}, {
			group: whoIsLimited, name: "bans", does: "lists the banned keys", declare: listBans, noFiles: true,
			examples: []string{"", "--names users.txt", "--json"},
		}, {
			name: "version", does: "prints the version and how it was built", declare: showVersion, noFiles: true,
			examples: []string{""},
		},
	}
}

// cobra returns the root command with all subcommands, for one run.
func (s *session) cobra() *cobra.Command {
	root := &cobra.Command{
		Use: "weir", Short: "Weir checks and explains rules, tries them on a log, and operates on counters and bans in a Redis.",
		Long: "Weir checks and explains rules, tries them on a log, and operates on counters and bans in a Redis.\n\n" +
			"In place of a rules file write - for the standard input; diff, peek and reset also take redis for the rules in Redis.\n" +
			"Exit codes: 0; 1 if the command failed or a file has problems; 2 for a mistake on the command line.",
		SilenceErrors: true, SilenceUsage: true,
	}
	root.SetIn(s.in)
	root.SetOut(s.out)
	root.SetErr(s.err)
	root.SetFlagErrorFunc(func(c *cobra.Command, err error) error {
		if missing := (*pflag.NotExistError)(nil); errors.As(err, &missing) {
			return usageError{fmt.Errorf("%w: %s --help lists the flags", withoutText(err), c.CommandPath())}
		}
		return usageError{withoutText(err)}
	})
	for _, group := range []string{beforeADeploy, withoutCode, rulesInRedis, whoIsLimited} {
		root.AddGroup(&cobra.Group{ID: group, Title: group + ":"})
	}
	for _, c := range commands() {
		made := &cobra.Command{Use: strings.TrimSpace(c.name + " " + c.args), Short: c.does, GroupID: c.group}
		if c.more != "" {
			made.Long = c.does + "\n\n" + c.more
		}
		for _, example := range c.examples {
			made.Example += strings.TrimRight("  weir "+c.name+" "+example, " ") + "\n"
		}
		made.Example = strings.TrimRight(made.Example, "\n")
		run := c.declare(s, made.Flags())
		made.RunE = func(_ *cobra.Command, args []string) error {
			if !c.takes(len(args)) {
				return usageError{fmt.Errorf("want: weir %s", made.Use)}
			}
			return run(args)
		}
		if c.noFiles {
			made.ValidArgsFunction = cobra.NoFileCompletions
		}
		root.AddCommand(made)
	}
	root.SetHelpCommand(&cobra.Command{
		Use: "help [COMMAND]", Short: "lists the commands, or explains one",
		RunE: func(_ *cobra.Command, args []string) error {
			named, _, err := root.Find(args)
			if err != nil {
				return usageError{err}
			}
			named.InitDefaultHelpFlag()
			return named.Help()
		},
	})
	return root
}

// withoutText removes the values of flags from an error: they may be credentials.
func withoutText(err error) error {
	var missing *pflag.NotExistError
	var invalid *pflag.InvalidValueError
	switch {
	case errors.As(err, &missing) && missing.GetSpecifiedShortnames() != "":
		return fmt.Errorf("there is no flag -%.1s", missing.GetSpecifiedName())
	case errors.As(err, &missing):
		return fmt.Errorf("there is no flag --%s", missing.GetSpecifiedName())
	case errors.As(err, &invalid):
		of := invalid.GetFlag()
		switch of.Value.Type() {
		case "bool", "int", "int64", "duration":
			return fmt.Errorf("--%s: want a value of type %s", of.Name, of.Value.Type())
		}
		return fmt.Errorf("--%s: %w", of.Name, errors.Unwrap(invalid))
	}
	return err
}
