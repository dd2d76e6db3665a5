# SPDX-License-Identifier: MIT
"""perftest's options, one test per program and option. With -R and -F throughout.

perftest compares no data: support for that is in fio.py and the programs of rdmacm-utils.
"""
from cases_perftest import SIZES, run_pair
from framework import absent, case
from support.processes import free_port

BANDWIDTH = ("ib_send_bw", "ib_write_bw", "ib_read_bw")
LATENCY = ("ib_send_lat", "ib_write_lat", "ib_read_lat")

# Name, programs, options, sizes in the table of results, iterations.
OPTIONS = [
    ("eight_queue_pairs", BANDWIDTH, ["-q", 8, "-s", 4096], [4096], 100),
    ("bidirectional", BANDWIDTH, ["-b", "-s", 65536], [65536], 200),
    ("bidirectional_eight", BANDWIDTH, ["-b", "-q", 8, "-s", 9000], [9000], 100),
    ("moderation_1", BANDWIDTH, ["-Q", 1, "-s", 2048], [2048], 500),
    ("moderation_64", BANDWIDTH, ["-Q", 64, "-s", 2048], [2048], 1280),
    ("inline_0", BANDWIDTH[:2] + LATENCY[:2], ["-I", 0, "-s", 64], [64], 500),
    ("inline_64", BANDWIDTH[:2] + LATENCY[:2], ["-I", 64, "-s", 64], [64], 500),
    ("inline_512", BANDWIDTH[:2] + LATENCY[:2], ["-I", 512, "-s", 500], [500], 500),
    ("post_list", BANDWIDTH, ["-l", 16, "-s", 1024], [1024], 1600),
    ("receive_list", ("ib_send_bw",), ["--recv_post_list=16", "-s", 1024], [1024], 1600),
    ("odd_size", BANDWIDTH + LATENCY, ["-s", 12345], [12345], 300),
    ("one_byte", BANDWIDTH + LATENCY, ["-s", 1], [1], 300),
    ("gigabits", BANDWIDTH, ["--report_gbits", "-s", 65536], [65536], 200),
    ("deep", BANDWIDTH, ["-t", 1024, "-s", 256], [256], 5000),
    ("shallow", BANDWIDTH, ["-t", 1, "-s", 256], [256], 500),
    ("depth_of_reads", ("ib_read_bw", "ib_read_lat"), ["-o", 16, "-s", 4096], [4096], 500),
    ("two_way_all_sizes", BANDWIDTH[:1], ["-b", "-a"], SIZES, 20),
    ("events_eight", ("ib_send_bw", "ib_read_bw"), ["-e", "-q", 8, "-s", 4096], [4096], 100),
    ("events_moderated", ("ib_send_bw", "ib_read_bw"), ["-e", "-Q", 16, "-s", 4096], [4096], 640),
    ("type_of_service", ("ib_send_bw",), ["-T", 8, "-s", 4096], [4096], 100),
    ("srq", ("ib_send_bw", "ib_send_lat"), ["--use-srq", "-s", 4096], [4096], 300),
    # With an SRQ perftest gives the credits of iWARP to the queue pair that a receive was posted
    # for, not to the one it served, and one that has got more than it has sent sends no more. In
    # lists of half the number of iterations each has sent enough before its first credit. Small
    # messages, because receives of more than half a page share their memory.
    ("srq_eight", ("ib_send_bw",),
     ["--use-srq", "-q", 8, "-r", 512, "-t", 64, "-l", 64, "-s", 64], [64], 128),
]
# What sanitized builds run, too: the way through the library that differs, not each program.
SANITIZED = {"eight_queue_pairs", "moderation_64", "inline_64", "post_list", "srq", "srq_eight"}


def register(name, program, options, sizes, iterations):
    sanitized = name in SANITIZED and program == "ib_send_bw"

    @case(f"perftest.{program}.{name}", needs=[program], sanitized=sanitized, cm="both")
    def with_options(run):
        run_pair(run, program, options, sizes, iterations, seconds=50)


for option_name, programs, its_options, its_sizes, its_iterations in OPTIONS:
    for option_program in programs:
        register(option_name, option_program, its_options, its_sizes, its_iterations)


def register_atomic(program, kind):
    @case(f"perftest.{program}.{kind.lower()}", needs=[program],
          sanitized=program.endswith("bw"), cm="both")
    def atomic(run):
        run_pair(run, program, ["-A", kind], [8], 500, seconds=50)


for atomic_program in ("ib_atomic_bw", "ib_atomic_lat"):
    for atomic_kind in ("FETCH_AND_ADD", "CMP_AND_SWAP"):
        register_atomic(atomic_program, atomic_kind)


@case("perftest.duration", needs=["ib_write_bw"], cm="both")
def duration(run):
    """-D: a span of time instead of a number of iterations, in both directions at once."""
    for program in BANDWIDTH:
        port = free_port()
        base = [program, "-R", "-F", "-p", port, "-D", 1, "-f", 0, "-b", "-s", 8192]
        for side in run.pair(base, [*base, "127.0.0.1"], port):
            absent(side.output() + side.errors(), r"Completion with error|Couldn't|Failed|Unable")


@case("perftest.long", needs=["ib_write_bw"], timeout_s=300, cm="both")
def many_iterations(run):
    """With --rounds 1000000 by hand."""
    iterations = run.rounds or 50000
    for program in (*BANDWIDTH, *LATENCY):
        run_pair(run, program, ["-s", 64], [64], iterations, seconds=280)
