module github.com/weirgo/weir/observe/otellimit

go 1.26.0

replace github.com/weirgo/weir => ../..

require (
	github.com/weirgo/weir v0.0.0
	go.opentelemetry.io/otel v1.32.0
	go.opentelemetry.io/otel/metric v1.32.0
	go.opentelemetry.io/otel/trace v1.32.0
)

require (
	github.com/dunglas/httpsfv v1.1.2 // indirect
	github.com/go-logr/logr v1.4.2 // indirect
	github.com/go-logr/stdr v1.2.2 // indirect
)
