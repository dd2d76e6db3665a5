#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Whole programs over airdma beside the same work on bare TCP and on other libraries, as ratios.

    compare.py --airdma build-bench/bin/airdma --bin build-bench/bench/programs/bin

perftest's unmodified programs run over airdma on 127.0.0.1, one end on the first CPU and one on
the last. In every round each is followed by its peers on the same CPUs with the same congestion
control, so that all meet the same machine. A spin ping-pong before and after each program shows how
far apart the two CPUs are just then: what was measured while that was over 100 ns, and well over
the lowest of the run, is set aside, unless fewer than three rounds would be left (marked *).
Compare ratios, and only within one run. Nothing here passes or fails by time; the exit status is 1
only when a program did not work.

AIRDMA_BENCH_ROWS names the groups of rows to run, with commas, AIRDMA_BENCH_ROUNDS how often.
"""
import argparse
import math
import os
import re
import subprocess
import sys
import time

from contenders import Failed, run
from places import loopback_congestion_control
from roce_rows import GROUPS as ROCE_GROUPS
from rows import GROUPS as STREAM_GROUPS
from rows import Setup
from samples import LEAST_GOOD_ROUNDS, Sample, evaluate, probe_limit, spread
from table import render

# Those over TCP, and those over UDP: a run of all does one after the other.
SECTIONS = {"iwarp": STREAM_GROUPS, "roce": ROCE_GROUPS}
GROUPS = {name: make for groups in SECTIONS.values() for name, make in groups.items()}


class Run:
    """Rounds of some groups, interleaved: one round of each, then the next of each."""

    def __init__(self, setup, names, rounds, seconds):
        self._probe_binary = setup.binary("bench_tcp_peer")
        self._groups = [GROUPS[name](setup) for name in names]
        self._rounds = rounds
        self._end = time.monotonic() + seconds
        self._done = {group.name: [] for group in self._groups}
        self._probes = []
        self.failures = []

    def all_rounds(self):
        for number in range(self._rounds):
            for group in self._groups:
                if number < self._wanted(group):
                    self._round_in_time(group)
        # Rows whose rounds met distant CPUs get as many again.
        for _ in range(self._rounds):
            for group in self._groups:
                if self._wanted(group) >= LEAST_GOOD_ROUNDS and any(
                        result.all_counted for result in self._evaluated(group)):
                    self._round_in_time(group)

    def results(self):
        return [result for group in self._groups for result in self._evaluated(group)]

    def probes(self):
        return self._probes

    def _wanted(self, group):
        return max(1, math.ceil(group.rounds * self._rounds))

    def _evaluated(self, group):
        limit = probe_limit(self._probes)
        return [evaluate(line, self._done[group.name], limit, group.missing)
                for line in group.lines]

    def _round_in_time(self, group):
        if time.monotonic() >= self._end:
            return
        samples = {}
        before = self._probe()
        for key, contender in group.contenders.items():
            try:
                value = contender()
                after = self._probe()
                samples[key] = Sample(value, max(before, after))
                before = after
            except (Failed, subprocess.TimeoutExpired) as error:
                self.failures.append(f"{group.name}, {key}: {error}")
        self._done[group.name].append(samples)

    def _probe(self):
        self._probes.append(float(run([self._probe_binary, "probe"])))
        return self._probes[-1]


def cpu_waits_us():
    """How long, since boot, some process could run and had no CPU; None where that is unknown."""
    try:
        with open("/proc/pressure/cpu") as pressure:
            return int(re.search(r"some .*total=(\d+)", pressure.read()).group(1))
    except (OSError, AttributeError):
        return None


def print_conditions(probes, waited_us, seconds):
    """How quiet the machine was, and what TCP did."""
    if waited_us is not None:
        print(f"some process waited for a CPU {waited_us / 1e6 / seconds:.0%} of {seconds:.0f} s")
    print(f"congestion control on loopback: {loopback_congestion_control()}")
    if probes:
        good = sum(probe <= probe_limit(probes) for probe in probes)
        print(f"spin ping-pong: {spread(probes)} ns, {good} of {len(probes)} not over "
              f"{probe_limit(probes):.0f} ns")


def chosen_groups(text):
    """Lists of groups that are run together."""
    names = [name for name in text.split(",") if name]
    for name in names:
        if name not in GROUPS and name not in SECTIONS:
            sys.exit(f"compare.py: no rows '{name}': there are {','.join([*SECTIONS, *GROUPS])}")
    if any(name in GROUPS for name in names):
        return [[one for name in names for one in SECTIONS.get(name, [name])]]
    return [list(groups) for name, groups in SECTIONS.items() if not names or name in names]


def arguments():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--airdma", required=True, help="the command airdma")
    parser.add_argument("--bin", required=True, help="folder of bench_tcp_peer")
    parser.add_argument("--rows", default=os.environ.get("AIRDMA_BENCH_ROWS", ""),
                        help="groups, with commas: " + ", ".join([*SECTIONS, *GROUPS]))
    parser.add_argument("--rounds", type=int,
                        default=int(os.environ.get("AIRDMA_BENCH_ROUNDS", "7")))
    parser.add_argument("--seconds", type=float, default=270,
                        help="no round of a section begins after this")
    parser.add_argument("--markdown", action="store_true")
    return parser.parse_args()


def run_groups(options, names):
    """Runs and prints one table; what did not work."""
    setup = Setup(os.path.abspath(options.airdma), os.path.abspath(options.bin))
    start = time.monotonic()
    waited = cpu_waits_us()
    try:
        bench = Run(setup, names, options.rounds, options.seconds)
        bench.all_rounds()
    finally:
        for place in setup.places:
            place.close()
    waited = cpu_waits_us() - waited if waited is not None else None
    print_conditions(bench.probes(), waited, time.monotonic() - start)
    print(render(bench.results(), options.markdown), flush=True)
    return bench.failures


def main():
    options = arguments()
    failures = []
    for names in chosen_groups(options.rows):
        failures += run_groups(options, names)
    for failure in failures:
        print(f"compare.py: {failure}", file=sys.stderr)
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
