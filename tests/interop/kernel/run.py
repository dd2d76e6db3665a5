# SPDX-License-Identifier: MIT
"""airdma against the Linux kernel's rxe: the same programs at both ends, each side serving once.

    run.py AIRDMA FOLDER [WORD...]     FOLDER is image.py's; only cases whose names hold all words

Runs in a network and process namespace of its own (scripts/interop.sh makes them), so nothing that
is started here survives it. Prints a table; the exit status is 1 when anything failed.
"""
import os
import pathlib
import re
import subprocess
import sys
import time

HERE = pathlib.Path(__file__).parent
sys.path.insert(0, str(HERE.parents[1] / "support"))
sys.path.insert(0, str(HERE))

import guest as guests  # noqa: E402
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


def exchange(sides, case, family, kernel_serves):
    """One run; returns nothing or raises Failure with what both sides said."""
    port = free_port() if case.has_port else None
    ours, theirs = case.commands(sides, family, port, kernel_serves)
    guest = sides.guest
    theirs = f"timeout {CASE_S} {theirs}"
    with Programs(sides.environment) as programs:
        try:
            if kernel_serves:
                far = guest.start(theirs, CASE_S + 10)
                guest.wait_listening(far, port)
                near = programs.start([sides.airdma, "run", "--", *ours.split()])
                near.wait(CASE_S)
            else:
                near = programs.start([sides.airdma, "run", "--", *ours.split()])
                programs.wait_listening(near, port)
                far = guest.start(theirs, CASE_S + 10)
                far.wait()
            status = near.wait(20), far.wait()
        except Failure as failure:
            raise Failure(f"{failure}\n{programs.report()}") from None
        if status != (0, 0):
            raise Failure(f"statuses: airdma {status[0]}, kernel {status[1]}\n{programs.report()}"
                          f"  kernel: {theirs}\n{far.text[-1500:]}")


class Case:
    """A program that meets its peer on a TCP port and takes device and GID as arguments."""

    has_port = True

    def __init__(self, command, gid_option):
        self.name = command
        self._gid_option = gid_option

    def commands(self, sides, family, port, kernel_serves):
        our_gid, their_gid = sides.gids[family]
        ours = f"{self.name} -p {port} -d {sides.device} {self._gid_option} {our_gid}"
        theirs = f"{self.name} -p {port} -d rxe0 {self._gid_option} {their_gid}"
        # The TCP connection need not be of the family that is tested.
        if kernel_serves:
            return f"{ours} {guests.ADDRESS[4]}", theirs
        return ours, f"{theirs} {guests.HOST[4]}"


class Bulk:
    """bulk.c: every byte compared."""

    has_port = True

    def __init__(self, operation, mebibytes, program):
        self.name = f"bulk {operation} {mebibytes} MiB"
        self._rest = f"{operation} {mebibytes}"
        self._program = program

    def commands(self, sides, family, port, kernel_serves):
        our_gid, their_gid = sides.gids[family]
        ours = f"{self._program} {sides.device} {our_gid} {self._rest} {port}"
        theirs = f"bulk rxe0 {their_gid} {self._rest} {port}"
        if kernel_serves:
            return f"{ours} {guests.ADDRESS[family]}", theirs
        return ours, f"{theirs} {guests.HOST[family]}"


def cases(bulk):
    pingpongs = [Case(f"ibv_{kind}_pingpong -n 50 -c -s {size}", "-g")
                 for kind, size in (("rc", 1), ("rc", 5000), ("rc", 262144), ("uc", 5000),
                                    ("ud", 1000), ("srq", 5000))]
    perftests = [Case(f"ib_{verb}_{kind} -n 100 -s {size}", "-x")
                 for verb in ("send", "write", "read")
                 for kind, size in (("bw", 64), ("bw", 65536), ("lat", 64))]
    services = [Case(f"ib_{verb} -c {service} -n 100 -s 1000", "-x")
                for verb, service in (("send_bw", "UC"), ("write_bw", "UC"), ("send_bw", "UD"),
                                      ("send_lat", "UD"))]
    atomics = [Case(f"ib_atomic_{kind} -n 100 -A {operation}", "-x")
               for kind, operation in (("bw", "FETCH_AND_ADD"), ("lat", "CMP_AND_SWAP"))]
    moved = [Bulk(operation, 16, bulk) for operation in ("send", "write", "read")]
    return pingpongs + perftests + services + atomics + moved


# With its path, for the guest's shell has a tc of its own.
LOSS = " && ".join(f"/usr/bin/tc {words}" for words in (
    "qdisc add dev eth0 root netem loss 1%", "qdisc add dev eth0 ingress",
    "filter add dev eth0 ingress matchall action pass random netrand drop 100"))


class Table:
    def __init__(self, sides):
        self._sides = sides
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
            self.runs += 1
            try:
                exchange(self._sides, case, family, kernel_serves)
                word = "ok"
            except Failure as failure:
                word = "FAILED"
                self.failures.append(
                    f"{case.name}, IPv{family}, {self._server(kernel_serves)} serves: {failure}")
            print(f"{word:>8} {time.monotonic() - began:5.1f} s", end="", flush=True)
        print(flush=True)


def main(airdma, folder, words):
    folder = pathlib.Path(folder)
    bulk = folder.absolute() / "bulk"
    guests.set_up_network()
    console = folder / "console"
    console.unlink(missing_ok=True)
    guest = guests.Guest(folder / "vmlinuz", folder / "initramfs", console)
    try:
        version = guest.run("uname -r").text.strip()
        print(f"airdma against rxe of Linux {version}, MTU 1500, no offloads")
        sides = Sides(guest, os.path.abspath(airdma))
        table = Table(sides)
        wanted = [case for case in cases(bulk) if all(word in case.name for word in words)]
        table.head("program")
        for case in wanted:
            table.row(case)
        if guest.run(LOSS).status != 0:
            raise Failure("the guest cannot be told to lose packets")
        table.head("with 1 % loss in both directions")
        for case in [Bulk(operation, 4, bulk) for operation in ("send", "write", "read")]:
            table.row(case)
        trouble = re.findall(r".*(?:BUG|WARNING|Oops).*", guest.console())
    finally:
        guest.end()
    for failure in table.failures:
        print(f"\nFAILED: {failure}")
    for line in trouble:
        print(f"the guest's kernel says: {line}")
    print(f"\ninterop: {table.runs - len(table.failures)} of {table.runs} passed")
    return 1 if table.failures else 0


if __name__ == "__main__":
    try:
        sys.exit(main(sys.argv[1], sys.argv[2], sys.argv[3:]))
    except (Failure, OSError, subprocess.SubprocessError) as error:
        print(f"interop FAILED: {error}", file=sys.stderr)
        sys.exit(1)
