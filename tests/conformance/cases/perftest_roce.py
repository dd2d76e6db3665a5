# SPDX-License-Identifier: MIT
"""perftest without -R: it exchanges numbers over TCP and sets its queue pairs up by hand, of every
type that RoCEv2 has."""
from cases_perftest import SIZES, judge
from framework import Failure, absent, case
from support.processes import free_port

# Program without its ending, types of queue pairs.
TYPES = {"ib_send": ("RC", "UC", "UD", "XRC"), "ib_write": ("RC", "UC", "XRC"),
         "ib_read": ("RC", "XRC"), "ib_atomic": ("RC", "XRC")}
# Name, program, type, options, sizes in the table, iterations.
OPTIONS = [
    ("all_sizes", "ib_send_bw", "RC", ["-a"], SIZES, 20),
    ("all_sizes", "ib_write_bw", "RC", ["-a"], SIZES, 20),
    ("all_sizes", "ib_read_bw", "RC", ["-a"], SIZES, 20),
    ("both_directions", "ib_send_bw", "RC", ["-b", "-s", 65536], [65536], 200),
    ("both_directions", "ib_send_bw", "UD", ["-b", "-s", 1024], [1024], 200),
    ("many_queue_pairs", "ib_write_bw", "RC", ["-q", 16, "-s", 4096], [4096], 100),
    ("shared_receives", "ib_send_bw", "RC", ["--use-srq", "-s", 4096], [4096], 300),
    ("events", "ib_send_bw", "RC", ["-e", "-s", 4096], [4096], 300),
    ("events", "ib_send_lat", "UD", ["-e", "-s", 64], [64], 100),
]
SANITIZED = {"ib_send_bw RC", "ib_send_bw UD", "ib_read_bw RC", "ib_send_bw XRC"}


def play(run, program, kind, options, sizes, iterations):
    port = free_port()
    base = [program, "-d", "roce_lo", "-x", 0, "-F", "-c", kind, "-p", port, "-n", iterations,
            *options]
    server, client = run.pair(base, [*base, "127.0.0.1"], port, 100)
    judge(client.output(), sizes, iterations, "the client")
    for side in (server, client):
        absent(side.output() + side.errors(), r"Completion with error|Couldn't|Failed|Unable")


def register(name, program, kind, options, sizes, iterations):
    @case(f"perftest_roce.{program}.{kind.lower()}.{name}", needs=[program], timeout_s=120,
          sanitized=name == "one_size" and f"{program} {kind}" in SANITIZED)
    def measured(run):
        play(run, program, kind, options, sizes, iterations)


# The same with -R, of the type that perftest.py has not: perftest refuses UC and XRC there.
MANAGED = [
    ("ib_send_bw", "UD", ["-s", 1024], [1024], 200),
    ("ib_send_lat", "UD", ["-s", 1024], [1024], 100),
]


@case("perftest_roce.managed", needs=["ib_send_bw", "ib_send_lat"])
def managed(run):
    for program, kind, options, sizes, iterations in MANAGED:
        play(run, program, kind, ["-R", *options], sizes, iterations)


@case("perftest_roce.dynamic", needs=["ib_send_bw"])
def dynamic(run):
    """DC is another maker's: refused in words, by both sides alike."""
    port = free_port()
    command = ["ib_send_bw", "-d", "roce_lo", "-x", 0, "-c", "DC", "-p", port]
    server = run.listening(command, port)
    for program in (run.start([*command, "127.0.0.1"]), server):
        if program.wait(run.programs.seconds(20)) not in range(1, 128):
            raise Failure(f"ended with {program.status()}: {program}")


for operation, kinds in TYPES.items():
    for measure in ("bw", "lat"):
        for one in kinds:
            size = 8 if operation == "ib_atomic" else 1024
            its_options = [] if operation == "ib_atomic" else ["-s", size]
            register("one_size", f"{operation}_{measure}", one, its_options, [size], 100)
for entry in OPTIONS:
    register(*entry)
