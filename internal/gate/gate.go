// Package gate is how a rules file bans networks: middleware.Config has no field for requests that
// are refused by their address alone, whatever keys they have.
package gate

import "net/http"

// Deny has a *middleware.Config refuse the requests that match, before anything else and beside
// those that it refuses already. Package middleware sets it.
var Deny func(config any, match func(*http.Request) bool)
