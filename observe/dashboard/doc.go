// Package dashboard is a live page that shows what limiters do: the rules in force, the keys
// that they refuse, the bans, how the store is, what one client did. From it an operator can
// give a client a fresh start, ban it, and lift a ban; what a ban will do is said before.
//
// The digest of a client, as logs have it, is its address: that of the page, # and the digest.
//
//	page, err := dashboard.New(dashboard.Options{Authorize: isOperator, Bans: list})
//	limits, err := middleware.New(middleware.Config{Observer: page, Bans: list, ...})
//	page.Add(limits)
//	mux.Handle("/limits", page)
//
// It is one [http.Handler] for one path, of any router: the page, its live figures and what
// is done from it have the same address. The page needs nothing from elsewhere and keeps the
// last five minutes whether it is open or not. It shows the process that
// serves it, and has no goroutine. Of all processes of a service, metrics tell (package promlimit).
//
// So many pages are live at once as [Options.MaxStreams] says; one more takes the place of the
// oldest. Viewers that may act keep their place before viewers that may only look, so where
// all may look, strangers do not shut an operator out.
//
// It is closed to all requests unless [Options.Authorize] says otherwise. Requests that change
// something have to come from the page itself ([http.CrossOriginProtection]) and are logged.
//
// With [Dashboard.FollowRules] it shows what became of a rules file: from where and when it was
// loaded, what that changed, and why what is written now is refused.
//
// Keys are shown as digests unless [Options.ShowKeys] is set.
package dashboard
