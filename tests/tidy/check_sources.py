# SPDX-License-Identifier: MIT
"""check_sources.py ROOT: applies source_rules to the project; prints problems, exits 1 on any."""
import os
import pathlib
import sys

import source_rules as rules

# What the project consists of; anything else in the folder (builds, captures) is not ours.
PLACES = ("CMakeLists.txt", "Makefile", ".ci", "src", "include", "tools", "tests", "examples",
          "fuzz", "bench", "cmake", "scripts")
CODE = (".cc", ".h", ".c", ".hpp")
TEXT = (".py", ".sh", ".cmake", ".map")
DATA_FOLDERS = ("data", "captures", "corpus", "corpora", "__pycache__")


def is_script(path):
    if path.suffix or not os.access(path, os.X_OK):
        return path.name in ("Makefile", "CMakeLists.txt")
    with path.open("rb") as file:
        return file.read(2) == b"#!"


def sources(root):
    for place in PLACES:
        top = root / place
        files = [top] if top.is_file() else sorted(top.rglob("*")) if top.is_dir() else []
        for path in files:
            relative = path.relative_to(root)
            if not path.is_file() or any(part in DATA_FOLDERS for part in relative.parts):
                continue
            if path.suffix in CODE + TEXT or is_script(path):
                yield path


def problems_of(path, name, table):
    text = path.read_text(encoding="utf-8")
    code = path.suffix in CODE
    found = rules.check_spdx(text) + rules.check_layout(text, code) + rules.check_unfinished(text)
    found += rules.check_file_length(text)
    if code:
        found += rules.check_banned(text, name) + rules.check_function_length(text)
    if code and name.startswith("src/"):
        found += rules.check_layers(text, name, table)
    return found


def main():
    root = pathlib.Path(sys.argv[1]).resolve()
    table = rules.layer_table((root / "cmake" / "AirdmaLayer.cmake").read_text())
    count = bad = 0
    for path in sources(root):
        count += 1
        name = path.relative_to(root).as_posix()
        for line, message in problems_of(path, name, table):
            bad += 1
            print(f"{name}:{line}: {message}")
    print(f"{count} files, {bad} problems")
    # A check that saw nothing proves nothing.
    return 1 if bad or count == 0 or not table else 0


if __name__ == "__main__":
    sys.exit(main())
