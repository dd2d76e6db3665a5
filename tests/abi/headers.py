#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Compiles each public header alone, as C and as C++: headers.py CC CXX

A program may include any of them first, so each must bring what it needs. `--source` prints a
C file that includes all.
"""
import subprocess
import sys

HEADERS = [
    "infiniband/arch.h",
    "infiniband/ib.h",
    "infiniband/ib_user_ioctl_verbs.h",
    "infiniband/opcode.h",
    "infiniband/sa.h",
    "infiniband/tm_types.h",
    "infiniband/verbs.h",
    "infiniband/verbs_api.h",
    "rdma/rdma_cma.h",
    "rdma/rdma_verbs.h",
    "rdma/rsocket.h",
]


def compiles(compiler, language, standard, source):
    command = [compiler, "-x", language, f"-std={standard}", "-Wall", "-fsyntax-only", "-"]
    done = subprocess.run(command, input=source, text=True, capture_output=True, check=False)
    if done.returncode != 0:
        print(f"{' '.join(command)}\n{source}{done.stderr}")
    return done.returncode == 0


def main():
    source = "".join(f"#include <{header}>\n" for header in HEADERS)
    if sys.argv[1:] == ["--source"]:
        print(source, end="")
        return 0
    cc, cxx = sys.argv[1:]
    good = True
    # GNU dialects as programs use them, the oldest and the newest of each language.
    for compiler, language, standards in ((cc, "c", ("gnu99", "gnu11")),
                                          (cxx, "c++", ("gnu++11", "gnu++20"))):
        for standard in standards:
            for header in HEADERS:
                # Twice: the include guard is part of a header.
                good &= compiles(compiler, language, standard, f"#include <{header}>\n" * 2)
            good &= compiles(compiler, language, standard, source)
    return 0 if good else 1


sys.exit(main())
