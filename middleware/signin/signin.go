// Package signin limits guesses of passwords, and never locks an owner out of a device that has signed in before.
//
// A limit on each account alone lets anybody lock its owner out, and a limit on each address alone stops no botnet. So a
// success sets a cookie, which makes the device known. Guesses from known devices and those of strangers are counted
// apart:
//
//	who                                              failures
//	a stranger on one account, from one network      5 in 15 minutes; a success from there clears them
//	all strangers together, on one account           20 an hour and 100 a day
//	strangers from one network                       100 different accounts an hour
//	a known device of an account, from any network   10 in 15 minutes
//
// A request is charged when it comes, so guesses in parallel are counted. [SignIn.Succeeded] refunds it. A handler that
// forgets to call it limits too much, never too little.
//
//	s, err := signin.New(signin.Options{
//		Account: keyfunc.FormField("account", 4096),
//		Epoch:   passwordChangedAt,
//		Secrets: [][]byte{secret},
//	})
//	limits, err := middleware.New(middleware.Config{ByRoute: map[string][]middleware.Rule{"POST /login": s.Rules()}})
//
//	func login(w http.ResponseWriter, r *http.Request) {
//		if !passwordIsRight(r.FormValue("account"), r.FormValue("password")) {
//			// show the form again
//			return
//		}
//		if err := s.Succeeded(w, r); err != nil {
//			slog.Error("sign-in", "error", err)
//		}
//		http.Redirect(w, r, "/", http.StatusSeeOther)
//	}
//
// While strangers guess, the owner cannot sign in on a new device either. Offer a code by mail, and call
// [SignIn.Remember] when it comes back: docs/recipes.md has the steps.
//
// Whether an account exists changes neither a decision nor its time: Weir counts any name, and calls Epoch only for a
// device that has signed in to the account. Your handler must take the same time for a name that does not exist. A
// stranger sees in the RateLimit fields how many guesses strangers have left on an account.
package signin

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"time"

	"golang.org/x/text/unicode/norm"

	"github.com/weirgo/weir/internal/invalid"
	"github.com/weirgo/weir/keyfunc"
	"github.com/weirgo/weir/limiter"
	"github.com/weirgo/weir/middleware"
)

// Options are the parameters of [New].
type Options struct {
	// Account reads the account that a request tries, such as keyfunc.FormField("account", 4096). A Func of
	// your own returns "user:" and the account. A request without an account is answered 400. It is
	// required.
	Account keyfunc.Func

	// Normalize makes one text of all spellings of an account. It must map two names to one text if and
	// only if your application takes them for one account: who owns one of two accounts with one text is
	// known to both, and an account with two names has twice the guesses. Nil: lower case, Unicode NFC,
	// without blanks at both ends.
	Normalize func(account string) string

	// Network reads the network of a request. Behind a proxy it must name the proxy, as in
	// keyfunc.IP(keyfunc.TrustProxies("10.0.0.0/8")), or all clients are one network. Nil: keyfunc.IP().
	Network keyfunc.Func

	// Secrets sign the cookies. The first signs new cookies, and each of them is good for a cookie that
	// was signed before. To change the secret, put the new one in front, on all processes, and remove the
	// old one after 400 days: devices that have not signed in since become strangers. Each has at least
	// 32 bytes, at random. At least one is required.
	Secrets [][]byte

	// Epoch returns a text that changes whenever the password of the account does, such as the time of
	// the change. A cookie from before the change is then worthless, so call Remember on the device where
	// the owner changes it. Account is normalized. Succeeded and Remember call Epoch once. A request from a
	// device with a cookie of the account calls it three times, and other requests never. If it returns an
	// error, the device counts as a stranger. Nil: cookies outlive the password, so who knew the old one
	// can guess the new one with every cookie of that time.
	Epoch func(ctx context.Context, account string) (string, error)

	// Name begins the names of the rules and follows "__Host-" in the cookie's, if an application has
	// several sign-ins. It has letters, digits, - and _. Empty: signin.
	Name string
}

// A SignIn limits sign-ins. Its methods may be called from many goroutines.
type SignIn struct {
	options Options
	seals   seals

	network, device, account, accounts string // names of the rules
}

const minSecret = 32

