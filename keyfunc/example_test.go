package keyfunc_test

import (
	"bytes"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"

	"github.com/weirgo/weir/keyfunc"
)

// show prints what a request from peer with the given headers is counted under, and the
// class of its key if it is not one client's own.
func show(f keyfunc.Func, peer string, headers ...string) {
	key, err := f(from(peer, headers...))
	text, class := keyfunc.Classify(key)
	if class != keyfunc.Own {
		text += fmt.Sprintf(" (%s)", class)
	}
	fmt.Println(text, err)
}

func ExampleIP() {
	ip := keyfunc.IP()

	show(ip, "192.0.2.1:4711")
	show(ip, "192.0.2.1:4711", "X-Forwarded-For", "198.51.100.7") // anybody can send this
	show(ip, "[2001:db8::1]:4711")
	show(ip, "[2001:db8::2]:4711") // the same customer
	show(ip, "@")                  // a unix socket
	// Output:
	// 192.0.2.1 <nil>
	// 192.0.2.1 <nil>
	// 2001:db8::/64 <nil>
	// 2001:db8::/64 <nil>
	// no-ip (shared) <nil>
}

func ExampleNewIP() {
	proxies := []string{"10.0.0.0/8", "0.0.0.0/0", "loadbalancer"} // from a file

	_, err := keyfunc.NewIP(keyfunc.TrustProxies(proxies...))

	fmt.Println(err)
	// Output:
	// keyfunc: TrustProxies("0.0.0.0/0"): it trusts strangers; networks wider than /8 are refused
	// keyfunc: TrustProxies("loadbalancer"): it is neither an address nor a CIDR
}

func ExampleTrustProxies() {
	ip := keyfunc.IP(keyfunc.TrustProxies("10.0.0.0/8"))

	show(ip, "10.0.0.1:4711", "X-Forwarded-For", "192.0.2.1")
	show(ip, "10.0.0.1:4711", "X-Forwarded-For", "198.51.100.7, 192.0.2.1") // the client sent the first
	show(ip, "10.0.0.1:4711", "X-Forwarded-For", "192.0.2.1, 10.0.0.2")     // two proxies
	show(ip, "203.0.113.9:4711", "X-Forwarded-For", "192.0.2.1")            // not from a proxy
	// Output:
	// 192.0.2.1 <nil>
	// 192.0.2.1 <nil>
	// 192.0.2.1 <nil>
	// 203.0.113.9 <nil>
}

func ExampleTrustForwarded() {
	ip := keyfunc.IP(keyfunc.TrustForwarded("10.0.0.0/8"))

	show(ip, "10.0.0.1:4711", "Forwarded", `for="[2001:db8::1]:4711";proto=https`)
	show(ip, "10.0.0.1:4711", "Forwarded", `for="198.51.100.7, for=192.0.2.1`) // an open quote hides nothing
	show(ip, "10.0.0.1:4711", "Forwarded", `for=unknown`)
	// Output:
	// 2001:db8::/64 <nil>
	// 192.0.2.1 <nil>
	// 10.0.0.1 (in doubt) <nil>
}

func ExampleTrustHeader() {
	ip := keyfunc.IP(keyfunc.TrustHeader("CF-Connecting-IP",
		"173.245.48.0/20", "2400:cb00::/32")) // and the rest of https://www.cloudflare.com/ips/

	show(ip, "173.245.48.1:4711", "CF-Connecting-IP", "192.0.2.1")
	show(ip, "203.0.113.9:4711", "CF-Connecting-IP", "192.0.2.1") // around the CDN
	// Output:
	// 192.0.2.1 <nil>
	// 203.0.113.9 <nil>
}

// Without the networks of the proxy, and on a server that can be reached around it,
// a client has as many limits as it can write addresses.
func ExampleTrustHeader_incorrect() {
	ip := keyfunc.IP(keyfunc.TrustHeader("X-Real-IP")) // from whom?

	show(ip, "203.0.113.9:4711", "X-Real-IP", "198.51.100.1")
	show(ip, "203.0.113.9:4711", "X-Real-IP", "198.51.100.2")
	// Output:
	// 198.51.100.1 <nil>
	// 198.51.100.2 <nil>
}

