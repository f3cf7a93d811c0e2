package invalid_test

import (
	"errors"
	"fmt"
	"io"
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/weirgo/weir/internal/invalid"
)

func TestOnlyNamesAreSaidInOtherWords(t *testing.T) {
	words := map[invalid.Name]string{"Per": "window", "Events": "requests"}
	per := invalid.New("limiter", "%s is %q: it is not as many as %s", invalid.Name("Per"), "Per is Events", invalid.Name("Events"))
	around := invalid.New("middleware", "%s: %w", `"limiter: Per is"`, errors.Join(per, io.EOF, invalid.New("bans", "%s is 1", invalid.Name("Ban"))))

	assert.EqualError(t, per, `limiter: Per is "Per is Events": it is not as many as Events`)
	assert.Equal(t, `window is "Per is Events": it is not as many as requests`, invalid.In(words, per))
	assert.Equal(t, `"limiter: Per is": window is "Per is Events": it is not as many as requests; EOF; Ban is 1`, invalid.In(words, around))
	assert.ErrorIs(t, around, io.EOF)
	assert.Equal(t, "limiter: Per is", invalid.In(words, fmt.Errorf("limiter: Per is")), "an error of others is theirs")
}

func TestAnErrorHasThePlaceOfTheValue(t *testing.T) {
	words := map[invalid.Name]string{"Ban": "ban", "Counts": "counts"}
	rule := invalid.Place{Rule: `Rules[0] "api"`}
	ban := invalid.Field("bans", "Ban", "is 0s")
	err := invalid.Within("middleware", rule.Of("Escalate"), errors.Join(ban, io.EOF))
	free := rule
	free.Tier = "free"
	all := invalid.All(errors.Join(err, invalid.At("middleware", free, "needs %s", invalid.Name("Counts")), nil))

	var texts, reasons []string
	var fields []invalid.Name
	for _, err := range all {
		var e *invalid.Error
		assert.ErrorAs(t, err, &e)
		assert.Equal(t, rule.Rule, e.Rule)
		texts, reasons, fields = append(texts, err.Error()), append(reasons, e.Reason(words)), append(fields, e.Field)
	}
	assert.Equal(t, []string{
		`middleware: Rules[0] "api": Escalate.Ban is 0s`, `middleware: Rules[0] "api": Escalate: EOF`,
		`middleware: Rules[0] "api" tier "free": needs Counts`,
	}, texts)
	assert.Equal(t, []string{"is 0s", "EOF", "needs counts"}, reasons)
	assert.Equal(t, []invalid.Name{"Escalate.Ban", "Escalate", ""}, fields)
	assert.ErrorIs(t, err, io.EOF)
	assert.EqualError(t, ban, "bans: Ban is 0s")
	assert.Equal(t, "ban is 0s", invalid.In(words, ban))
	assert.NoError(t, invalid.Within("middleware", rule, nil))
	assert.Empty(t, invalid.All(nil))
}
