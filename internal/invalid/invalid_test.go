package invalid_test

import (
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/weirgo/weir/internal/invalid"
)

func TestTextHasFieldsByNameAndNoPackages(t *testing.T) {
	per := invalid.Field("limiter", "Per", "is %q", "limiter: Per is 1s")
	joined := errors.Join(per, io.EOF, invalid.Field("bans", "Escalate.Ban", "is 1"))
	around := invalid.New("middleware", "%s: %w", `"limiter: Per"`, joined)
	foreign := fmt.Errorf("--limit: %w", around)

	for err, want := range map[error]string{
		per:                              `per is "limiter: Per is 1s"`,
		joined:                           `per is "limiter: Per is 1s"; EOF; escalate.ban is 1`,
		around:                           `"limiter: Per": per is "limiter: Per is 1s"; EOF; escalate.ban is 1`,
		foreign:                          `--limit: "limiter: Per": per is "limiter: Per is 1s"; EOF; escalate.ban is 1`,
		errors.New("limiter: Per is 1s"): "limiter: Per is 1s", // the text of another's error
	} {
		assert.Equal(t, want, invalid.Text(err, strings.ToLower), err.Error())
	}
	assert.EqualError(t, per, `limiter: Per is "limiter: Per is 1s"`)
	assert.Equal(t, `Per is "limiter: Per is 1s"`, invalid.Text(per, nil))
	assert.ErrorIs(t, foreign, io.EOF)
}

func TestAnErrorHasThePlaceOfTheValue(t *testing.T) {
	rule := invalid.Place{Rule: `Rules[0] "api"`}
	ban := invalid.Field("bans", "Ban", "is 0s")
	err := invalid.Within("middleware", rule.Of("Escalate"), errors.Join(ban, io.EOF))
	free := rule
	free.Tier = "free"
	all := invalid.All(errors.Join(err, invalid.At("middleware", free, "needs counts"), nil))

	var texts, reasons, fields []string
	for _, err := range all {
		var e *invalid.Error
		assert.ErrorAs(t, err, &e)
		assert.Equal(t, rule.Rule, e.Rule)
		texts, reasons, fields = append(texts, err.Error()), append(reasons, e.Reason(nil)), append(fields, e.Field)
	}
	assert.Equal(t, []string{
		`middleware: Rules[0] "api": Escalate.Ban is 0s`, `middleware: Rules[0] "api": Escalate: EOF`,
		`middleware: Rules[0] "api" tier "free": needs counts`,
	}, texts)
	assert.Equal(t, []string{"is 0s", "EOF", "needs counts"}, reasons)
	assert.Equal(t, []string{"Escalate.Ban", "Escalate", ""}, fields)
	assert.ErrorIs(t, err, io.EOF)
	assert.EqualError(t, ban, "bans: Ban is 0s")
	assert.NoError(t, invalid.Within("middleware", rule, nil))
	assert.Empty(t, invalid.All(nil))
}
