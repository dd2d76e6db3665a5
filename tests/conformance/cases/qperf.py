# SPDX-License-Identifier: MIT
"""qperf with -cm1: reliable connections through rdma_cm."""
import re

from framework import Failure, absent, case
from support.processes import free_port

RESULTS = {"bw": r"bw\s+=\s+([\d.,]+) \w?B/sec", "lat": r"latency\s+=\s+([\d.,]+) \w+"}


def qperf(run, tests, *options):
    port = free_port()
    server = run.listening(["qperf", "-lp", port], port)
    client = run.start(["qperf", "-lp", port, "-t", 1, "-cm1", *options, "127.0.0.1", *tests,
                        "quit"])
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
