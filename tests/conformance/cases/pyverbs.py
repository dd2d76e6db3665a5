# SPDX-License-Identifier: MIT
"""rdma-core's own tests, as Debian's python3-pyverbs brings them; pyverbs/suite.py runs them."""
import contextlib
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
FEWEST_PASSED_ROCE = 145
HUGE_PAGES = pathlib.Path("/sys/kernel/mm/hugepages/hugepages-2048kB/nr_hugepages")

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

# The same on a RoCEv2 device.
ROCE_SKIPS = {
    "another maker's device": SKIPS["another maker's device"],
    "a graphics card's memory": SKIPS["a graphics card's memory"],
    "no tag matching": SKIPS["no tag matching"],
    "the machine has no huge pages": SKIPS["the machine has no huge pages"],
    "no raw packets, no steering": r"QP type 8|Raw Packet QP",
    "no atomic writes": r"^Extended QP is not supported",
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


def set_huge_pages(count):
    """False where there are none, or only root may say how many."""
    try:
        HUGE_PAGES.write_text(str(count))
        return True
    except OSError:
        return False


@contextlib.contextmanager
def huge_pages():
    """Some of 2 MiB as long as it lasts; yields whether there are any."""
    there = HUGE_PAGES.exists() and int(HUGE_PAGES.read_text()) > 0
    if there or not set_huge_pages(64):
        yield there
        return
    try:
        yield int(HUGE_PAGES.read_text()) > 0
    finally:
        set_huge_pages(0)


def outcomes(output):
    """Name -> what the suite said of it."""
    return dict(re.findall(r"^(tests\.[\w.]+): (.*)$", output, re.MULTILINE))


def run_suite(run, runner, *arguments):
    """The suite's outcomes; none may be bad."""
    if not (SUITE / "run_tests.py").exists():
        raise Skip(f"no {SUITE}: the system leaves documents out, or python3-pyverbs")
    if subprocess.run([PYTHON, "-c", "import pyverbs"], capture_output=True).returncode != 0:
        raise Skip("python3-pyverbs is not installed")
    script = pathlib.Path(__file__).resolve().parent.parent / "pyverbs" / runner
    with tempfile.TemporaryDirectory() as folder:
        unpacked(folder)
        program = run.start([PYTHON, "-B", script, folder, *arguments])
        program.wait(run.programs.seconds(280))
    verdicts = outcomes(program.output())
    bad = [f"{name}: {text}" for name, text in verdicts.items()
           if text.startswith(("ERROR", "FAILED"))]
    if bad or program.status() != 0:
        raise Failure(f"status {program.status()}, " + "; ".join(bad))
    return verdicts


def judge(verdicts, skips, fewest_passed):
    """Whatever was left out has its reason, and enough was not."""
    counts = {}
    strange = []
    for name, text in verdicts.items():
        if not text.startswith("skipped: "):
            continue
        reason = next((reason for reason, pattern in skips.items()
                       if re.search(pattern, text.removeprefix("skipped: "))), None)
        if reason is None:
            strange.append(f"{name}: {text}")
        counts[reason] = counts.get(reason, 0) + 1
    if strange:
        raise Failure("skipped for reasons that are not listed: " + "; ".join(strange))
    passed = sum(text == "ok" for text in verdicts.values())
    if passed < fewest_passed:
        raise Failure(f"{passed} tests passed, fewer than {fewest_passed}")
    print(f"pyverbs: {passed} passed; skipped: {counts}")


@case("pyverbs.suite", needs=["ip"], timeout_s=300, cm="iwarp")
def suite(run):
    """Over iWARP, with what suite.py answers for the device."""
    judge(run_suite(run, "suite.py", "--dev", "iwarp_lo"), SKIPS, FEWEST_PASSED)


@case("pyverbs.roce", needs=["ip"], timeout_s=300)
def roce(run):
    """Over RoCEv2, as they are."""
    with huge_pages() as there:
        judge(run_suite(run, "unchanged.py", "--dev", "roce_lo", "--gid", 0), ROCE_SKIPS,
              FEWEST_PASSED_ROCE if there else FEWEST_PASSED_ROCE - 3)
