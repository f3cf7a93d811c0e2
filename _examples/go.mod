module github.com/weirgo/weir/examples

go 1.26.0

replace (
	github.com/weirgo/weir => ..
	github.com/weirgo/weir/adapters/chilimit => ../adapters/chilimit
	github.com/weirgo/weir/adapters/echo5limit => ../adapters/echo5limit
	github.com/weirgo/weir/adapters/echolimit => ../adapters/echolimit
	github.com/weirgo/weir/adapters/ginlimit => ../adapters/ginlimit
	github.com/weirgo/weir/observe/promlimit => ../observe/promlimit
	github.com/weirgo/weir/redis => ../redis
)

require (
	github.com/weirgo/weir v0.0.0
	github.com/weirgo/weir/adapters/chilimit v0.0.0
	github.com/weirgo/weir/adapters/echo5limit v0.0.0
	github.com/weirgo/weir/adapters/echolimit v0.0.0
	github.com/weirgo/weir/adapters/ginlimit v0.0.0
	github.com/weirgo/weir/observe/promlimit v0.0.0
	github.com/weirgo/weir/redis v0.0.0
)

require (
	github.com/gin-gonic/gin v1.9.1
	github.com/go-chi/chi/v5 v5.2.3
	github.com/labstack/echo/v4 v4.13.3
	github.com/labstack/echo/v5 v5.0.0
	github.com/prometheus/client_golang v1.19.1
	github.com/redis/go-redis/v9 v9.19.0
)

require (
	github.com/beorn7/perks v1.0.1 // indirect
	github.com/bytedance/sonic v1.9.1 // indirect
	github.com/cespare/xxhash/v2 v2.3.0 // indirect
	github.com/chenzhuoyu/base64x v0.0.0-20221115062448-fe3a3abad311 // indirect
	github.com/dunglas/httpsfv v1.1.2 // indirect
	github.com/gabriel-vasile/mimetype v1.4.2 // indirect
	github.com/gin-contrib/sse v0.1.0 // indirect
	github.com/go-playground/locales v0.14.1 // indirect
	github.com/go-playground/universal-translator v0.18.1 // indirect
	github.com/go-playground/validator/v10 v10.14.0 // indirect
	github.com/goccy/go-json v0.10.2 // indirect
	github.com/json-iterator/go v1.1.12 // indirect
	github.com/klauspost/cpuid/v2 v2.2.10 // indirect
	github.com/labstack/gommon v0.4.2 // indirect
	github.com/leodido/go-urn v1.2.4 // indirect
	github.com/mattn/go-colorable v0.1.13 // indirect
	github.com/mattn/go-isatty v0.0.20 // indirect
	github.com/modern-go/concurrent v0.0.0-20180306012644-bacd9c7ef1dd // indirect
	github.com/modern-go/reflect2 v1.0.2 // indirect
	github.com/pelletier/go-toml/v2 v2.0.8 // indirect
	github.com/prometheus/client_model v0.5.0 // indirect
	github.com/prometheus/common v0.48.0 // indirect
	github.com/prometheus/procfs v0.12.0 // indirect
	github.com/twitchyliquid64/golang-asm v0.15.1 // indirect
	github.com/ugorji/go/codec v1.2.11 // indirect
	github.com/valyala/bytebufferpool v1.0.0 // indirect
	github.com/valyala/fasttemplate v1.2.2 // indirect
	go.uber.org/atomic v1.11.0 // indirect
	go.yaml.in/yaml/v4 v4.0.0 // indirect
	golang.org/x/arch v0.3.0 // indirect
	golang.org/x/crypto v0.47.0 // indirect
	golang.org/x/net v0.49.0 // indirect
	golang.org/x/sys v0.40.0 // indirect
	golang.org/x/text v0.33.0 // indirect
	google.golang.org/protobuf v1.33.0 // indirect
	gopkg.in/yaml.v3 v3.0.1 // indirect
)
