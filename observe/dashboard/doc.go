// Package dashboard serves a live page that shows what limiters do: the rules in force, the keys that
// they refuse, the bans, the state of the store, and the limits of a single client. On the page an
// operator can reset a client's counters, ban it, and lift a ban. The page shows what a ban will do
// before the operator confirms it.
//
//	page, err := dashboard.New(dashboard.Options{Authorize: isOperator, Bans: list})
//	limits, err := middleware.New(middleware.Config{Observer: page, Bans: middleware.Bans{List: list}, ...})
//	page.Add(limits)
//	mux.Handle("/limits", page)
//
// A Dashboard is one [http.Handler] for one path of any router: the page, its figures and its actions
// have the same address. The page loads nothing from other sites. An open page fetches the figures
// every two seconds, or every ten in the background. The figures cover the last five minutes of the
// process that serves the page, also while no page is open. There is no goroutine. For all processes of
// a service use metrics (package promlimit).
//
// To open a client and the rule that refuses it, append # and the client's digest, as logs have it, to
// the page's address.
//
// The page refuses all requests unless [Options.Authorize] accepts them. Actions, and looking up a
// client, must come from the page itself ([http.CrossOriginProtection]) and are logged.
//
// With [Dashboard.FollowRules] the headline says if the rules as they are written now are refused, and why.
//
// Keys are shown as digests unless [Options.ShowKeys] is set.
package dashboard