// New returns a SignIn, or all that is wrong with the options.
func New(o Options) (*SignIn, error) {
	var errs []error
	reject := func(wrong bool, field, reason string, args ...any) {
		if wrong {
			errs = append(errs, invalid.Field("signin", field, reason, args...))
		}
	}
	o.Name = cmp.Or(o.Name, "signin")
	isOdd := func(c rune) bool {
		return c != '-' && c != '_' && (c < '0' || c > '9') && (c < 'a' || c > 'z') && (c < 'A' || c > 'Z')
	}
	reject(o.Account == nil, "Account", "is required: it reads the account that a request tries")
	reject(len(o.Secrets) == 0, "Secrets", "has no secret: at least one, of at least %d bytes, signs the cookies", minSecret)
	reject(strings.ContainsFunc(o.Name, isOdd) || len(o.Name) > 64, "Name", "is %q: it must be at most 64 letters, digits, - and _", o.Name)
	s := &SignIn{network: o.Name + "-network", device: o.Name + "-device", account: o.Name + "-account", accounts: o.Name + "-accounts"}
	for i, secret := range o.Secrets {
		reject(len(secret) < minSecret, fmt.Sprintf("Secrets[%d]", i), "has %d bytes: it must have at least %d", len(secret), minSecret)
		s.seals = append(s.seals, keyfunc.NewDigester(secret))
	}
	if o.Normalize == nil {
		o.Normalize = func(account string) string {
			return norm.NFC.String(strings.ToLower(norm.NFC.String(strings.TrimSpace(account))))
		}
	}
	if o.Network == nil {
		o.Network = keyfunc.IP()
	}
	if o.Epoch == nil {
		o.Epoch = func(context.Context, string) (string, error) { return "", nil }
	}
	o.Secrets = nil // seals has copies
	s.options = o
	if err := errors.Join(errs...); err != nil {
		return nil, err
	}
	return s, nil
}

// Must returns s, or panics if err is not nil. It is for options that stand in code.
func Must(s *SignIn, err error) *SignIn {
	if err != nil {
		panic(err)
	}
	return s
}

// Rules returns the rules, for Config.ByRoute["POST /login"], or for Config.Rules of a limiter around the
// handler. If several routes sign in, give all rules in Config.Rules the Match that names the routes. You may change
// their Limit, Match, Mode, OnOutage and Refusal, but no other field.
func (s *SignIn) Rules() []middleware.Rule {
	// Every answer counts. Counts has Weir watch the answer, so that Succeeded sees that its header was sent.
	all := middleware.Not(middleware.Statuses(http.StatusContinue))
	one := middleware.Reserve(func(*http.Request) int64 { return 1 })
	account := func(r *http.Request) (string, error) {
		account, err := s.stranger(r)
		return keyfunc.Claimed.Mark(accountTag + account), err
	}
	networkOf := keyfunc.First(s.options.Network, keyfunc.Global)
	network := func(r *http.Request) (string, error) {
		if _, err := s.stranger(r); err != nil {
			return "", err
		}
		return networkOf(r)
	}
	perQuarter := func(events int64) limiter.Limit { return limiter.Limit{Events: events, Per: 15 * time.Minute} }
	return []middleware.Rule{
		{Name: s.device, Key: s.knownDevice, Limit: perQuarter(10), Cost: one, Counts: all, NoKey: middleware.NoKeySkip},
		{Name: s.network, Key: keyfunc.Join(account, networkOf), Limit: perQuarter(5), Cost: one, NoKey: middleware.NoKeySkip},
		{Name: s.account, Key: account, Limit: limiter.All(limiter.PerHour(20), limiter.PerDay(100)), Cost: one, Counts: all, NoKey: middleware.NoKeySkip},
		{Name: s.accounts, Key: network, Distinct: account, Limit: limiter.PerHour(100), Cost: one, NoKey: middleware.NoKeySkip},
	}
}

// A noAccount is the error of a request without an account. All rules answer it 400, as an ambiguous one: the rules of
// known devices skip a request without a key.
type noAccount struct{}

func (noAccount) Error() string        { return "signin: the request names no account" }
func (noAccount) Is(target error) bool { return target == keyfunc.ErrAmbiguous }

