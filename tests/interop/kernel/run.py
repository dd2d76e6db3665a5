# SPDX-License-Identifier: MIT
"""airdma against the Linux kernel's rxe: the same programs at both ends, each side serving once.

    run.py AIRDMA FOLDER [OPTION...] [WORD...]

FOLDER is image.py's; only cases whose names hold all words. Runs in a network and process namespace
of its own (scripts/interop.sh makes them), so nothing that is started here survives it. Prints a
table; the exit status is 1 when anything failed.
"""
import argparse
import contextlib
import os
import pathlib
import re
import subprocess
import sys
import time

HERE = pathlib.Path(__file__).parent
sys.path.insert(0, str(HERE.parents[1] / "support"))
sys.path.insert(0, str(HERE))

import cases  # noqa: E402
import guest as guests  # noqa: E402
import network  # noqa: E402
import speed  # noqa: E402
from processes import Failure, Programs, free_port  # noqa: E402

CASE_S = 120
SIDES = [(family, kernel_serves) for family in (4, 6) for kernel_serves in (True, False)]


class Sides:
    """What both ends of a case are called."""

    def __init__(self, guest, airdma):
        self.guest = guest
        self.airdma = airdma
        self.device = f"roce_{guests.INTERFACE}"
        environment = dict(os.environ, AIRDMA_CM="roce")
        self.environment = environment
        ours = subprocess.run([airdma, "run", "--", "ibv_devinfo", "-v", "-d", self.device],
                              capture_output=True, text=True, env=environment)
        theirs = guest.run("ibv_devinfo -v -d rxe0")
        self.gids = {family: (self._index(ours.stdout, guests.HOST[family]),
                              self._index(theirs.text, guests.ADDRESS[family]))
                     for family in (4, 6)}

    @staticmethod
    def _index(listing, address):
        found = re.search(rf"GID\[ *(\d+)\]:\s+(?:::ffff:)?{re.escape(address)},", listing)
        if not found:
            raise Failure(f"no GID of {address} in:\n{listing}")
        return int(found.group(1))


def run_ends(sides, case, family, kernel_serves, programs, seconds):
    """Both statuses, and what the guest's program said."""
    port = free_port() if case.has_port else None
    ours, theirs = case.commands(sides, family, port, kernel_serves)
    guest = sides.guest
    theirs = f"timeout {seconds} {theirs}"
    if kernel_serves:
        far = guest.start(theirs, seconds + 10)
        case.wait_for_guest(guest, far, port)
        near = programs.start([sides.airdma, "run", "--", *ours.split()])
        near.wait(seconds)
    else:
        near = programs.start([sides.airdma, "run", "--", *ours.split()])
        case.wait_for_ours(programs, near, port)
        far = guest.start(theirs, seconds + 10)
        far.wait()
    text = f"  kernel: {theirs}\n{far.text[-1500:]}"
    try:
        return (near.wait(20), far.wait()), text
    except Failure as failure:
        raise Failure(f"{failure}\n{text}") from None


def exchange(sides, case, family, kernel_serves, seconds=CASE_S):
    """One run; returns nothing or raises Failure with what both sides said."""
    with Programs(sides.environment) as programs:
        try:
            status, text = run_ends(sides, case, family, kernel_serves, programs, seconds)
        except Failure as failure:
            raise Failure(f"{failure}\n{programs.report()}") from None
        if status != (0, 0):
            raise Failure(f"statuses: airdma {status[0]}, kernel {status[1]}\n"
                          f"{programs.report()}{text}")


class Table:
    def __init__(self, sides, options):
        self._sides = sides
        self._options = options
        self.failures = []
        self.runs = 0

    def head(self, title):
        columns = "".join(f"{f'IPv{family}, {self._server(kernel_serves)}':>16}"
                          for family, kernel_serves in SIDES)
        print(f"\n{title + '; server:':<42}{columns}", flush=True)

    @staticmethod
    def _server(kernel_serves):
        return "rxe" if kernel_serves else "airdma"

    def row(self, case):
        print(f"{case.name:<42}", end="", flush=True)
        for family, kernel_serves in SIDES:
            began = time.monotonic()
            if family in case.families:
                word = self._cell(case, family, kernel_serves)
                print(f"{word:>8} {time.monotonic() - began:5.1f} s", end="", flush=True)
            else:
                print(f"{'-':>16}", end="", flush=True)
        print(flush=True)

    def _cell(self, case, family, kernel_serves):
        self.runs += 1
        name = f"{case.name}, IPv{family}, {self._server(kernel_serves)} serves"
        try:
            with network.capture(self._options.capture, f"{self.runs:03} {name}"):
                exchange(self._sides, case, family, kernel_serves, self._options.seconds)
            return "ok"
        except Failure as failure:
            self.failures.append(f"{name}: {failure}")
            return "FAILED"

    def fail(self, text):
        self.failures.append(text)

    def section(self, title, section_cases):
        wanted = [case for case in section_cases
                  if all(word in case.name for word in self._options.words)]
        if not wanted:
            return False
        self.head(title)
        for _ in range(self._options.times):
            for case in wanted:
                self.row(case)
        return True


