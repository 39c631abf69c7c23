# .ci/run installs what some targets want beside Go: qemu and the Qwen3
# tokenizer. Without them the checks that need them say SKIP.
export CGO_ENABLED = 0
GO ?= go
BIN := bin
VERSION := $(shell git describe --always --dirty 2>/dev/null || echo dev)
LDFLAGS := -s -w -X npack/internal/cli.Version=$(VERSION)
STATICCHECK := honnef.co/go/tools/cmd/staticcheck@v0.8.2
# Executions per fuzz target.
FUZZ ?= 500000
# Platforms that must build.
PLATFORMS := linux/amd64 linux/arm64 darwin/amd64 darwin/arm64 windows/amd64 windows/arm64

.PHONY: build try certify deploy-check check test race noasm arm64 avx512 avxvnni amx fork-check fuzz bench soak generate lint cross gpu-cross gpu-proof gpu-proof-packages gpu-proof-program kernels kernels-check device-check exhaustive subnormals synth-8b synth-8b-random synth-8b-part synth-0.6b synth-0.6b-random synth-bitnet-2b synth-bitnet-2b-packed bench-report race-llama info clean

build: ## both programs, static
	$(GO) build -ldflags '$(LDFLAGS)' -o $(BIN)/ ./cmd/npack ./cmd/nrun

try: build ## build, inspect the embedded model's file, let it tell a story, prove it
	$(BIN)/npack inspect testdata/story
	$(BIN)/nrun generate -p 'Once upon a time' -n 48
	$(BIN)/nrun verify
	$(BIN)/nrun verify testdata/storydraft

certify: build ## the release gate on every format of the story model, then drafted against plain decode
	rm -rf dist/certify && mkdir -p dist/certify
	cp testdata/story/*.* dist/certify/ && rm dist/certify/story.go dist/certify/MANIFEST.json
	$(BIN)/npack to-gguf -q dist/certify dist/certify/story.gguf
	$(BIN)/npack to-mlx -q dist/certify dist/certify/mlx
	$(BIN)/npack manifest -q dist/certify
	$(BIN)/nrun certify dist/certify --battery story
	$(BIN)/npack verify --certificate dist/certify/certificate.json dist/certify
	$(GO) test -count 1 -v -timeout 30m -run Drafted ./runtime/engine

# The project's own driver: the kernel text compiled for this processor. Tests find
# it where they would find NVIDIA's.
FAKECUDA := dist/fakecuda/libcuda.so.1
KERNELTEXT := $(wildcard gpu/kernels/*.k gpu/kernels/host.h cuda/_fake/*)

$(FAKECUDA): $(KERNELTEXT)
	@mkdir -p $(@D)
	$(CXX) -std=c++17 -O3 -march=native -g -Wall -Wextra -Wno-unused -Wno-maybe-uninitialized -ffp-contract=off -fPIC -fvisibility=hidden -shared -Wl,-soname,libcuda.so.1 \
		-Icuda/_fake -Igpu/kernels -o $@ cuda/_fake/simt.cpp cuda/_fake/libcuda.cpp

gpu-cross: ## nrun for cards, where it must build
	@for p in linux/amd64 linux/arm64 windows/amd64; do echo "build -tags gpu $$p"; GOOS=$${p%/*} GOARCH=$${p#*/} $(GO) build -tags gpu -o /dev/null ./cmd/nrun || exit 1; done

kernels: ## rewrite gpu/kernels/*.ptx from kernels.k; needs clang-19
	gpu/kernels/build.sh

# What go test alone does where the tools are installed; here a skip is heard.
kernels-check: ## the kernels: committed text reproduced, assembled for every card, accepted in the other languages, run without a card
	@mkdir -p dist
	@$(GO) test -count 1 -v -run 'Reproduced|Assemble|Languages' ./gpu/kernels >dist/kernels-check.txt; code=$$?; grep -E 'SKIP|FAIL|_test.go|^ok' dist/kernels-check.txt; exit $$code
	$(if $(TESTED),,$(GO) test ./gpu/...)

gpu-proof: gpu-cross kernels-check ## backend cuda without a card: on the project's own driver, in three orders of threads
	@command -v $(CXX) >/dev/null || { echo 'SKIP gpu-proof: there is no C++ compiler ($(CXX)) for the stand-in of the driver'; exit 0; }; \
	$(MAKE) $(FAKECUDA) && LD_LIBRARY_PATH=$(CURDIR)/$(dir $(FAKECUDA)) $(MAKE) -j 2 gpu-proof-packages gpu-proof-program

