# SPDX-License-Identifier: MIT
"""A peer that lies in DDP and RDMAP against a live program: support/hostile_peer.py says how.

By hand, for as long as one likes, and against a build with sanitizers:
  run.py --build build-asan --sanitize=address,undefined --preload=... --rounds 500000 --seed 3 \\
    hard.fuzzed
"""
import os
import pathlib
import re

from framework import Failure, case
from support.hostile_peer import HostilePeer, Wrong
from support.processes import free_port, wait_until

CHECK_EVERY = 50
REPORT_EVERY = 20000
# Connections of before still close when the next ones come: far below what a leak would show.
MOST_DESCRIPTORS = 200


class Victim:
    """`start` begins a command over airdma."""

    def __init__(self, run, start, port, address="127.0.0.1"):
        self.run = run
        self.port = port
        victim = run.build / "tests" / "bin" / "hard" / "victim"
        self.input, write_end = os.pipe()
        self.commands = os.fdopen(write_end, "wb", buffering=0)
        self.program = start([victim, port, address], stdin=self.input)
        run.programs.wait_output(self.program, "regions ")
        self.said = 0
        self.settled = None

    def regions_text(self):
        return re.search(r"regions (.*)", self.program.output())[1]

    def regions(self):
        pairs = (word.split("=") for word in self.regions_text().split())
        return {name: tuple(int(part, 16) for part in value.split(":")) for name, value in pairs}

    def check(self):
        """Asks whether all memory is as it must be; returns the answer."""
        self.commands.write(b"\n")
        lines = []

        def answered():
            lines[:] = re.findall(r"^(?:intact|CORRUPT).*$", self.program.output(), re.MULTILINE)
            if self.program.status() is not None:
                raise Failure(f"the victim ended: {self.program}")
            return len(lines) > self.said

        wait_until(answered, self.run.programs.seconds(20), "the victim's answer")
        self.said += 1
        if corrupt := [line for line in lines if line.startswith("CORRUPT")]:
            raise Failure(corrupt[0])
        return lines[-1]

    def footprint(self):
        process = pathlib.Path(f"/proc/{self.program.pid}")
        resident = int(re.search(r"VmRSS:\s+(\d+)", (process / "status").read_text())[1])
        return len(list((process / "fd").iterdir())), resident

    def stays_small(self, done, rounds):
        """After `done` of so many connections."""
        descriptors, resident = self.footprint()
        if descriptors > MOST_DESCRIPTORS:
            raise Failure(f"{descriptors} descriptors after {done} connections")
        # The first ones fill pools; from then on it must not grow.
        self.settled = self.settled or (done > min(2000, rounds // 3) and resident)
        if self.settled and resident > self.settled + (512 if self.run.sanitized else 4) * 1024:
            raise Failure(f"{resident} kB resident after {done} connections, {self.settled} before")
        return f"descriptors={descriptors} kB={resident}"

    def end(self):
        self.check()
        self.commands.close()
        os.close(self.input)
        self.run.succeeds(self.program)


def fuzz(run, rounds, seed):
    victim = Victim(run, lambda *words, **more: run.start(*words, AIRDMA_CM="iwarp", **more),
                    free_port())
    run.programs.wait_listening(victim.program, victim.port)
    peer = HostilePeer(victim.port, victim.regions(), seed)
    try:
        for number in range(rounds):
            try:
                peer.one_connection()
            except Wrong as wrong:
                raise Failure(f"seed {seed}, connection {number}: {wrong}") from None
            if number % CHECK_EVERY == CHECK_EVERY - 1:
                state = victim.check() + " " + victim.stays_small(number + 1, rounds)
            if number % REPORT_EVERY == REPORT_EVERY - 1:
                print(f"{number + 1}: {state}", flush=True)
    finally:
        for name, count in sorted(peer.counts.items()):
            print(f"  {count:8} {name}")
    victim.end()


@case("hard.fuzzed", sanitized=True, timeout_s=120, cm="iwarp")
def fuzzed(run):
    """A few seconds of it with two fixed seeds."""
    rounds = run.rounds or (150 if run.sanitized else 400)
    for seed in ((run.seed,) if run.rounds else (11, 12)):
        fuzz(run, rounds, seed)
