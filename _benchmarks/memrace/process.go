package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/weirgo/weir/benchmarks/race"
)

// Every contestant runs in a process of its own for each kind of case, so that no
// garbage collector looks at what belongs to another. The process is asked on its standard
// input and answers on its output, a line of JSON each.

type question struct {
	Contestant string
	Case       race.Case
	Slice      time.Duration
}

type answer struct {
	Figures race.Figures
	Error   string
}

// answerQuestions is the whole life of a contestant's process.
func answerQuestions(in io.Reader, out io.Writer) error {
	prepared := map[string]measurement{}
	questions, answers := json.NewDecoder(in), json.NewEncoder(out)
	for {
		var q question
		if err := questions.Decode(&q); errors.Is(err, io.EOF) {
			return nil
		} else if err != nil {
			return err
		}
		e, ok := named(q.Contestant)
		if !ok {
			return fmt.Errorf("there is no contestant %q", q.Contestant)
		}
		var a answer
		what := fmt.Sprint(q.Case.Name, q.Case.Keys)
		err := error(nil)
		if prepared[what] == nil {
			prepared[what], err = measurements[q.Case.Name](e, q.Case.Keys)
		}
		if m := prepared[what]; m != nil && err == nil {
			a.Figures, err = m(q.Case.Goroutines, q.Slice)
		}
		if err != nil {
			a.Error = err.Error()
		}
		if err := answers.Encode(a); err != nil {
			return err
		}
	}
}

// ask asks from outside. There are no figures where the contestant does not take part.
func ask(child *race.Child, q question) (race.Figures, error) {
	if err := child.Send(q); err != nil {
		return nil, err
	}
	var a answer
	if err := child.Receive(&a); err != nil {
		return nil, fmt.Errorf("its process gave no answer: %w", err)
	}
	if a.Error != "" {
		return nil, errors.New(a.Error)
	}
	return a.Figures, nil
}
