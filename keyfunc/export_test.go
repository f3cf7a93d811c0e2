package keyfunc

// ForgetProxyWarnings lets a test see the warnings that the process gives once.
func ForgetProxyWarnings() {
	proxies.given.Store(false)
	proxies.checked.Store(0)
	proxies.givenRewritten.Store(false)
}
