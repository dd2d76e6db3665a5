# SPDX-License-Identifier: MIT
"""A peer on another host that lies in InfiniBand's transport and in its management datagrams:
support/hostile_roce_peer.py says how. Each hundred connections are a process of their own, which
begins with a seed of its own.

By hand, for as long as one likes, and against a build with sanitizers:
  run.py --build build-asan --sanitize=address,undefined --preload=... --rounds 100000 --seed 3 \\
    hard.roce_hostile
"""
import collections
import json
import pathlib
import sys

from framework import Failure, case
from hard_fuzzed import Victim
from support.network import Cable
from support.processes import free_port

PEER = pathlib.Path(__file__).resolve().parents[2] / "support" / "hostile_roce_peer.py"
OTHER_ADDRESS = "10.99.8.3"  # the peer's host has it, too, but its connections are not from there
A_PROCESS = 100
REPORT_EVERY = 5000


def attack(run, cable, victim, seed, rounds):
    """One process's connections; what it did how often."""
    # A program of Python is no place for a sanitizer.
    peer = run.programs.start(cable.far.inside(
        [sys.executable, "-B", PEER, cable.far_address, OTHER_ADDRESS, cable.near_address,
         victim.port, seed, rounds, victim.regions_text()]), LD_PRELOAD="")
    status = peer.wait(run.programs.seconds(600))
    lines = peer.output().splitlines()
    if status != 0:
        raise Failure("\n".join(lines[:-1]) or f"the peer ended with {status}: {peer.errors()}")
    peer.close()
    run.programs.all.remove(peer)
    return json.loads(lines[-1])


def fuzz(run, rounds, seed):
    counts = collections.Counter()
    with Cable() as cable:
        cable.far.run("ip", "address", "add", f"{OTHER_ADDRESS}/24", "dev", "v1")
        airdma = [run.build / "bin" / "airdma", "run", "--"]

        def start(command, **more):
            return run.programs.start(cable.near.inside([*airdma, *command]), AIRDMA_CM="roce", **more)

        victim = Victim(run, start, free_port(), cable.near_address)
        try:
            for done in range(0, rounds, A_PROCESS):
                counts.update(attack(run, cable, victim, f"{seed}.{done // A_PROCESS}",
                                     min(A_PROCESS, rounds - done)))
                state = victim.check() + " " + victim.stays_small(done + A_PROCESS, rounds)
                if done % REPORT_EVERY == 0:
                    print(f"{done}: {state}", flush=True)
        finally:
            for name, count in sorted(counts.items()):
                print(f"  {count:8} {name}")
        victim.end()


@case("hard.roce_hostile", needs=["nsenter", "ip"], sanitized=True, timeout_s=120)
def hostile(run):
    """A few seconds of it."""
    fuzz(run, run.rounds or 300, run.seed)
