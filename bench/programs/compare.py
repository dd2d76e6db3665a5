#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Whole programs over airdma beside the same work on bare TCP, as ratios.

    compare.py --airdma build/bin/airdma --bin build-bench/bench/programs/bin

perftest's unmodified programs run over airdma on 127.0.0.1, one end on the first CPU and one on
the last. In every round each is followed at once by its peer, a bare TCP program on the same CPUs
with the same congestion control, so that both meet the same machine. Before and after such a pair
a spin ping-pong shows how far apart the two CPUs are just then: pairs where that is over 100 ns and
well over the least of the run are set aside, unless fewer than three would be left (marked *).
Compare ratios, and only within one run. Nothing here passes or fails by time; the exit status is 1
only when a program did not work.
"""
import argparse
import os
import re
import statistics
import subprocess
import sys
import time
from dataclasses import dataclass, field

PROBE_LIMIT_NS = 100    # of neighbouring cores; others are never so near,
PROBE_TOLERANCE = 1.25  # so a little over the least of the run is as good
LEAST_GOOD_PAIRS = 3
LIMIT_S = 30
PORT = 18600
CPUS = sorted(os.sched_getaffinity(0))


class Failed(Exception):
    pass


@dataclass
class Row:
    name: str
    program: str       # of perftest, with its arguments
    column: int        # of its last line
    scale: float       # from that to `unit`
    unit: str
    peer: str          # arguments of bench_tcp_peer
    peer_scale: float
    goal: str = ""
    pairs: list = field(default_factory=list)  # (probe ns, airdma, peer)


# Columns: latency programs print size, count, minimum, maximum, typical, ...; bandwidth programs
# size, count, peak, average (with --report_gbits: Gb/s), messages (Mp/s).
def latency(name, program, peer, goal=""):
    count = 20000 if peer == "spin" else 5000
    return Row(name, f"{program} -s 64 -n {count}", 4, 1, "us", f"latency {peer} 64 {count}", 1,
               goal)


def bandwidth(name, program, goal=""):
    return Row(name, f"{program} -s 1048576 -n 1500 --report_gbits", 3, 1 / 8, "GB/s",
               "stream 1048576 0.3", 1, goal)


def rate(name, options, per_send, goal=""):
    # GB/s of the bare stream divided by 64 are 10^9 messages/s.
    return Row(name, f"ib_send_bw -s 64 -n {200000 if '-l' in options else 60000} {options}", 4, 1,
               "M/s", f"stream {64 * per_send} 0.2", 1000 / 64, goal)


ROWS = [
    latency("64 B SEND, half round trip, polling its CQ", "ib_send_lat", "spin", "<= 1.15"),
    latency("64 B WRITE, half round trip, polling memory", "ib_write_lat", "spin", "<= 1.15"),
    latency("64 B SEND, half round trip, events", "ib_send_lat -e", "epoll"),
    bandwidth("1 MiB WRITE", "ib_write_bw", ">= 0.80"),
    bandwidth("1 MiB SEND", "ib_send_bw", ">= 0.80"),
    bandwidth("1 MiB READ", "ib_read_bw"),
    rate("64 B SEND, one per post", "", 1, "5 M/s"),
    rate("64 B SEND, 64 per post", "-t 128 -l 64", 64, "5 M/s"),
]


def pinned(cpu, command):
    return ["taskset", "-c", str(cpu)] + command


def listening(port):
    """True when a TCP socket listens on the port."""
    for path in ("/proc/net/tcp", "/proc/net/tcp6"):
        try:
            with open(path) as table:
                lines = table.readlines()[1:]
        except OSError:
            continue
        for line in lines:
            fields = line.split()
            if fields[3] == "0A" and int(fields[1].rsplit(":", 1)[1], 16) == port:
                return True
    return False


def run(command):
    done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True,
                          timeout=LIMIT_S)
    if done.returncode != 0:
        raise Failed(f"{' '.join(command)}: status {done.returncode}\n{done.stdout}{done.stderr}")
    return done.stdout


def run_perftest(airdma, row):
    """The value of one run of a perftest program, client and server over airdma."""
    program = [airdma, "run", "--"] + row.program.split() + ["-R", "-F", "-p", str(PORT)]
    server = subprocess.Popen(pinned(CPUS[0], program), stdin=subprocess.DEVNULL,
                              stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    try:
        limit = time.monotonic() + LIMIT_S
        while not listening(PORT):
            if server.poll() is not None or time.monotonic() > limit:
                raise Failed(f"{row.program}: the server does not listen")
            time.sleep(0.005)
        output = run(pinned(CPUS[-1], program + ["127.0.0.1"]))
        server.communicate(timeout=LIMIT_S)
    finally:
        if server.poll() is None:
            server.kill()
            server.wait()
        server.stdout.close()
    results = [line.split() for line in output.splitlines() if re.match(r"\s*\d+\s+\d+\s", line)]
    if not results:
        raise Failed(f"{row.program}: no result\n{output}")
    return float(results[-1][row.column]) * row.scale


def cpu_waits_us():
    """How long, since boot, some process could run and had no CPU; None where that is unknown."""
    try:
        with open("/proc/pressure/cpu") as pressure:
            return int(re.search(r"some .*total=(\d+)", pressure.read()).group(1))
    except (OSError, AttributeError):
        return None


def probe(binary):
    return float(run([binary, "probe"]))


def measure(row, airdma, binary):
    before = probe(binary)
    product = run_perftest(airdma, row)
    peer = float(run([binary] + row.peer.split())) * row.peer_scale
    row.pairs.append((max(before, probe(binary)), product, peer))


def spread(values):
    return f"{statistics.median(values):.2f} ({min(values):.2f}-{max(values):.2f})"


def print_table(rows):
    probes = [pair[0] for row in rows for pair in row.pairs]
    if not probes:
        return
    limit = max(PROBE_LIMIT_NS, PROBE_TOLERANCE * min(probes))
    print(f"spin ping-pong {statistics.median(probes):.0f} ns"
          f" ({min(probes):.0f}-{max(probes):.0f}), pairs over {limit:.0f} ns set aside")
    titles = ("", "airdma", "bare TCP", "", "ratio", "goal", "pairs")
    lines = [titles]
    for row in rows:
        good = [pair for pair in row.pairs if pair[0] <= limit]
        mark = ""
        if len(good) < min(LEAST_GOOD_PAIRS, len(row.pairs)):
            good, mark = row.pairs, "*"
        if not good:
            continue
        lines.append((row.name, spread([p[1] for p in good]), spread([p[2] for p in good]),
                      row.unit, spread([p[1] / p[2] for p in good]), row.goal,
                      f"{len(good)}/{len(row.pairs)}{mark}"))
    widths = [max(len(line[i]) for line in lines) for i in range(len(titles))]
    for line in lines:
        print("  ".join(text.ljust(width) for text, width in zip(line, widths)).rstrip())
    if any(line[-1].endswith("*") for line in lines):
        print("* too few good pairs: all are counted")


def idle(airdma, binary, connections, seconds):
    program = [airdma, "run", "--", os.path.join(binary, "bench_idle_qps")]
    print(run(program + [str(connections), str(seconds)]).strip(), flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--airdma", required=True, help="the command airdma")
    parser.add_argument("--bin", required=True, help="folder of bench_tcp_peer")
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--seconds", type=float, default=110, help="no pair begins after this")
    parser.add_argument("--only", default="", help="rows whose name has this text")
    options = parser.parse_args()
    rows = [row for row in ROWS if options.only in row.name]
    failures = []
    start = time.monotonic()
    waited = cpu_waits_us()
    for _ in range(options.rounds):
        for row in rows:
            if time.monotonic() - start > options.seconds:
                break
            try:
                measure(row, options.airdma, os.path.join(options.bin, "bench_tcp_peer"))
            except (Failed, subprocess.TimeoutExpired) as error:
                failures.append(str(error))
    if waited is not None:
        share = (cpu_waits_us() - waited) / 1e6 / (time.monotonic() - start)
        print(f"some process waited for a CPU {share:.0%} of the time: near 0% on a quiet machine")
    print_table(rows)
    try:
        if not options.only:
            idle(options.airdma, options.bin, 250, 3)
    except (Failed, subprocess.TimeoutExpired) as error:
        failures.append(str(error))
    for failure in failures:
        print(f"compare.py: {failure}", file=sys.stderr)
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
