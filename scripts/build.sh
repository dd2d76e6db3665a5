#!/bin/sh
# SPDX-License-Identifier: MIT
# build.sh PRESET [JOBS [TARGET]]: configures and builds. TARGET is "product" (what is installed,
# and the examples) unless "all" asks for the tests too.
set -eu
preset=$1
jobs=${2:-$(nproc)}
target=${3:-product}
cd "$(dirname "$0")/.."

log=$(mktemp)
trap 'rm -f "$log"' EXIT
if ! cmake --preset "$preset" >"$log" 2>&1 </dev/null; then
  cat "$log" >&2
  exit 1
fi
# A compiler takes up to 1 GB here; do not start more of them than memory holds.
memory_gb=$(awk '/^MemAvailable/ {print int($2 / 1048576)}' /proc/meminfo)
if [ "$memory_gb" -lt "$jobs" ]; then jobs=$((memory_gb > 1 ? memory_gb : 1)); fi
exec cmake --build --preset "$preset" -j "$jobs" --target "$target" </dev/null
