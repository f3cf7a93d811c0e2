# `make test` is the whole check: what it needs it sets up, or says how to.

# All packages of the modules in go.work. ./... would end at the root's.
OURS = github.com/weirgo/weir
ALL = $(OURS)/...
STATICCHECK = honnef.co/go/tools/cmd/staticcheck@v0.7.0

.PHONY: test quick setup vet unit unit-race narrow apart servers goals differential phases fuzz bench bench-compare race race-memory race-http race-pace newest benchmarks lab walk size playground site tidy help

ifdef CI
test: ; @.ci/steps setup vet unit-race narrow apart servers goals differential newest benchmarks
else
test: ## all that a change must pass: vet, staticcheck, tests, real Redis servers, the examples
	@.ci/steps setup vet unit differential
endif

quick: ## while you work: build, vet, and tests of the packages that changed since BASE (main) and of those that import them
	.ci/quick

setup: ## installs redis-server where it is missing, and in CI Chromium, promtool and nginx
	.ci/setup

vet: ## go vet, gofmt and staticcheck, over the examples too
	@unformatted=$$(gofmt -l .); if [ -n "$$unformatted" ]; then echo "not gofmt-ed:"; echo "$$unformatted"; exit 1; fi
	go vet $(ALL)
	GOARCH=386 go vet ./limiter/... ./keyfunc ./middleware # where an int has 32 bits
	go run $(STATICCHECK) $(ALL)

# Where goroutines meet. Those that wait for a Redis come first.
CONCURRENT = $(addprefix $(OURS)/,redis/... limiter/... middleware middleware/bans middleware/shed observe/... pace/...)
RUN = WEIR_REQUIRE_REDIS=1 go test -vet=off -p 4 -timeout 15m
RUN_RACELESS = $(RUN) ./middleware ./limiter ./internal/answer -run 'Allocates|TheTable|Stranger' # tests that skip under the race detector

unit: ## tests, with the race detector where goroutines meet
	$(RUN) -race $(CONCURRENT)
	$(RUN_RACELESS)
	$(RUN) $(filter-out $(shell go list $(CONCURRENT)),$(shell go list $(ALL)))
	WEIR_REQUIRE_REDIS=1 go -C internal/tests test ./house

unit-race: ## tests with the race detector, of all packages
	$(RUN) -race $(ALL)
	$(RUN_RACELESS)

narrow: ## tests where an int has 32 bits, which has no race detector; most kernels of Linux on amd64 run them
	.ci/narrow

apart: ## each module without its workspace; tests that need what no user needs: routers of others, miniredis, a browser, a queue
	.ci/modules
	go -C internal/tests vet ./...
	cd internal/tests && go run $(STATICCHECK) ./...
	GOWORK=off go -C _examples/later vet .
	GOWORK=off WEIR_REQUIRE_REDIS=1 go -C _examples/later test .
	GOWORK=off go -C internal/tests/lab vet .
	GOWORK=off go -C internal/tests/lab test -count=1 -short -v .
	WEIR_REQUIRE_REDIS=1 go -C internal/tests test -count=1 ./... # some build programs, whose sources the cache does not know

servers: ## tests of the module redis on a second server, Valkey from Debian or Ubuntu, or that in REDIS_BIN
	.ci/servers

goals: ## what overload shedding promises, with more seeds, and the table of its docs
	WEIR_TABLE=1 go test ./middleware/shed

differential: ## whether Lua on Redis decides what Go does, and whether edits of a rules file are read or refused: 1,000 random traces a test, 20,000 in CI (DRAWS)
	WEIR_REQUIRE_REDIS=1 WEIR_DRAWS=$(or $(DRAWS),$(if $(CI),20000,1000)) go test -vet=off -count=1 -timeout 60m ./redis/redisstore \
		-run '^(TestLuaDecidesAndStoresWhatGoDoes|TestThePlainScriptsDecideAndStoreWhatGoDoes)$$'
	WEIR_DRAWS=$(or $(DRAWS),$(if $(CI),2500,100)) go test -vet=off -count=1 ./middleware/rules -run '^TestAnEditOfTheSampleIsReadOrItsProblemsAreInTheText$$'

phases: ## tests that meet a window, in every hour of the day and where each begins
	WEIR_PHASE=all go test -timeout 60m $(addprefix $(OURS)/,limiter/... middleware/... adapters/...)

fuzz: ## every fuzz target for FUZZTIME (20s)
	.ci/fuzz $(or $(FUZZTIME),20s)

bench: ## the benchmarks beside the code
	go test -run '^$$' -bench . -benchmem $(ALL)

bench-compare: ## those benchmarks beside BASE's, in turns, with benchstat: BASE=main [PACKAGES=./limiter] [BENCH=Take] [COUNT=6]
	.ci/bench-compare '$(BASE)' '$(or $(PACKAGES),$(ALL))' '$(or $(BENCH),.)' '$(or $(COUNT),6)'

race: ## Weir beside its peers on a Redis, in one run of twenty minutes
	go -C _benchmarks run ./race -time 300ms -base redis_rate ./redis

race-memory: ## Weir beside its peers in memory, up to a million keys, in one run of half an hour
	go -C _benchmarks run ./race -cpu 1,2 -rounds 3 -bench '^(Allowed|Refused|New|Several|AtCap|Flooded|Held/keys=1M)' ./memory

race-http: ## Weir beside its peers in HTTP servers, in one run of five minutes
	go -C _benchmarks run ./race -cpu 2 ./http

race-pace: ## calling a third party through package pace, beside its peers, in one run of ten minutes
	go -C _benchmarks run ./race -time 1x -rounds 4 ./pace

benchmarks: ## checks the module of the race, and has every contestant do a little
	go -C _benchmarks vet ./...
	cd _benchmarks && go run $(STATICCHECK) ./...
	WEIR_REQUIRE_REDIS=1 go -C _benchmarks test -short -bench . -benchtime 1x ./...

lab: ## real clients, proxies and servers, which write the tables in docs/clients.md and docs/proxies.md; ten minutes, on Debian 12 with npm
	.ci/lab

walk: ## the functions that an allowed and a refused request enter
	.ci/walk

size: ## what a limit adds to a server's binary
	.ci/size

playground: ## playground.html, a page to open in a browser, of limiter and of its own sources
	go run ./internal/playground

SITE = $(CURDIR)/docs/.vitepress/dist

site: ## the site of the docs and the playground, in docs/.vitepress/dist, opened in Chromium; needs npm
	npm --prefix docs ci --no-audit --no-fund
	npm --prefix docs run build
	go run ./internal/playground $(SITE)/playground.html
	WEIR_SITE=$(SITE) WEIR_AXE=$(CURDIR)/docs/node_modules/axe-core/axe.min.js go -C internal/tests test -count=1 ./site

tidy: ## go mod tidy in every module
	.ci/modules tidy

newest: ## tests against the newest versions of what Weir uses, in a scratch copy
	.ci/newest

help: ## this list
	@grep -hE '^[a-z-]+:.*##' Makefile | sed -E 's/:[^#]*## /\t/' | expand -t 15
