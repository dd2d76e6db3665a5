# SPDX-License-Identifier: MIT
# The commands a person types. CMakePresets.json holds what they mean; HACKING.md the rest.
PREFIX ?= /usr/local
DESTDIR ?=
JOBS ?= $(shell nproc)
# CI=true makes warnings errors.
PRESET ?= $(if $(filter true 1,$(CI)),ci,release)
# An outer `make -n` or -j must not reach ninja or ctest through the environment.
unexport MAKEFLAGS MFLAGS

.PHONY: all build test demo bench interop install asan tsan dev fuzz tidy format clean

all: build

build:
	@scripts/install-deps.sh build
	@scripts/build.sh $(PRESET) $(JOBS)

test:
	@scripts/install-deps.sh test
	@scripts/build.sh $(PRESET) $(JOBS) all
	@JOBS=$(JOBS) scripts/run-tests.sh $(PRESET)

demo:
	@scripts/install-deps.sh demo
	@scripts/build.sh $(PRESET) $(JOBS)
	@scripts/demo.sh

bench:
	@scripts/install-deps.sh bench
	@scripts/build.sh bench $(JOBS) all
	@scripts/bench.sh build-bench

# Against the kernel's rxe, in a virtual machine; root. CASES='ib_send UD' picks some, and
# CASES='--mebibytes 1024 bulk' gives options (scripts/interop.sh).
interop:
	@scripts/install-deps.sh interop
	@scripts/build.sh $(PRESET) $(JOBS)
	@scripts/interop.sh $(CASES)

install: build
	@DESTDIR="$(DESTDIR)" cmake --install build --prefix "$(PREFIX)"

# Sanitized builds and their tests, each in a folder of its own.
asan tsan dev:
	@scripts/install-deps.sh test
	@scripts/build.sh $@ $(JOBS) all
	@JOBS=$(JOBS) scripts/run-tests.sh $@

fuzz:
	@scripts/install-deps.sh fuzz
	@scripts/build.sh fuzz $(JOBS) all

tidy:
	@scripts/install-deps.sh test
	@scripts/build.sh $(PRESET) $(JOBS) all
	@ctest --test-dir build -L tidy --output-on-failure

format:
	@git ls-files '*.cc' '*.h' '*.c' | xargs $(or $(CLANG_FORMAT),clang-format-19) -i

clean:
	@rm -rf build build-dev build-asan build-tsan build-fuzz build-bench