gpu-proof-packages:
	$(GO) vet -tags gpu ./cuda ./cmd/nrun ./internal/devicecheck
	$(GO) test -tags gpu -count 1 -short -timeout 30m ./cuda ./internal/devicecheck

gpu-proof-program:
	$(GO) test -tags gpu -count 1 -timeout 30m -run TestScripts/gpu ./cmd/nrun

device-check: ## everything about the card of this machine, into dist/device-check/report.json; copy the folder to a machine without Go
	@mkdir -p dist/device-check
	$(GO) build -tags gpu -ldflags '$(LDFLAGS)' -o dist/device-check/ ./internal/devicecheck ./internal/synth ./cmd/nrun
	$(GO) test -c -tags gpu -o dist/device-check/cuda.test ./cuda
	cp internal/devicecheck/run.sh dist/device-check/
	dist/device-check/run.sh $(CHECK)

# Its module holds the types of Kubernetes, which the programs do not need. A skip is heard.
deploy-check: ## the example manifest, decoded strictly and run; the Slurm script, run on a cluster of one node
	@mkdir -p dist
	@$(GO) test -C deploy/_check -count 1 -v ./... >dist/deploy-check.txt; code=$$?; grep -E 'SKIP|FAIL|_test.go|^ok' dist/deploy-check.txt; exit $$code

info:
	@$(GO) version
	@uname -srm
	@$(GO) run ./cmd/nrun info

# Tests mostly run on one core: two kinds at a time, the longest first. TESTED: what
# test runs anyway.
check: info lint generate build cross ## all that must pass
	$(MAKE) --no-print-directory -j2 -O TESTED=1 test gpu-proof arm64 noasm race subnormals deploy-check

lint:
	@bad=$$(git ls-files '*.go' | xargs gofmt -l); test -z "$$bad" || { echo "$$bad"; echo 'gofmt would change these files'; exit 1; }
	$(GO) vet ./...
	$(GO) run $(STATICCHECK) ./...

cross:
	@for p in $(PLATFORMS); do echo "build $$p"; GOOS=$${p%/*} GOARCH=$${p#*/} $(GO) build -o /dev/null ./cmd/npack && GOOS=$${p%/*} GOARCH=$${p#*/} $(GO) build -o /dev/null ./cmd/nrun || exit 1; done

test:
	$(GO) test ./...

# The race detector is the one thing here that needs a C compiler.
race: ## the workers of the cpu backend under the race detector
	@command -v cc >/dev/null || { echo 'SKIP race: there is no C compiler'; exit 0; } ; \
	CGO_ENABLED=1 $(GO) test -race -short -run 'Conformance|Soak' -skip /generic ./cpu

subnormals: ## the reference's arithmetic gives no subnormal result
	$(GO) test -tags subnormals -run NoSubnormals ./runtime/reference

noasm: ## the same tests with the generic kernels
	$(GO) test -short -tags noasm ./cpu ./ternary/... ./pack/native ./pack/coded ./runtime/reference ./runtime/engine

# The golden logits and all bit-exact code on another architecture: kernels on
# a processor that has their instructions and, for neon, on one that has no
# others. The encoded instructions are compared with an assembler's.
arm64:
	$(GO) test -C cpu/_asm ./arm64
	@command -v qemu-aarch64-static >/dev/null || { echo 'SKIP arm64: qemu-aarch64-static is not installed (Debian: qemu-user-static)'; exit 0; } ; \
	GOARCH=arm64 $(GO) test -short -exec qemu-aarch64-static ./ternary/... ./gguf ./pack ./pack/native ./pack/coded ./runtime/backend/... ./runtime/reference ./runtime/identity && \
	GOARCH=arm64 $(GO) test -short -exec qemu-aarch64-static -skip Draft ./runtime/engine && \
	GOARCH=arm64 $(GO) test -short -exec 'qemu-aarch64-static -cpu max' -run '/^(i8mm|sdot)$$' -skip '^Test(SimulationBits|NoAllocations|Plan|Soak)$$' ./cpu && \
	GOARCH=arm64 $(GO) test -short -exec 'qemu-aarch64-static -cpu cortex-a53' -run '/^neon$$' -skip '^Test(SimulationBits|NoAllocations|Plan|Soak)$$' ./cpu

