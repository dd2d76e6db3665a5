# SPDX-License-Identifier: MIT
"""check_symbols.py NM ARCHIVE...: the archives need nothing of the system.

Engines, wire layouts and the model promise to have no input or output. What their object files
leave undefined is the proof: memory and exception helpers of the compiler, each other, and
nothing else. Prints what breaks the promise; exits 1 on any, and when there was nothing to see.
"""
import re
import subprocess
import sys

ALLOWED = re.compile("|".join((
    r"(__)?(memcpy|memmove|memset|memcmp|bcmp|memchr|strlen)(_chk)?",
    r"_Zn[wa][a-zA-Z0-9_]*",  # operator new
    r"_Zd[la][a-zA-Z0-9_]*",  # operator delete
    r"__cxa_\w+", r"_Unwind_\w+", r"__gxx_personality_v0",
    r"_ZSt\d+__throw_\w+",  # std::__throw_length_error and its kind
    r"_ZSt9terminatev",
    r"_ZTVN10__cxxabiv1\w+", r"_ZT[VISN]St\w+", r"_ZNSt\w*(exception|error|bad_\w+)\w*",
    r"_ZNK?St7__cxx1112basic_string\w+",  # std::string, outlined
    r"_ZSt\d+_Rb_tree_\w+",  # std::map and std::set
    r"_ZNK?St8__detail20_Prime_rehash_policy\w+",  # std::unordered_map
    r"_setjmp",  # the start of a guarded access: stores registers, makes no system call
    r"__stack_chk_fail", r"abort", r"_GLOBAL_OFFSET_TABLE_", r"__tls_get_addr",
    r"__cpu_model", r"__cpu_features2", r"__cpu_indicator_init",  # which CPU this is
    r"(__)?getauxval",  # the same on aarch64
    r"__aarch64_\w+", r"__(u?mod|u?div|mul)[dt]i[34]",  # arithmetic of libgcc
)))


def symbols(nm, archive):
    """(defined, [(object, undefined)]) of an archive."""
    output = subprocess.run([nm, "-A", archive], capture_output=True, text=True, check=True).stdout
    defined, undefined = set(), []
    for line in output.splitlines():
        match = re.fullmatch(r"(.*):\s*[0-9a-fA-F]*\s+(\w)\s+(\S+)", line)
        if not match:
            continue
        where, kind, name = match.groups()
        if kind == "U":
            undefined.append((where.rpartition(":")[2], name))
        elif kind != "w":
            defined.add(name)
    return defined, undefined


def violations(nm, archives):
    tables = {archive: symbols(nm, archive) for archive in archives}
    known = set().union(*(defined for defined, _ in tables.values()))
    seen = sum(len(defined) for defined, _ in tables.values())
    bad = [(archive, where, name)
           for archive, (_, undefined) in tables.items() for where, name in undefined
           if name not in known and not ALLOWED.fullmatch(name)]
    return seen, bad


def main():
    nm, archives = sys.argv[1], sys.argv[2:]
    seen, bad = violations(nm, archives)
    for archive, where, name in bad:
        print(f"{archive}: {where} needs {name}")
    print(f"{len(archives)} archives, {seen} symbols, {len(bad)} problems")
    return 1 if bad or seen == 0 else 0


if __name__ == "__main__":
    sys.exit(main())
