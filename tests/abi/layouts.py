#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Checks sizes and offsets of all public structs: layouts.py CC CXX

Programs were compiled with the layouts of the table; the headers that airdma is compiled with
must have the same ones. The compiler itself compares, as C and as C++. A struct in a header
that the table does not know is an error too. Skips (77) where there is no table.
"""
import pathlib
import platform
import re
import subprocess
import sys

HERE = pathlib.Path(__file__).resolve().parent
PUBLIC = re.compile(r"_?(ibv|rdma|verbs)_\w+|sockaddr_ib|ib_addr")


def headers():
    listing = subprocess.run([sys.executable, HERE / "headers.py", "--source"], text=True,
                             capture_output=True, check=True)
    return listing.stdout


def assertion(line):
    """`kind name size` or `kind name member offset` as a static assertion."""
    kind, name, *rest = line.split()
    if len(rest) == 1:
        value, expected = f"sizeof({kind} {name})", rest[0]
    else:
        value, expected = f"offsetof({kind} {name}, {rest[0]})", rest[1]
    return f'AIRDMA_CHECK({value} == {expected}, "{line}");'


def check(compiler, language, table):
    source = headers() + "#include <stddef.h>\n"
    source += "#define AIRDMA_CHECK " + ("static_assert" if language == "c++" else
                                        "_Static_assert") + "\n"
    source += "\n".join(assertion(line) for line in table) + "\n"
    done = subprocess.run([compiler, "-x", language, "-w", "-fsyntax-only", "-"], input=source,
                          text=True, capture_output=True, check=False)
    if done.returncode != 0:
        print(f"{compiler} as {language}:\n{done.stderr}")
    return done.returncode == 0


def unknown_structs(compiler, table):
    text = subprocess.run([compiler, "-x", "c", "-E", "-P", "-w", "-"], input=headers(),
                          text=True, capture_output=True, check=True).stdout
    defined = {name for name in re.findall(r"\b(?:struct|union)\s+(\w+)\s*\{", text)
               if PUBLIC.fullmatch(name)}
    known = {line.split()[1] for line in table}
    for name in sorted(defined - known):
        print(f"{name}: defined in a header, not in the table")
    for name in sorted(known - defined):
        print(f"{name}: in the table, not in a header")
    return defined == known


def main():
    cc, cxx = sys.argv[1:]
    path = HERE / f"layouts-{platform.machine()}.txt"
    if not path.exists():
        print(f"skipped: no table {path.name}; make_layouts.py writes it")
        return 77
    table = path.read_text(encoding="ascii").splitlines()
    good = check(cc, "c", table)
    good &= check(cxx, "c++", table)
    good &= unknown_structs(cc, table)
    print(f"{len(table)} sizes and offsets compared")
    return 0 if good else 1


sys.exit(main())
