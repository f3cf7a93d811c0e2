// Gin limits a whole gin router, and one of its routes more strictly.
//
//	go run ./_examples/gin
//	for i in 1 2 3; do curl -si http://127.0.0.1:8080/api/search; done
//	curl -i http://127.0.0.1:8080/
//
// The third search within a second answers 429; the rest of the site goes on.
package main

import (
	"flag"
	"log"
	"net"
	"net/http"

	"github.com/gin-gonic/gin"

	"github.com/weirgo/weir"
	"github.com/weirgo/weir/adapters/ginlimit"
)

func main() {
	addr := flag.String("addr", "127.0.0.1:8080", "address to listen on")
	flag.Parse()

	home := func(c *gin.Context) { c.String(http.StatusOK, "hello\n") }
	search := func(c *gin.Context) { c.String(http.StatusOK, "found\n") }

	r := gin.Default()
	r.Use(ginlimit.PerIP(weir.PerMinute(100)))
	r.GET("/", home)
	g := r.Group("/api")
	g.GET("/search", ginlimit.PerIP(weir.PerSecond(2)), search)

	listener, err := net.Listen("tcp", *addr)
	if err != nil {
		log.Fatal("-addr: ", err)
	}
	log.Printf("listening on http://%s", listener.Addr())
	log.Fatal(http.Serve(listener, r))
}
