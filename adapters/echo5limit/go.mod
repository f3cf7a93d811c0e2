module github.com/weirgo/weir/adapters/echo5limit

go 1.26.0

replace github.com/weirgo/weir => ../..

require (
	github.com/labstack/echo/v5 v5.0.0
	github.com/stretchr/testify v1.11.1
	github.com/weirgo/weir v0.0.0
)

require (
	github.com/davecgh/go-spew v1.1.1 // indirect
	github.com/pmezard/go-difflib v1.0.0 // indirect
	golang.org/x/time v0.14.0 // indirect
	gopkg.in/yaml.v3 v3.0.1 // indirect
)
