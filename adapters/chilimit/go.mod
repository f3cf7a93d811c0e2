module github.com/weirgo/weir/adapters/chilimit

go 1.26.0

replace github.com/weirgo/weir => ../..

require (
	github.com/go-chi/chi/v5 v5.2.3
	github.com/stretchr/testify v1.11.1
	github.com/weirgo/weir v0.0.0
)

require (
	github.com/davecgh/go-spew v1.1.1 // indirect
	github.com/pmezard/go-difflib v1.0.0 // indirect
	gopkg.in/yaml.v3 v3.0.1 // indirect
)
