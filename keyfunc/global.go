package keyfunc

import "net/http"

var globalMarked = Shared.Mark(globalKey)

// Global is one key for all requests, "global". Its error is always nil.
func Global(*http.Request) (string, error) { return globalMarked, nil }
