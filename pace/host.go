package pace

import (
	"cmp"
	"net/netip"
	"net/url"
	"strconv"
	"strings"

	"github.com/weirgo/weir/internal/invalid"
	"github.com/weirgo/weir/internal/route"
)

// A host is the pattern of a rule's hosts.
type host struct {
	name route.Pattern // has no Host for any
	port string        // "": any
}

func parseHost(text string) (host, error) {
	wrong := func(reason string) (host, error) {
		return host{}, invalid.New("pace", "Host is %q: %s", text, reason)
	}
	switch {
	case text == "":
		return host{}, invalid.New("pace", `Host is missing: use "*" for any host`)
	case text == "*":
		return host{}, nil
	case strings.Contains(text, "/"):
		return wrong("it must be a host alone, such as api.example.org; for anything else about a request use Match")
	}
	field, below := strings.CutPrefix(text, "*.")
	name := route.Host(field)
	_, notAddress := netip.ParseAddr(name)
	if name == "" || below && notAddress == nil {
		return wrong(`it must be a name such as api.example.org, "*.example.org", or an address, in ASCII`)
	}
	port := ""
	if i := strings.LastIndexByte(field, ':'); i >= 0 && (i == strings.IndexByte(field, ':') || field[i-1] == ']') {
		port = field[i+1:]
		if _, err := strconv.ParseUint(port, 10, 16); err != nil {
			return wrong("its port is not a number from 0 to 65535")
		}
	}
	if below {
		name = "*." + name
	}
	return host{route.Pattern{Host: name}, port}, nil
}

// isFor reports whether h matches u, whose host route.Host spells name.
func (h *host) isFor(name string, u *url.URL) bool {
	return h.name.IsFor(name) && (h.port == "" || h.port == cmp.Or(u.Port(), usualPorts[u.Scheme]))
}

// usualPorts are the ports of addresses that name none.
var usualPorts = map[string]string{"http": "80", "https": "443"}

// covers reports whether h matches all that other matches.
func (h *host) covers(other *host) bool {
	return h.name.Covers(&other.name) && (h.port == "" || h.port == other.port)
}
