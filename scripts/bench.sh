#!/bin/sh
# SPDX-License-Identifier: MIT
# bench.sh BUILD-DIR: parts of the library alone, then whole programs over airdma beside bare TCP.
# Compare ratios within one run only; docs/performance.md explains them. AIRDMA names another command
# to measure.
set -eu
build=$1
airdma=${AIRDMA:-$build/bin/airdma}

found=false
for program in "$build"/bench/micro/bin/*; do
  [ -x "$program" ] && [ -f "$program" ] || continue
  found=true
  echo "== $(basename "$program")"
  "$program" --benchmark_min_time=0.05 </dev/null 2>/dev/null
done
if ! $found; then
  echo "bench.sh: no benchmark programs in $build/bench/micro/bin" >&2
  exit 1
fi
echo "== programs"
exec python3 "$(dirname "$0")/../bench/programs/compare.py" \
  --airdma "$airdma" --bin "$build/bench/programs/bin" </dev/null
