#!/usr/bin/env bash
# httprate refuses a client that comes back when X-RateLimit-Reset says.
#
# Seen on 29 November 2026 with github.com/go-chi/httprate 0.16.1 and Go 1.26.8: LimitByIP(10, time.Minute),
# ten requests at 00:00, the eleventh refused. X-RateLimit-Reset is the end of the minute, and at its end the request
# is refused: the counter slides, and the minute before still counts in full. Retry-After is the whole
# window, whenever the refusal comes: 60 at 00:00 and at 00:50 alike, though a request fits from 01:06 on.
set -euo pipefail
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
cd "$dir"
export GOWORK=off GOFLAGS=-mod=mod
go mod init finding 2>/dev/null
go get github.com/go-chi/httprate@v0.16.1 2>/dev/null
cat > finding_test.go <<'GO'
package finding

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"strconv"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-chi/httprate"
)

func TestReset(t *testing.T) {
	synctest.Test(t, func(t *testing.T) { // whose clock begins at a full minute
		limited := httprate.LimitByIP(10, time.Minute)(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
		ask := func() {
			w := httptest.NewRecorder()
			limited.ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/", nil))
			reset, _ := strconv.ParseInt(w.Header().Get("X-RateLimit-Reset"), 10, 64)
			fmt.Println("seen:", time.Now().UTC().Format("04:05"), w.Code, "reset", time.Unix(reset, 0).UTC().Format("04:05"), "retry after", w.Header().Get("Retry-After"))
		}
		for range 10 {
			limited.ServeHTTP(httptest.NewRecorder(), httptest.NewRequest(http.MethodGet, "/", nil))
		}
		ask()
		time.Sleep(50 * time.Second)
		ask()
		time.Sleep(10 * time.Second)
		ask()
		time.Sleep(7 * time.Second)
		ask()
	})
}
GO
go test -v . | sed -n 's/^seen: //p' > seen
diff - seen <<'SEEN'
00:00 429 reset 01:00 retry after 60
00:50 429 reset 01:00 retry after 60
01:00 429 reset 02:00 retry after 60
01:07 200 reset 02:00 retry after 
SEEN
echo "as found"