avx512: ## the AVX-512 kernels' tests, on an emulated processor where this one lacks them
	cpu/_bochs/run.sh avx512vnni

avxvnni: ## the same for the AVX-VNNI kernels, whose encoded instructions are compared with an assembler's
	$(GO) test -C cpu/_asm ./avxvnni ./count
	cpu/_bochs/run.sh avxvnni

amx: ## the same for AMX; the emulator, Bochs 3, is built first (minutes)
	$(GO) test -C cpu/_asm ./amx
	cpu/_bochs/run.sh amx

fork-check: build ## llama.cpp with our two types, built from source (minutes) and decoding the story model
	@mkdir -p dist
	$(BIN)/npack to-gguf --force testdata/story dist/story-fv5.gguf
	$${NPACK_PYTHON:-python3} fork-patches/check.py --model dist/story-fv5.gguf

# Each target for a number of executions, not for a time, so that runs compare.
fuzz:
	@for d in $$(grep -rl --include='*_test.go' '^func Fuzz' . | xargs -n1 dirname | sort -u); do \
	  for f in $$(grep -ho '^func Fuzz[A-Za-z0-9_]*' $$d/*_test.go | sed 's/func //'); do \
	    echo "$$d $$f"; $(GO) test -run '^$$' -fuzz "^$$f$$" -fuzztime $(FUZZ)x -fuzzminimizetime 10x $$d || exit 1; \
	  done; done

bench:
	$(GO) test -run '^$$' -bench . -benchmem ./...

bench-report: ## nrun beside llama.cpp, in turns, into docs/performance.md (REPORT='--models 0.6b,8b --rounds 9'); builds llama.cpp
	python3 internal/_peers/speed.py $(REPORT)

race-llama: ## nrun race against a real llama-server and llama-bench, plain and drafted, token by token; builds llama.cpp
	python3 internal/_peers/speed.py --build llama-server,llama-bench
	NPACK_LLAMA=$(CURDIR)/dist/speed/build/bin $(GO) test -count 1 -v -run RaceLlama ./cmd/nrun

exhaustive: ## every float32 for exp, every stored prompt against float64 (minutes)
	NPACK_EXHAUSTIVE=1 $(GO) test -count 1 -v -timeout 30m -run 'FunctionErrors|AgainstFloat64' ./runtime/reference

soak: ## chats with random lengths, threads and cancels for 20 minutes
	GODEBUG=memprofilerate=0 NPACK_SOAK=20m $(GO) test -count 1 -v -timeout 30m -run Soak ./cpu

generate: ## rewrite generated files; must leave them as they are committed
	$(GO) generate ./...
	git diff --exit-code -- '*.s' '*_amd64.go'

synth-8b: ## a sparse container of the published 8B geometry, 3,875,404,812 bytes
	@mkdir -p dist
	$(GO) run ./internal/synth -model 8b -o dist/synth-8b.bin

synth-8b-random: ## the same with random weights of the published statistics, for the transport
	@mkdir -p dist
	$(GO) run ./internal/synth -random -model 8b -o dist/synth-8b-random.bin

synth-8b-part: ## one layer and a part of the vocabulary, for internal/_peers/compare.sh
	@mkdir -p dist
	$(GO) run ./internal/synth -random -model 8b -part 36 -o dist/synth-8b-part.bin

synth-0.6b-random: ## random weights, to measure speed on
	@mkdir -p dist
	$(GO) run ./internal/synth -random -model 0.6b -o dist/synth-0.6b-random.bin

synth-0.6b:
	@mkdir -p dist
	$(GO) run ./internal/synth -model 0.6b -o dist/synth-0.6b.bin

synth-bitnet-2b: ## a BitNet b1.58 2B checkpoint with random weights as trained, 4.8 GB, for npack import
	$(GO) run ./internal/synth -model bitnet-2b -form trained -o dist/bitnet-2b-trained

synth-bitnet-2b-packed: ## the same packed, 1.2 GB
	$(GO) run ./internal/synth -model bitnet-2b -form packed -o dist/bitnet-2b-packed

clean:
	rm -rf $(BIN) dist
