#!/bin/sh
# SPDX-License-Identifier: MIT
# install-deps.sh [build|demo|test|bench|fuzz|interop]...
# Installs the Debian packages a task needs and that are missing; calls apt only when one is.
# Runs as root or through sudo. `--list` prints the packages instead.
set -eu

build="g++ cmake ninja-build libibverbs-dev librdmacm-dev libfmt-dev libcli11-dev"
demo="rdmacm-utils"
test="libgtest-dev libgmock-dev libbenchmark-dev libisal-dev zlib1g-dev tshark perftest qperf ibverbs-utils
      rdmacm-utils fio iproute2 python3 python3-pyverbs rdma-core procps strace binutils
      ucx-utils libfabric-bin openmpi-bin libopenmpi-dev mpich libmpich-dev"
bench="libbenchmark-dev libisal-dev libfabric-dev perftest rdmacm-utils iperf3 ucx-utils iproute2
       util-linux procps python3"
fuzz="clang-19 clang-tidy-19 clang-format-19 libclang-rt-19-dev"
interop="qemu-system-x86 ibverbs-providers ibverbs-utils rdmacm-utils perftest iproute2 kmod python3
         util-linux"

list_only=false
wanted=
for task in "${@:-build}"; do
  case "$task" in
    --list) list_only=true ;;
    build) wanted="$wanted $build" ;;
    demo) wanted="$wanted $build $demo" ;;
    test) wanted="$wanted $build $test" ;;
    bench) wanted="$wanted $build $bench" ;;
    fuzz) wanted="$wanted $build $test $fuzz" ;;
    interop) wanted="$wanted $build $interop" ;;
    *) echo "install-deps.sh: unknown task '$task'" >&2; exit 2 ;;
  esac
done
if $list_only; then
  for package in $wanted; do echo "$package"; done | sort -u
  exit 0
fi

if ! command -v dpkg-query >/dev/null 2>&1; then
  echo "install-deps.sh: not a Debian system; these packages' equivalents are needed:" $wanted >&2
  exit 0
fi

installed() {
  dpkg-query -W -f '${db:Status-Status}\n' "$1" 2>/dev/null | grep -qx installed
}
missing_of() {
  for package in "$@"; do
    installed "$package" || echo "$package"
  done | sort -u
}

# clang-19 is in Debian 12 itself; the runtime library of the sanitizers has its own package.
missing=$(missing_of $wanted)
[ -n "$missing" ] || exit 0

if [ "$(id -u)" = 0 ]; then
  as_root="env"
elif command -v sudo >/dev/null 2>&1; then
  as_root="sudo env"
else
  echo "install-deps.sh: as root, install:" $missing >&2
  exit 1
fi

echo "installing:" $missing
apt_get() {
  # </dev/null and the front end: a package's question takes its default and never waits.
  $as_root DEBIAN_FRONTEND=noninteractive apt-get -y -q -o Dpkg::Use-Pty=0 \
    -o DPkg::Lock::Timeout=300 "$@" </dev/null
}
# A package list that is absent or too old shows as a failed install: fetch it, try once more.
apt_get install --no-install-recommends $missing >/dev/null 2>&1 || {
  apt_get update
  apt_get install --no-install-recommends $missing
}
