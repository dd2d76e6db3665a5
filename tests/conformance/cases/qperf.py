# SPDX-License-Identifier: MIT
"""qperf with -cm1: reliable connections through rdma_cm, over both transports."""
import re

from framework import Failure, absent, case, contains
from support.processes import free_port

RESULTS = {"bw": r"bw\s+=\s+([\d.,]+) \w?B/sec", "lat": r"latency\s+=\s+([\d.,]+) \w+",
           "mr": r"msg_rate\s+=\s+([\d.,]+) \w*/sec"}


def qperf(run, tests, *options, **variables):
    port = free_port()
    server = run.listening(["qperf", "-lp", port], port, **variables)
    client = run.start(["qperf", "-lp", port, "-t", 1, "-cm1", *options, "127.0.0.1", *tests,
                        "quit"], **variables)
    output = run.succeeds(client, 20 + 3 * len(tests))
    # qperf says that a test failed in its output.
    absent(output + client.errors() + server.errors(), r"(?i)fail|error|cannot|timed out")
    for test in tests:
        section = output.split(f"{test}:", 1)[-1]
        measured = re.search(RESULTS[test.rsplit("_", 1)[1]], section)
        if measured is None or float(measured[1].replace(",", "")) <= 0:
            raise Failure(f"{test} measured nothing")
    run.succeeds(server, 20)


@case("qperf.send", needs=["qperf"], sanitized=True, cm="both")
def send(run):
    qperf(run, ["rc_bw", "rc_lat"])


@case("qperf.one_sided", needs=["qperf"], sanitized=True, cm="both")
def one_sided(run):
    qperf(run, ["rc_rdma_read_bw", "rc_rdma_write_bw", "rc_rdma_read_lat", "rc_rdma_write_lat"])


@case("qperf.polling", needs=["qperf"], cm="both")
def polling(run):
    qperf(run, ["rc_bw", "rc_lat", "rc_rdma_read_bw", "rc_rdma_write_bw"], "-cp1")


@case("qperf.sizes", needs=["qperf"], cm="both")
def sizes(run):
    for size in ("1", "4095", "1M"):
        qperf(run, ["rc_bw", "rc_rdma_read_bw"], "-m", size)


# qperf names its peer by LID alone where rdma_cm does not do it, which no Ethernet port has: its
# other tests, of UC, UD and XRC, are for InfiniBand.
ROCE = {"send": ["rc_bw", "rc_bi_bw", "rc_lat"],
        "one_sided": ["rc_rdma_read_bw", "rc_rdma_read_lat", "rc_rdma_write_bw",
                      "rc_rdma_write_lat", "rc_rdma_write_poll_lat"],
        "atomics": ["rc_compare_swap_mr", "rc_fetch_add_mr"]}


for one in ROCE:
    @case(f"qperf.roce.{one}", needs=["qperf"])
    def roce(run, kind=one):
        qperf(run, ROCE[kind])


@case("qperf.roce.without_manager", needs=["qperf"])
def without_manager(run):
    """It says what it lacks, and ends."""
    port = free_port()
    server = run.listening(["qperf", "-lp", port], port)
    client = run.start(["qperf", "-lp", port, "-t", 1, "-m", 1024, "-mt", 1024, "127.0.0.1", "uc_bw"])
    run.exits(client, 1)
    # Whichever end fails first says so: the client on its error stream, the server through the client.
    contains(client.output() + client.errors(), "failed to modify QP to RTR")
    server.end()
