package route_test

import (
	"net/http"
	"net/http/httptest"
	"slices"
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/weirgo/weir/internal/route"
)

func TestListedFieldsAreThoseThatAProxyRemoves(t *testing.T) {
	for _, test := range []struct {
		header http.Header
		want   []string
	}{
		{http.Header{"Connection": {"X-Key"}}, nil},
		{http.Header{"X-Key": {"a"}}, nil},
		{http.Header{"Connection": {"keep-alive", "x-KEY\t, close"}, "X-Key": {"a"}}, []string{"X-Key"}},
		{http.Header{"Connection": {"cookie,x-key"}, "X-Key": {""}, "Cookie": {"a=b"}}, []string{"Cookie", "X-Key"}},
		{http.Header{"Proxy-Connection": {"X-Key"}, "X-Key": {"a"}}, []string{"X-Key"}},
		{http.Header{"Connection": {"Upgrade, TE, HTTP2-Settings, Keep-Alive"}, "Upgrade": {"h2c"}, "Te": {"trailers"}, "Http2-Settings": {"AA"}, "Keep-Alive": {"5"}}, nil},
	} {
		assert.Equal(t, test.want, slices.Collect(route.Listed(test.header)), "%v", test.header)
	}
}

func TestASecondMethodIsFoundInFieldsAndInTheQuery(t *testing.T) {
	for target, want := range map[string]bool{
		"/": false, "/?a=b": false, "/?method=DELETE": false, "/?_methods=DELETE": false, "/?a=_method": false, "/?_method=POST": false, "/?_method=post&a=1": false,
		"/?_method=DELETE": true, "/?_method=delete": true, "/?_METHOD=DELETE": true, "/?a=1&_method=POST&_method=PUT": true, "/?_%6Dethod=DELETE": true, "/?%5Fmethod=DELETE": true,
		"/?_method=": true, "/?_method": true, "/?_method[]=DELETE": true, "/?.method=DELETE": true, "/?+_method=DELETE": true, "/?a=1;_method=DELETE": true, "/?_method=DEL%zzETE": true,
		"/?X-HTTP-Method-Override=DELETE": true, "/?x-http-method=put": true, "/?X-Method-Override=POST": false,
	} {
		assert.Equal(t, want, route.HasOtherMethod(httptest.NewRequest("POST", target, nil)), target)
	}
	for field, want := range map[string]bool{"X-Http-Method-Override": true, "X_http_method": true, "X-Method": false} {
		r := httptest.NewRequest("POST", "/", nil)
		r.Header[field] = []string{"DELETE"}
		assert.Equal(t, want, route.HasOtherMethod(r), field)
		r.Header[field] = []string{"POST"}
		assert.False(t, route.HasOtherMethod(r), field)
	}
}
