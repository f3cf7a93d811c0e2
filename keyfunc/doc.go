// Package keyfunc reads the key that a request is counted under, such as the client's address.
//
// A rate limit counts per key, and a [Func] reads the key from the request. To give every client
// address a limit of its own, use [IP]:
//
//	middleware.Rule{Name: "ip", Key: keyfunc.IP(), Limit: limiter.PerMinute(300)}
//
// # Which to choose
//
//	count per                                use
//	client, nothing in front of the server   IP()
//	client, behind a proxy or a CDN          IP(TrustProxies("10.0.0.0/8")), see below
//	network of a client                      IP(Prefixes(24, 48)), as a second, wider rule
//	signed-in user, else address             First(User, IP())
//	API key or token you have checked        APIKey("X-Api-Key"), Bearer
//	any other header, a cookie               Header("X-Tenant"), Cookie("session")
//	parameter of the route, of the query     PathValue("id"), Query("tenant")
//	field of a JSON body, of a form          JSONField("account", 4096), FormField("account", 4096)
//	address and headers of the client        Fingerprint()
//	route, method, host, all clients together Route, Method, Host, Global
//	tool that an agent calls                 Tool
//	two things at once                       Join(User, Route), JoinPresent(User, IP())
//	anything, without storing it in clear    Hash(secret, APIKey("X-Api-Key"))
//
// A Func of your own is any function of the same shape.
//
// # Behind a proxy
//
// Behind a proxy the TCP peer is the proxy, so IP() alone counts all clients as one, and logs a warning
// once. Anybody can send a header that names the client. Such headers are read only from the peers that
// you name, and one IP key reads one kind of header:
//
//	keyfunc.IP(keyfunc.TrustProxies("10.0.0.0/8"))     // X-Forwarded-For, from these peers
//	keyfunc.IP(keyfunc.TrustForwarded("10.0.0.0/8"))   // Forwarded (RFC 7239), from these peers
//	keyfunc.IP(keyfunc.TrustHeader("CF-Connecting-IP", "173.245.48.0/20", "2400:cb00::/32"))
//	keyfunc.IP(keyfunc.TrustHops(2))                   // when the addresses can't be known
//	keyfunc.IP(keyfunc.TrustProxies(), keyfunc.TrustUnixSocket())   // nginx on a unix socket
//
// Check before going live: send a request through the proxy with a made-up header,
//
//	curl -H 'X-Forwarded-For: 198.51.100.7' https://example.com/
//
// and look at the key. It must be your own address: not 198.51.100.7, and not the proxy's. If the
// header is missing or has no address in it, the peer's address is the key: such clients share a limit,
// and no client is unlimited.
//
// # Keys that any client can forge
//
// A client can change a header more easily than its address. APIKey, Bearer, Header, Cookie, Query,
// PathValue, JSONField, FormField, Host and Fingerprint read what the client wrote. A client that writes
// something new in each request has a new key each time. Use such a key only after your code has checked
// its value, or together with a rule on IP. A rule never bans a header, cookie, query, path value or field;
// see [Class].
//
// Use one spelling for a user: if "John" and "john" sign in to one account, the key is the account's
// id, not the typed name.
package keyfunc
