# SPDX-License-Identifier: MIT
"""rdma-core's own tests, as Debian's python3-pyverbs brings them; pyverbs/suite.py runs them."""
import gzip
import pathlib
import re
import subprocess
import tempfile

from framework import Failure, case
from support.processes import Skip

SUITE = pathlib.Path("/usr/share/doc/rdma-core/tests")
PYTHON = "/usr/bin/python3"  # the one that Debian's module is for
FEWEST_PASSED = 88

# Why a test may be left out on an iWARP device; docs/compatibility.md has the counts.
SKIPS = {
    "another maker's device": r"non MLX5 device|not an MLX5 device|non EFA device"
                              r"|Converting timestamp|PCI device must be passed",
    "a graphics card's memory": r"cuda-python|dmabuf|/dev/dri",
    "no such queue pairs on iWARP": r"QP type [^2]\b|(UD|UC|Raw Packet) QP |XRCD|with type"
                                    r"|iWARP has no datagrams|Create AH|Multicast|Extended QP"
                                    r"|ODP is unavailable",
    "no RoCE addresses on iWARP": r"No supported port is up",
    "a sender does not learn of the target": r"iWARP does not tell",
    "a type of window that there is not": r"window of type 3",
    "no tag matching": r"^Extended CQ is not supported|TM ",
    "the machine has no huge pages": r"[Hh]uge pages",
    "no steering": r"[Ff]low|[Cc]ounters",
}


def unpacked(folder):
    """The suite in FOLDER/tests: Debian compresses its larger files."""
    target = pathlib.Path(folder) / "tests"
    target.mkdir()
    for source in SUITE.iterdir():
        if source.suffix == ".gz":
            (target / source.stem).write_bytes(gzip.decompress(source.read_bytes()))
        elif source.is_file():
            (target / source.name).write_bytes(source.read_bytes())


def reason_of(skip):
    return next((name for name, pattern in SKIPS.items() if re.search(pattern, skip)), None)


def outcomes(output):
    """Name -> what the suite said of it."""
    return dict(re.findall(r"^(tests\.[\w.]+): (.*)$", output, re.MULTILINE))


@case("pyverbs.suite", needs=["ip"], timeout_s=300)
def suite(run):
    if not (SUITE / "run_tests.py").exists():
        raise Skip(f"no {SUITE}: the system leaves documents out, or python3-pyverbs")
    if subprocess.run([PYTHON, "-c", "import pyverbs"], capture_output=True).returncode != 0:
        raise Skip("python3-pyverbs is not installed")
    runner = pathlib.Path(__file__).resolve().parent.parent / "pyverbs" / "suite.py"
    with tempfile.TemporaryDirectory() as folder:
        unpacked(folder)
        program = run.start([PYTHON, "-B", runner, folder, "--dev", "iwarp_lo"])
        program.wait(run.programs.seconds(280))
    verdicts = outcomes(program.output())
    bad = [f"{name}: {text}" for name, text in verdicts.items()
           if text.startswith(("ERROR", "FAILED"))]
    if bad or program.status() != 0:
        raise Failure(f"status {program.status()}, " + "; ".join(bad))
    skipped = {name: text for name, text in verdicts.items() if text.startswith("skipped: ")}
    strange = [f"{name}: {text}" for name, text in skipped.items()
               if reason_of(text.removeprefix("skipped: ")) is None]
    if strange:
        raise Failure("skipped for reasons that are not listed: " + "; ".join(strange))
    passed = sum(text == "ok" for text in verdicts.values())
    if passed < FEWEST_PASSED:
        raise Failure(f"{passed} tests passed, fewer than {FEWEST_PASSED}")
    counts = {}
    for text in skipped.values():
        reason = reason_of(text.removeprefix("skipped: "))
        counts[reason] = counts.get(reason, 0) + 1
    print(f"pyverbs: {passed} passed; skipped: {counts}")
