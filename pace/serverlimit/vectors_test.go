package serverlimit_test

import (
	"bufio"
	_ "embed"
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weirgo/weir/pace/serverlimit"
)

// vectors has the vectors, as the file describes.
//
//go:embed vectors.txt
var vectors string

func TestResponsesOfProvidersAreReadAsTheyAreMeant(t *testing.T) {
	t.Parallel()
	for _, text := range strings.Split(vectors, "\n== ")[1:] {
		name, text, _ := strings.Cut(text, "\n")
		source := ""
		if strings.HasPrefix(text, "source: ") {
			source, text, _ = strings.Cut(text, "\n")
		}
		response, want, ok := strings.Cut(text, "\n=> ")
		require.True(t, ok, name)
		want, _, _ = strings.Cut(want, "\n")
		head, body, hasBody := strings.Cut(response, "\n\n")
		status, fields, _ := strings.Cut(head, "\n")
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			said := serverlimit.Read(parse(t, status, fields))
			if hasBody {
				said = serverlimit.ReadWithBody(parse(t, status, fields), []byte(body))
			}
			require.Equal(t, want, tell(said), source)
		})
	}
}

// parse has net/http read a response of such a head.
func parse(t testing.TB, status, fields string) *http.Response {
	t.Helper()
	var head strings.Builder
	head.WriteString("HTTP/1.1 " + status + "\r\n")
	for line := range strings.Lines(fields) {
		if line = strings.TrimSpace(line); line != "" {
			head.WriteString(line + "\r\n")
		}
	}
	r, err := http.ReadResponse(bufio.NewReader(strings.NewReader(head.String()+"\r\n")), nil)
	require.NoError(t, err)
	return r
}

// tell writes a reading on a line.
func tell(said serverlimit.Reading) string {
	s := "served"
	if said.Limited {
		s = "limited"
	}
	if said.Wait != 0 || said.Unsure != 0 {
		s += fmt.Sprintf(", wait %v ±%v", said.Wait, said.Unsure)
	}
	s += []string{"", ", retry", ", do not retry"}[said.Retry]
	if said.BodyTells {
		s += ", the body tells"
	}
	if said.Quota != (serverlimit.Quota{Limit: serverlimit.Unsaid, Remaining: serverlimit.Unsaid}) {
		for _, q := range append([]serverlimit.Quota{said.Quota}, said.Others...) {
			s += " | " + tellQuota(q)
		}
	}
	return s
}

func tellQuota(q serverlimit.Quota) string {
	count := func(n int64) string {
		if n == serverlimit.Unsaid {
			return "?"
		}
		return fmt.Sprint(n)
	}
	s := q.Name
	if s == "" {
		s = "-"
	}
	s += " " + count(q.Remaining) + "/" + count(q.Limit)
	if q.Reset != 0 || q.Unsure != 0 {
		s += fmt.Sprintf(" in %v ±%v", q.Reset, q.Unsure)
	}
	if q.Window != 0 {
		s += fmt.Sprintf(" per %v", q.Window)
	}
	if q.Unit != "" {
		s += " of " + q.Unit
	}
	return s
}
