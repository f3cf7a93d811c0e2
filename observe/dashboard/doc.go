// Package dashboard is a live page that shows what limiters do: the rules in force, the keys
// that they refuse, the bans, how the store is, and one client. From it an operator can give a
// client a fresh start, ban it, and lift a ban. The page says what a ban will do before it is done.
//
//	page, err := dashboard.New(dashboard.Options{Authorize: isOperator, Bans: list})
//	limits, err := middleware.New(middleware.Config{Observer: page, Bans: middleware.Bans{List: list}, ...})
//	page.Add(limits)
//	mux.Handle("/limits", page)
//
// It is one [http.Handler] for one path, of any router: the page, its live figures and its actions
// have the same address. The page needs nothing from elsewhere. An open page asks for the figures
// every two seconds, or every ten in the background. It keeps the last five minutes, whether it is
// open or not, of the process that serves it, and has no goroutine. Metrics (package promlimit)
// have all processes of a service.
//
// The page's address, # and the digest of a client as logs have it opens that client, and the rule
// that refuses it.
//
// It is closed to all requests unless [Options.Authorize] says otherwise. Actions, and looks at a
// client, have to come from the page itself ([http.CrossOriginProtection]) and are logged.
//
// With [Dashboard.FollowRules] it shows from where and when a rules file was loaded, what that
// changed, and why what is written now is refused.
//
// Keys are shown as digests unless [Options.ShowKeys] is set.
package dashboard
