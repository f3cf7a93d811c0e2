package signin_test

import (
	"context"
	"fmt"
	"log"
	"net/http"
	"net/http/httptest"
	"strings"

	"github.com/weirgo/weir/keyfunc"
	"github.com/weirgo/weir/middleware"
	"github.com/weirgo/weir/middleware/signin"
)

// Strangers guess Jane's password. On a device that she has used before, she signs in nevertheless.
func Example() {
	s, err := signin.New(signin.Options{
		Account: keyfunc.FormField("account", 4096),
		Secrets: [][]byte{[]byte("32 bytes or more, at random, the same in all processes")},
		Epoch: func(_ context.Context, account string) (string, error) {
			return "2026-11-29T12:00:00Z", nil // when the password of the account was changed, from the database
		},
	})
	if err != nil {
		log.Fatal(err)
	}
	limits, err := middleware.New(middleware.Config{
		ByRoute: map[string][]middleware.Rule{"POST /login": s.Rules()},
	})
	if err != nil {
		log.Fatal(err)
	}
	mux := http.NewServeMux()
	mux.HandleFunc("POST /login", func(w http.ResponseWriter, r *http.Request) {
		if r.PostFormValue("password") != "correct horse" {
			fmt.Fprint(w, "wrong password")
			return
		}
		if err := s.Succeeded(w, r); err != nil {
			log.Print(err) // the sign-in goes on
		}
		fmt.Fprint(w, "welcome")
	})
	handler := limits.Handler(mux)

	try := func(address, password string, cookies []*http.Cookie) *http.Response {
		r := httptest.NewRequest("POST", "/login", strings.NewReader("account=jane&password="+password))
		r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
		r.RemoteAddr = address + ":1"
		for _, c := range cookies {
			r.AddCookie(c)
		}
		w := httptest.NewRecorder()
		handler.ServeHTTP(w, r)
		return w.Result()
	}
	cookies := try("192.0.2.1", "correct+horse", nil).Cookies() // Jane's browser keeps them
	guesses := map[int]int{}
	for i := range 200 {
		guesses[try(fmt.Sprintf("198.51.100.%d", i), "guess", nil).StatusCode]++
	}
	fmt.Println("200 guesses:", guesses)
	fmt.Println("Jane:", try("192.0.2.1", "correct+horse", cookies).StatusCode)
	fmt.Println("on a new device:", try("192.0.2.1", "correct+horse", nil).StatusCode)
	// Output:
	// 200 guesses: map[200:20 429:180]
	// Jane: 200
	// on a new device: 429
}