@contextlib.contextmanager
def disturbed(guest, *commands):
    """While the guest's interface does what tc was told."""
    # With its path, for the guest's shell has a tc of its own.
    script = " && ".join(f"/usr/bin/tc {words}" for words in commands)
    answer = guest.run(script)
    if answer.status != 0:
        raise Failure(f"the guest's network cannot be disturbed: {answer.text}")
    yield
    guest.run("/usr/bin/tc qdisc del dev eth0 root; /usr/bin/tc qdisc del dev eth0 ingress")


def losing(percent):
    return ("qdisc add dev eth0 root netem loss {0}%".format(percent),
            "qdisc add dev eth0 ingress",
            # One of so many.
            "filter add dev eth0 ingress matchall action pass random netrand drop "
            f"{round(100 / percent)}")


def test_congestion(guest, table):
    """rxe neither marks nor notifies; the guest's queue marks, and airdma must say so."""
    with disturbed(guest, "qdisc add dev eth0 root netem loss 20% ecn"), network.Counts() as counts:
        ran = table.section("where packets are marked", cases.marked())
    if not ran:
        return
    print(f"{counts.marks} marks, {counts.notifications} notifications")
    if counts.marks == 0 or counts.notifications == 0:
        table.fail("marks of congestion were not answered with notifications")


def test_all(guest, options, bulk):
    version = guest.run("uname -r").text.strip()
    print(f"airdma against rxe of Linux {version}, MTU 1500, no offloads")
    table = Table(Sides(guest, os.path.abspath(options.airdma)), options)
    table.section("program", cases.unmanaged())
    table.section("with the connection manager", cases.managed())
    table.section("every byte compared", cases.bulk(bulk, options.mebibytes))
    test_congestion(guest, table)
    with disturbed(guest, *losing(options.loss)):
        table.section(f"with {options.loss:g} % loss in both directions",
                      cases.bulk(bulk, options.lossy_mebibytes))
    return table


def parse(arguments):
    parser = argparse.ArgumentParser(prog="make interop CASES=")
    parser.add_argument("airdma", help=argparse.SUPPRESS)
    parser.add_argument("folder", type=pathlib.Path, help=argparse.SUPPRESS)
    parser.add_argument("words", nargs="*", help="only cases (--speed: rows) whose names hold them")
    parser.add_argument("--mebibytes", type=int, default=16, help="that bulk moves")
    parser.add_argument("--lossy-mebibytes", type=int, default=4, help="the same with loss")
    parser.add_argument("--loss", type=float, default=1, help="percent, in each direction")
    parser.add_argument("--times", type=int, default=1, help="that each case runs")
    parser.add_argument("--seconds", type=int, default=CASE_S, help="that each run may take")
    parser.add_argument("--capture", type=pathlib.Path, help="folder for a capture of each run")
    parser.add_argument("--speed", action="store_true",
                        help="measure rxe, siw and airdma inside of the guest instead")
    return parser.parse_intermixed_args(arguments)


def main(arguments):
    options = parse(arguments)
    folder = options.folder
    if options.capture is not None:
        options.capture.mkdir(parents=True, exist_ok=True)
    guests.set_up_network()
    console = folder / "console"
    console.unlink(missing_ok=True)
    guest = guests.Guest(folder / "vmlinuz", folder / "initramfs", console,
                         processors=2 if options.speed else 1)
    try:
        if options.speed:
            return speed.measure(guest, options.words)
        table = test_all(guest, options, folder.absolute() / "bulk")
        trouble = re.findall(r".*(?:BUG|WARNING|Oops).*", guest.console())
    finally:
        guest.end()
    for failure in table.failures:
        print(f"\nFAILED: {failure}")
    for line in trouble:
        print(f"the guest's kernel says: {line}")
    print(f"\ninterop: {max(table.runs - len(table.failures), 0)} of {table.runs} passed")
    return 1 if table.failures else 0


if __name__ == "__main__":
    try:
        sys.exit(main(sys.argv[1:]))
    except (Failure, OSError, subprocess.SubprocessError) as error:
        print(f"interop FAILED: {error}", file=sys.stderr)
        sys.exit(1)
