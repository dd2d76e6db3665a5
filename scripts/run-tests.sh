#!/bin/sh
# SPDX-License-Identifier: MIT
# run-tests.sh PRESET: runs every test of a built preset and ends with the totals.
# AIRDMA_SANITIZERS=1 builds the sanitized presets afterwards and runs their part of the tests,
# one preset after the other. JOBS tests run at a time where tests do not share a machine-wide
# resource (ports, time); the others run alone.
set -u
preset=$1
jobs=${JOBS:-$(nproc)}
cd "$(dirname "$0")/.."

results=$(mktemp -d)
trap 'rm -rf "$results"' EXIT
broken=0

build_dir() {
  case "$1" in
    release | ci) echo build ;;
    *) echo "build-$1" ;;
  esac
}

# One ctest run; its own exit status counts too, as a crash of ctest leaves no result file.
run() {
  name=$1
  shift
  ctest --output-on-failure --no-tests=ignore --output-junit "$results/$name.xml" "$@" \
    </dev/null || broken=1
}

# A sanitizer preset runs what the sanitizers can say something about.
sanitized='unit|sim|fuzz|conformance-sanitized'
run_preset() {
  dir=$(build_dir "$1")
  parallel='unit|sim|abi|tidy|fuzz'
  case "$1" in
    asan)
      export ASAN_OPTIONS=detect_leaks=1:strict_string_checks=1
      export UBSAN_OPTIONS=print_stacktrace=1:halt_on_error=1 ;;
    # Threads that a program leaves to its end are the program's affair: rping's, when it fails.
    tsan)
      export TSAN_OPTIONS=halt_on_error=1:second_deadlock_stack=1:die_after_fork=0:report_thread_leaks=0 ;;
  esac
  case "$1" in
    asan | tsan)
      run "$1-parallel" --test-dir "$dir" -L "^($sanitized)\$" -LE conformance -j "$jobs"
      run "$1-alone" --test-dir "$dir" -L '^conformance-sanitized$' ;;
    *)
      run "$1-parallel" --test-dir "$dir" -L "^($parallel)\$" -j "$jobs"
      run "$1-alone" --test-dir "$dir" -LE "^($parallel)\$" ;;
  esac
}

run_preset "$preset"
if [ "${AIRDMA_SANITIZERS:-0}" = 1 ]; then
  for sanitizer in asan tsan; do
    if scripts/build.sh "$sanitizer" "$jobs" all; then run_preset "$sanitizer"; else broken=1; fi
  done
fi

python3 scripts/totals.py "$results" || broken=1
exit "$broken"
