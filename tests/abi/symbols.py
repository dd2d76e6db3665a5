#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Compares exported names and versions: symbols.py OBJECT [--allow LIBRARY]...

symbols.txt holds what libibverbs and librdmacm of rdma-core 44.0 export, as `nm -D` prints it
(kind, name and version; @@ marks a default version). OBJECT must export that and nothing else,
need nothing but the C library (and what --allow names: a sanitizer's run-time library), and have
the soname that programs ask for. The host's own libraries, where they are of the same release,
are compared with symbols.txt too.
"""
import argparse
import pathlib
import platform
import re
import subprocess
import sys

HERE = pathlib.Path(__file__).resolve().parent
TABLE = HERE / "symbols.txt"
PRIVATE_NODE = "IBVERBS_PRIVATE_34"
C_LIBRARY = re.compile(r"libc\.so\.6|ld-linux[-\w]*\.so\.\d+|linux-vdso\.so\.1")


def run(*command):
    return subprocess.run(command, text=True, capture_output=True, check=True).stdout


def exported(*objects):
    found = set()
    for path in objects:
        for line in run("nm", "-D", "--defined-only", str(path)).splitlines():
            kind, name = line.split()[-2:]
            found.add(f"{kind} {name}")
    return found


def same(title, got, wanted):
    for name in sorted(wanted - got):
        print(f"{title}: missing {name}")
    for name in sorted(got - wanted):
        print(f"{title}: extra {name}")
    return got == wanted


def dynamic(path):
    tags = re.findall(r"\((NEEDED|SONAME)\)[^\[]*\[([^\]]+)\]", run("readelf", "-d", str(path)))
    return {value for tag, value in tags if tag == "NEEDED"}, dict(tags).get("SONAME")


def check_dynamic(path, allowed):
    needed, soname = dynamic(path)
    extra = [name for name in sorted(needed)
             if not C_LIBRARY.fullmatch(name) and not any(name.startswith(a) for a in allowed)]
    for name in extra:
        print(f"{path} needs {name}")
    if soname != "libibverbs.so.1":
        print(f"{path} has the soname {soname}")
    text_relocations = "TEXTREL" in run("readelf", "-d", str(path))
    if text_relocations:
        print(f"{path} has text relocations")
    return not extra and soname == "libibverbs.so.1" and not text_relocations


def check_host(wanted):
    folders = [pathlib.Path(f"/usr/lib/{platform.machine()}-linux-gnu"),
               pathlib.Path("/usr/lib64"), pathlib.Path("/usr/lib")]
    for folder in folders:
        pair = [folder / "libibverbs.so.1", folder / "librdmacm.so.1"]
        if all(path.exists() for path in pair):
            host = exported(*pair)
            if f"A {PRIVATE_NODE}" not in host:
                print(f"{pair[0]} is of another release: not compared")
                return True
            print(f"compared with {pair[0]} and {pair[1]}")
            return same("symbols.txt against the host's libraries", wanted, host)
    print("libibverbs and librdmacm are not installed: not compared with the host's")
    return True


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("object")
    parser.add_argument("--allow", action="append", default=[])
    arguments = parser.parse_args()
    wanted = set(TABLE.read_text(encoding="ascii").splitlines())
    good = same(arguments.object, exported(arguments.object), wanted)
    good &= check_dynamic(arguments.object, arguments.allow)
    good &= check_host(wanted)
    print(f"{len(wanted)} names")
    return 0 if good else 1


sys.exit(main())
