#!/bin/bash
# SPDX-License-Identifier: MIT
# interop.sh [OPTION...] [WORD...]: airdma against the Linux kernel's rxe in a virtual machine; only
# the cases whose names hold all words. --help tells the options. With --speed it measures airdma, rxe
# and siw inside of the virtual machine instead; siw if SIW_MODULE names a siw.ko of its kernel.
# Everything happens in a network and process namespace of its own, which the kernel clears away with
# all that runs in it, however this script ends.
set -u
cd "$(dirname "$0")/.." || exit 1

skip() {
  echo "interop SKIPPED, nothing was tested: $*" >&2
  exit 0
}

[ "$(uname -m)" = x86_64 ] || skip "the guest is made for x86_64"
[ "$(id -u)" = 0 ] || skip "it needs root, for a network namespace and a tap interface"
[ -c /dev/net/tun ] || skip "it needs /dev/net/tun"
for tool in qemu-system-x86_64 apt-get dpkg-deb depmod ip unshare cc; do
  command -v "$tool" >/dev/null || skip "it needs $tool"
done
unshare --net --pid --fork --mount-proc true 2>/dev/null ||
  skip "namespaces cannot be made here"

inside=
case " $* " in *" --speed "*) inside="build ${SIW_MODULE:-}" ;; esac
# shellcheck disable=SC2086
python3 -B tests/interop/kernel/image.py build/interop $inside || exit 1
exec unshare --net --pid --fork --kill-child --mount-proc \
  python3 -B tests/interop/kernel/run.py build/bin/airdma build/interop "$@"
