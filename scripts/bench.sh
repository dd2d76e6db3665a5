#!/bin/sh
# SPDX-License-Identifier: MIT
# bench.sh BUILD-DIR: parts of the library alone, then whole programs over airdma beside bare TCP and
# other libraries. Compare ratios within one run only; docs/performance.md explains them.
#   AIRDMA               another command to measure
#   AIRDMA_BENCH_ROWS    groups of rows, with commas: only these, and no parts
#   AIRDMA_BENCH_ROUNDS  how often each program runs (7)
set -eu
build=$1
airdma=${AIRDMA:-$build/bin/airdma}

found=false
for program in "$build"/bench/micro/bin/*; do
  [ -x "$program" ] && [ -f "$program" ] || continue
  found=true
  [ -z "${AIRDMA_BENCH_ROWS:-}" ] || continue
  echo "== $(basename "$program")"
  "$program" --benchmark_min_time=0.05 </dev/null 2>/dev/null
done
if ! $found; then
  echo "bench.sh: no benchmark programs in $build/bench/micro/bin" >&2
  exit 1
fi
echo "== programs"
exec python3 -B "$(dirname "$0")/../bench/programs/compare.py" \
  --airdma "$airdma" --bin "$build/bench/programs/bin" </dev/null
