package dashboard_test

import (
	"fmt"
	"log"
	"net/http"
	"net/http/httptest"

	"github.com/weirgo/weir/keyfunc"
	"github.com/weirgo/weir/limiter"
	"github.com/weirgo/weir/middleware"
	"github.com/weirgo/weir/middleware/bans"
	"github.com/weirgo/weir/observe/dashboard"
)

func Example() {
	list, err := bans.New(bans.Options{})
	if err != nil {
		log.Fatal(err)
	}
	page, err := dashboard.New(dashboard.Options{
		Authorize: func(r *http.Request) bool { // your own authentication
			user, password, _ := r.BasicAuth()
			return user == "ann" && password == "s3cret"
		},
		Bans: list,
	})
	if err != nil {
		log.Fatal(err)
	}
	limits, err := middleware.New(middleware.Config{
		Observer: page,
		Bans:     middleware.Bans{List: list, Keys: []keyfunc.Func{keyfunc.IP()}},
		Rules:    []middleware.Rule{{Name: "ip", Key: keyfunc.IP(), Limit: limiter.PerMinute(300)}},
	})
	if err != nil {
		log.Fatal(err)
	}
	page.Add(limits)

	mux := http.NewServeMux()
	mux.Handle("/ops/limits", page)

	r := httptest.NewRequest("GET", "/ops/limits", nil)
	w := httptest.NewRecorder()
	mux.ServeHTTP(w, r)
	fmt.Println(w.Code)
	r.SetBasicAuth("ann", "s3cret")
	w = httptest.NewRecorder()
	mux.ServeHTTP(w, r)
	fmt.Println(w.Code)
	// Output:
	// 403
	// 200
}
