// Echo5 limits a whole echo v5 router, and one of its routes more strictly.
//
//	go run ./_examples/echo5
//	for i in 1 2 3; do curl -si http://127.0.0.1:8080/search; done
//	curl -i http://127.0.0.1:8080/
//
// The third search within a second answers 429; the rest of the site goes on.
// It is the program in ../echo with v5's import paths and *echo.Context.
package main

import (
	"flag"
	"log"
	"net"
	"net/http"

	"github.com/labstack/echo/v5"

	"github.com/weirgo/weir"
	"github.com/weirgo/weir/adapters/echo5limit"
)

func main() {
	addr := flag.String("addr", "127.0.0.1:8080", "address to listen on")
	flag.Parse()

	home := func(c *echo.Context) error { return c.String(http.StatusOK, "hello\n") }
	search := func(c *echo.Context) error { return c.String(http.StatusOK, "found\n") }

	e := echo.New()
	e.Use(echo5limit.PerIP(weir.PerMinute(100)))
	e.GET("/", home)
	e.GET("/search", search, echo5limit.PerIP(weir.PerSecond(2)))

	listener, err := net.Listen("tcp", *addr)
	if err != nil {
		log.Fatal("-addr: ", err)
	}
	log.Printf("listening on http://%s", listener.Addr())
	log.Fatal(http.Serve(listener, e))
}
