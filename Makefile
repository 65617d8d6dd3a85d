# The entry points. Everything runs unattended; `make help` lists the targets.
PROMPT ?= What is gravity?
JOBS ?= $(shell nproc 2>/dev/null || echo 2)
# Seconds that `make test` fuzzes each target, after its kept corpus; `make fuzz FUZZ_SECONDS=600` for more.
FUZZ_SECONDS ?= 15

# More for the comparison with the peers, as in `make bench-peers PEERS="--quick --models pocket"`.
PEERS ?=

export DEBIAN_FRONTEND := noninteractive
export PROMPT JOBS FUZZ_SECONDS

.DEFAULT_GOAL := help
.PHONY: help setup setup-test build run test unit asan tsan fuzz aarch64 format bench-peers clean
.NOTPARALLEL:

help: ## list the targets
	@sed -n 's/^\([a-z0-9-]*\):.*## \(.*\)/make \1\t\2/p' Makefile | expand -t 18

setup: ## install what building and running needs
	@tools/setup.sh build

setup-test: ## install what the tests need, too (with .venv)
	@tools/setup.sh test

build: setup ## build the program, build/pocketlm
	@test -f build/CMakeCache.txt || cmake --preset release -DPOCKETLM_BUILD_TESTS=OFF
	cmake --build build -j$(JOBS) --target pocketlm_cli

run: build ## build, fetch the default model, answer PROMPT="…"
	build/pocketlm pull smollm2-135m
	build/pocketlm run smollm2-135m -p "$$PROMPT"

test: setup-test ## everything: sanitizers, fuzzing, ARM, then all tests of the release build
	@tools/test.sh all

unit: setup-test ## only the tests of the release build
	@tools/test.sh release

asan: setup-test ## unit tests under ASan + UBSan (g++)
	@tools/test.sh asan

tsan: setup-test ## threaded tests under TSan (g++)
	@tools/test.sh tsan

fuzz: setup-test ## unit tests and fuzz targets under ASan + UBSan (clang)
	@tools/test.sh fuzz

aarch64: setup-test ## ARM kernels, cross-compiled, and models on them, under qemu-user
	@tools/test.sh aarch64

format: setup-test ## clang-format over every C++ file of ours
	@tools/format.sh

bench-peers: build ## set up llama.cpp and other engines in build-peers/, measure them beside ours, print the ratios
	python3 bench/peers/run.py $(PEERS)

clean: ## remove the build folders and .venv
	rm -rf build build-dev build-asan build-tsan build-fuzz build-aarch64 .venv
