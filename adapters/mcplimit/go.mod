module github.com/weirgo/weir/adapters/mcplimit

go 1.26.0

replace github.com/weirgo/weir => ../..

require (
	github.com/modelcontextprotocol/go-sdk v1.4.1
	github.com/stretchr/testify v1.11.1
	github.com/weirgo/weir v0.0.0
)

require (
	github.com/davecgh/go-spew v1.1.1 // indirect
	github.com/google/jsonschema-go v0.4.2 // indirect
	github.com/pmezard/go-difflib v1.0.0 // indirect
	github.com/segmentio/asm v1.1.3 // indirect
	github.com/segmentio/encoding v0.5.4 // indirect
	github.com/yosida95/uritemplate/v3 v3.0.2 // indirect
	golang.org/x/oauth2 v0.34.0 // indirect
	golang.org/x/sys v0.40.0 // indirect
	gopkg.in/yaml.v3 v3.0.1 // indirect
)