// accountOf returns the account that r tries.
func (s *SignIn) accountOf(r *http.Request) (string, error) {
	key, err := s.options.Account(r)
	if err != nil && !errors.Is(err, keyfunc.ErrNoKey) {
		return "", err
	}
	text, _ := keyfunc.Classify(key)
	_, _, account := keyfunc.KindOf(text)
	if account = s.options.Normalize(account); account == "" || err != nil {
		return "", noAccount{}
	}
	return account, nil
}

// stranger returns the account that r tries, or ErrNoKey if r comes from a known device of the account.
func (s *SignIn) stranger(r *http.Request) (account string, err error) {
	account, err = s.accountOf(r)
	if err == nil && s.isKnown(r, account) {
		return "", keyfunc.ErrNoKey
	}
	return account, err
}

// knownDevice is the key of a device that has signed in to the account that r tries. It does not ask for the epoch: if
// Epoch fails for this rule alone, the rules of strangers would skip r as well, and nothing would count it.
func (s *SignIn) knownDevice(r *http.Request) (string, error) {
	account, err := s.accountOf(r)
	if err != nil {
		return "", err
	}
	e, ok := s.entryFor(r, account)
	if !ok {
		return "", keyfunc.ErrNoKey
	}
	return keyfunc.Claimed.Mark("device:" + e.nonce + ":" + accountTag + account), nil
}

// accountTag stands before the account in the keys of the rules.
const accountTag = "account:"

// Succeeded reports that the password of r was right. It refunds what r was charged, forgets the failures on the
// account from the same network, and sets the cookie, so call it before the header is written. R must be the request
// that the handler was given, or a copy with its context.
//
// Without Succeeded, a request counts as a failure. It returns an error if something could not be done; the sign-in may
// go on. The error is middleware.ErrNotApplied if r has not passed the rules, and limiter.ErrSettled after an earlier
// Succeeded or Failed for r; then no cookie is set.
func (s *SignIn) Succeeded(w http.ResponseWriter, r *http.Request) error {
	account, rules, err := s.settle(r, 0)
	if err != nil {
		return fmt.Errorf("signin: Succeeded: %w", err)
	}
	if slices.Contains(rules, s.account) {
		if err = middleware.Reset(r.Context(), s.network); err != nil { // in an outage: at least this request costs nothing
			err = errors.Join(err, middleware.Settle(r.Context(), s.network, 0))
		}
		err = errors.Join(err, middleware.Settle(r.Context(), s.accounts, 0))
	}
	return errors.Join(err, s.remember(w, r, account))
}

// Failed reports that the password of r was wrong. You need not call it, because every request counts as a failure
// unless Succeeded is called. But a request that a limiter further in refuses costs nothing, so call it if you pass r
// to such a limiter after you have checked the password. After Failed, Succeeded returns an error, and the answer
// counts as one of status 401 for other rules with Counts (see middleware.CountAs), such as a form that is shown again
// with status 200.
func (s *SignIn) Failed(r *http.Request) error {
	_, rules, err := s.settle(r, 1)
	if err == nil && slices.Contains(rules, s.account) {
		err = errors.Join(middleware.Settle(r.Context(), s.network, 1), middleware.Settle(r.Context(), s.accounts, 1))
	}
	if err != nil {
		return fmt.Errorf("signin: Failed: %w", err)
	}
	return middleware.CountAs(r.Context(), http.StatusUnauthorized)
}

var errUnread = errors.New("the account of the request could not be read, so it was counted with all such requests")

// settle settles r at that cost for the rules by device and by account. One of them counts each request; both count a
// request from a device whose epoch is over. settle returns the account of the rules' keys, as the handler may have
// replaced the body.
func (s *SignIn) settle(r *http.Request, units int64) (account string, rules []string, err error) {
	for _, rule := range []string{s.device, s.account} {
		key, missing := middleware.KeyOf(r.Context(), rule)
		if missing != nil {
			err = missing
			continue
		}
		_, account, _ = strings.Cut(key, accountTag)
		rules = append(rules, rule)
	}
	switch {
	case rules == nil:
		return "", nil, err
	case account == "":
		return "", nil, errUnread
	}
	for _, rule := range rules {
		if err = middleware.Settle(r.Context(), rule, units); err != nil {
			return "", nil, err
		}
	}
	return account, rules, nil
}
