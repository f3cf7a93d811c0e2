module github.com/weirgo/weir

go 1.26.0

require (
	github.com/dunglas/httpsfv v1.1.2
	github.com/stretchr/testify v1.11.1
	go.yaml.in/yaml/v4 v4.0.0
	golang.org/x/text v0.9.0
	pgregory.net/rapid v1.2.0
)

require (
	github.com/davecgh/go-spew v1.1.1 // indirect
	github.com/pmezard/go-difflib v1.0.0 // indirect
	gopkg.in/yaml.v3 v3.0.1 // indirect
)
