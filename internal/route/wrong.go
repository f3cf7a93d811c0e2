package route

import "net/http"

// WrongMatch says what is wrong with the patterns of match, if that is what middleware.Route
// returned. Of any other function it says nothing, and does not call it. Package middleware sets it:
// without that there is no such function.
var WrongMatch = func(match func(*http.Request) bool) error { return nil }
