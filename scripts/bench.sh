#!/bin/sh
# SPDX-License-Identifier: MIT
# bench.sh BUILD-DIR: runs every benchmark program of a build. Compare ratios within one run only.
set -eu
found=false
for program in "$1"/bench/bin/*; do
  [ -x "$program" ] && [ -f "$program" ] || continue
  found=true
  echo "== $(basename "$program")"
  "$program" --benchmark_min_time=0.2 </dev/null
done
if ! $found; then
  echo "bench.sh: no benchmark programs in $1/bench/bin" >&2
  exit 1
fi
