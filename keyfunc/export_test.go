package keyfunc

import "github.com/weirgo/weir/internal/missing"

// ForgetProxyWarnings lets a test see the warnings that the process gives once.
func ForgetProxyWarnings() {
	proxies.given.Store(false)
	proxies.checked.Store(0)
	proxies.givenRewritten.Store(false)
	proxies.givenUnnamed.Store(false)
}

// ForgetUsers lets a test begin as a process in which nobody has named a user.
func ForgetUsers() {
	usersGiven.Store(false)
	users = missing.Detector{}
}
