#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Writes layouts-<machine>.txt from the public headers, with gdb (only for who renews it):

    ./headers.py --source > all.c
    gcc -g -fno-eliminate-unused-debug-types -c all.c
    gdb -batch -ex 'python import sys; sys.argv = ["x", "OUTPUT"]' -x make_layouts.py all.o

One line per struct and per member, unions and nested structs followed down to their members:

    struct ibv_sge 16
    struct ibv_sge addr 0
"""
import re
import sys

import gdb


def members(gdb_type, path=""):
    for field in gdb_type.fields():
        if field.bitsize or field.artificial:
            continue
        inner = field.type.strip_typedefs()
        name = path + field.name if field.name else path.rstrip(".")
        nested = inner.code in (gdb.TYPE_CODE_STRUCT, gdb.TYPE_CODE_UNION)
        # A struct with a name has lines of its own.
        if field.name:
            yield name, field.bitpos // 8
        if nested and not inner.name:
            below = name + "." if field.name else path
            for inner_name, offset in members(inner, below):
                yield inner_name, field.bitpos // 8 + offset


def public_types():
    # gdb's own pattern knows no alternation.
    text = gdb.execute("info types _", to_string=True)
    found = re.findall(r"(struct|union) (\w+);", text)
    public = re.compile(r"_?(ibv|rdma|verbs)_\w+|sockaddr_ib|ib_addr")
    return sorted({(kind, name) for kind, name in found if public.fullmatch(name)})


def main():
    with open(sys.argv[1], "w", encoding="ascii") as out:
        for kind, name in public_types():
            gdb_type = gdb.lookup_type(f"{kind} {name}")
            if not gdb_type.fields():
                continue
            print(kind, name, gdb_type.sizeof, file=out)
            for member, offset in members(gdb_type):
                print(kind, name, member, offset, file=out)


main()
