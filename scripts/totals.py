#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""totals.py DIR: sums the JUnit files ctest left in DIR; the last line is the totals.

Exits 1 when a test failed, and when nothing ran at all.
"""
import pathlib
import sys
import xml.etree.ElementTree as ElementTree


def skipped_itself(case):
    """ctest says "notrun" for a test that skipped itself and for one whose program is missing."""
    skip = case.find("skipped")
    return skip is not None and skip.get("message", "").startswith("SKIP")


def main():
    passed, failed, skipped = 0, [], []
    for path in sorted(pathlib.Path(sys.argv[1]).glob("*.xml")):
        for case in ElementTree.parse(path).getroot().iter("testcase"):
            name = case.get("name")
            if case.get("status") == "run":
                passed += 1
            elif case.get("status") == "disabled" or skipped_itself(case):
                skipped.append(name)
            else:
                failed.append(name)
    for name in failed:
        print(f"FAILED: {name}")
    for name in skipped:
        print(f"skipped: {name}")
    print(f"{passed} passed, {len(failed)} failed, {len(skipped)} skipped")
    return 1 if failed or passed == 0 else 0


sys.exit(main())
