#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""run.py --build DIR [CASE...]: unmodified programs over airdma, judged by what they did.

  run.py --list                 names, whether sanitized builds run them, and time limits
  run.py --build build rping.ipv4
  run.py --build build --rounds 200 --seed 7 hard.kill_rping

A case starts servers and clients under DIR/bin/airdma run and judges exit statuses and output:
many RDMA programs print success although completions failed. Exit status: 0, 1 when a case
failed, 77 when all were skipped. Cases live in cases/ and hard/; see framework.py.
"""
import argparse
import os
import pathlib
import sys
import time
import traceback

HERE = pathlib.Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE.parent)]

import framework  # noqa: E402
from support.processes import Failure, Programs, Skip  # noqa: E402

SKIPPED = 77


def parse(arguments):
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("cases", nargs="*", help="names; all when none is given")
    parser.add_argument("--list", action="store_true")
    parser.add_argument("--build", type=pathlib.Path)
    parser.add_argument("--sanitize", default="", help="value of -fsanitize= of the build")
    parser.add_argument("--preload", default="", help="run-time library of the sanitizer")
    parser.add_argument("--rounds", type=int, help="repetitions, in cases that repeat")
    parser.add_argument("--seed", type=int, default=1, help="of random moments")
    return parser.parse_args(arguments)


def environment(options):
    """The programs' environment: this one, and what a sanitizer wants."""
    variables = dict(os.environ, LC_ALL="C")
    for name in ("LD_LIBRARY_PATH", "AIRDMA_CM"):
        variables.pop(name, None)
    if options.preload:
        variables["LD_PRELOAD"] = options.preload
    # Unmodified programs leak at exit, and so do not we: leaks with them on the stack are theirs.
    suppressions = HERE / "lsan-suppressions.txt"
    variables["LSAN_OPTIONS"] = f"suppressions={suppressions}:print_suppressions=0"
    return variables


def judge(case, options):
    """Runs one case and prints one line, or everything when it failed."""
    started = time.monotonic()
    problem = ""
    with Programs(environment(options), 6.0 if options.sanitize else 1.0,
                  fixed_addresses="thread" in options.sanitize) as programs:
        try:
            case.check_requirements()
            case.function(framework.Run(programs, options, case.variables))
            framework.check_sanitizers(programs)
            verdict = "passed"
        except Skip as reason:
            verdict = f"SKIP: {reason}"
        except Exception as failure:
            verdict = "FAILED"
            text = str(failure) if isinstance(failure, Failure) else traceback.format_exc()
            problem = f"  {text}\n{programs.report()}"
    print(f"{case.name}: {verdict} ({time.monotonic() - started:.1f} s)\n{problem}", end="",
          flush=True)
    return verdict.split(":")[0]


def main(arguments):
    options = parse(arguments)
    cases = framework.load(HERE)
    if options.list:
        for case in cases.values():
            print(f"{case.name} {int(case.sanitized)} {case.timeout_s}")
        return 0
    if options.build is None or not (options.build / "bin" / "airdma").exists():
        print("run.py: --build names a build folder with bin/airdma", file=sys.stderr)
        return 2
    unknown = [name for name in options.cases if name not in cases]
    if unknown:
        print(f"run.py: no such case: {' '.join(unknown)}", file=sys.stderr)
        return 2
    verdicts = {judge(cases[name], options) for name in options.cases or cases}
    if "FAILED" in verdicts:
        return 1
    return 0 if "passed" in verdicts else SKIPPED


sys.exit(main(sys.argv[1:]))
