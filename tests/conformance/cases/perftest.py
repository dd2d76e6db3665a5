# SPDX-License-Identifier: MIT
"""perftest with -R: bandwidth and latency of SEND, WRITE and READ through rdma_cm."""
import re

from framework import Failure, absent, case, equal
from support.processes import free_port

# -a measures each power of two from 2 to 2**23 bytes.
SIZES = [2**n for n in range(1, 24)]


def table(output):
    """Rows of the result table: size in bytes -> (iterations, further columns)."""
    rows = {}
    for line in output.splitlines():
        words = line.split()
        if len(words) >= 5 and all(re.fullmatch(r"\d+(\.\d+)?", word) for word in words):
            rows[int(words[0])] = (int(words[1]), [float(word) for word in words[2:]])
    return rows


def judge(output, sizes, iterations, what):
    rows = table(output)
    equal(list(rows), sizes, f"sizes in the table of {what}")
    for size, (count, values) in rows.items():
        if count < iterations:
            raise Failure(f"{what}: {count} iterations of {size} bytes instead of {iterations}")
        if not any(value > 0 for value in values):
            raise Failure(f"{what}: nothing measured at {size} bytes")


def run_pair(run, program, options, sizes, iterations, seconds=100):
    port = free_port()
    base = [program, "-R", "-F", "-p", port, "-n", iterations, *options]
    server, client = run.pair(base, [*base, "127.0.0.1"], port, seconds)
    judge(client.output(), sizes, iterations, "the client")
    for side in (server, client):
        absent(side.output() + side.errors(), r"Completion with error|Couldn't|Failed|Unable")


def register(program, events):
    latency = program.endswith("_lat")
    name = f"perftest.{program}{'.events' if events else ''}"

    @case(name, needs=[program], timeout_s=120, cm="both")
    def all_sizes(run):
        run_pair(run, program, ["-a", *(["-e"] if events else [])], SIZES, 20 if latency else 40)

    @case(f"{name}.one_size", needs=[program], sanitized=True, cm="both")
    def one_size(run):
        run_pair(run, program, ["-s", 3000, *(["-e"] if events else [])], [3000], 100)


for operation in ("send", "write", "read"):
    for measure in ("bw", "lat"):
        for with_events in (False, True):
            # perftest refuses -e for WRITE: the other side gets no completion to sleep for.
            if with_events and operation == "write":
                continue
            register(f"ib_{operation}_{measure}", with_events)


@case("perftest.many_queue_pairs", needs=["ib_write_bw"], sanitized=True, cm="both")
def many_queue_pairs(run):
    run_pair(run, "ib_write_bw", ["-q", 16, "-s", 4096], [4096], 50)


@case("perftest.both_directions", needs=["ib_send_bw"], sanitized=True, cm="both")
def both_directions(run):
    run_pair(run, "ib_send_bw", ["-b", "-s", 65536], [65536], 200)