func ExampleFirst() {
	caller := keyfunc.First(keyfunc.User, keyfunc.IP())

	guest := from("192.0.2.1:4711")
	fmt.Println(caller(guest))

	member := guest.WithContext(keyfunc.WithUser(guest.Context(), "42"))
	fmt.Println(caller(member))
	// Output:
	// 192.0.2.1 <nil>
	// user:42 <nil>
}

func ExampleWithUser() {
	// Authentication puts the account's id where User finds it.
	authenticate := func(next http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if name, password, ok := r.BasicAuth(); ok && name == "john" && password == "secret" {
				r = r.WithContext(keyfunc.WithUser(r.Context(), "42"))
			}
			next.ServeHTTP(w, r)
		})
	}
	limit := http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		fmt.Println(keyfunc.User(r))
	})

	r := from("192.0.2.1:4711")
	r.SetBasicAuth("john", "secret")
	authenticate(limit).ServeHTTP(httptest.NewRecorder(), r)
	// Output: user:42 <nil>
}

// Before anybody has checked it, an API key is what the client makes up.
func ExampleAPIKey_incorrect() {
	caller := keyfunc.First(keyfunc.APIKey("X-Api-Key"), keyfunc.IP()) // before authentication

	show(caller, "192.0.2.1:4711", "X-Api-Key", "guess-1")
	show(caller, "192.0.2.1:4711", "X-Api-Key", "guess-2") // a fresh limit for every guess
	// Output:
	// apikey:guess-1 <nil>
	// apikey:guess-2 <nil>
}

func ExampleJoin() {
	key := keyfunc.Join(keyfunc.IP(), keyfunc.Route)

	r := from("192.0.2.1:4711")
	r.Pattern = "POST /login" // the router's doing
	fmt.Println(key(r))
	// Output: join:9:192.0.2.117:route:POST /login <nil>
}

func ExampleHash() {
	secret := []byte("sixteen bytes or more, at random")
	key := keyfunc.Hash(secret, keyfunc.APIKey("X-Api-Key"))

	show(key, "192.0.2.1:4711", "X-Api-Key", "s3cret")
	// Output: hash:NgvTKPPRmUSBdWMS7HIWr7IfMXPWLGbf24FvSFmqVcw <nil>
}

// A Func of your own is a function. It says ErrNoKey when there is nothing to say.
func ExampleFunc() {
	tenant := func(r *http.Request) (string, error) {
		id := r.URL.Query().Get("tenant")
		if id == "" {
			return "", keyfunc.ErrNoKey
		}
		return "tenant:" + id, nil
	}
	key := keyfunc.First(tenant, keyfunc.IP())

	fmt.Println(key(httptest.NewRequest("GET", "/?tenant=acme", nil)))
	fmt.Println(key(httptest.NewRequest("GET", "/", nil)))
	// Output:
	// tenant:acme <nil>
	// 192.0.2.1 <nil>
}

// Names that differ in case alone are one account.
func ExampleFormField() {
	typed := keyfunc.FormField("account", 4<<10)
	account := func(r *http.Request) (string, error) {
		key, err := typed(r)
		return strings.ToLower(key), err
	}

	for _, body := range []string{"account=Jane&password=secret", "account=jane&account=joe", "password=secret"} {
		r := httptest.NewRequest("POST", "/login", strings.NewReader(body))
		r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
		fmt.Println(account(r))
	}
	// Output:
	// form:account:jane <nil>
	//  keyfunc: the request has a form in which programs find different fields account
	//  keyfunc: the request carries no such key
}

// The key is the first line of a text.
func ExampleBody() {
	device := func(r *http.Request) (string, error) {
		text, err := keyfunc.Body(r, 4<<10)
		if err != nil {
			return "", err // too long, or cut short: 400, and not a request without a key
		}
		line, _, found := bytes.Cut(text, []byte("\n"))
		if !found {
			return "", keyfunc.ErrNoKey
		}
		return "device:" + string(line), nil
	}

	fmt.Println(device(httptest.NewRequest("POST", "/measured", strings.NewReader("d-17\n21.5\n22.0\n"))))
	// Output: device:d-17 <nil>
}
