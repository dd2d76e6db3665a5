# SPDX-License-Identifier: MIT
"""ucx_perftest over UCX's transports of verbs, rc_verbs and ud_verbs, on the RoCEv2 device."""
import re
import tempfile

from framework import Failure, absent, case
from support.processes import free_port

DEVICE = "roce_lo:1"
# Tests of the transports alone (UCT), with the sizes that each layout of data takes.
UCT = {
    "rc_verbs": ["am_lat -s 32", "am_lat -s 4096 -D bcopy", "am_lat -s 8192 -D zcopy",
                 "am_bw -s 4096 -D bcopy", "put_lat -s 32", "put_lat -s 65536 -D zcopy",
                 "put_bw -s 4096 -D bcopy", "put_bw -s 1048576 -D zcopy", "get -s 4096 -D bcopy",
                 "get -s 1048576 -D zcopy", "add_lat -s 8", "add_mr -s 8", "fadd -s 8",
                 "cswap -s 8"],
    "ud_verbs": ["am_lat -s 32", "am_lat -s 1000 -D bcopy", "am_lat -s 1000 -D zcopy",
                 "am_bw -s 1000 -D bcopy"],
}
UCP = ["tag_lat -s 8", "tag_lat -s 65536", "tag_lat -s 100,2000,50000 -D iov,iov", "tag_lat -U -s 64",
       "tag_bw -s 8 -O 32", "tag_bw -s 1048576", "tag_sync_lat -s 2000", "tag_sync_bw -s 2000",
       "ucp_put_lat -s 8", "ucp_put_bw -s 65536", "ucp_get -s 8", "ucp_get -s 1048576",
       "ucp_add -s 8", "ucp_fadd -s 8", "ucp_swap -s 8", "ucp_cswap -s 8", "ucp_fadd -s 4",
       "stream_bw -s 4096", "stream_lat -s 4096", "stream_lat -s 4096 -r recv_data",
       "ucp_am_lat -s 32", "ucp_am_lat -s 65536", "ucp_am_bw -s 4096"]


def perftest(run, tests, options, iterations, **variables):
    """All tests in one run of each side, which both read them; with -f one line of results each."""
    port = free_port()
    with tempfile.NamedTemporaryFile("w", suffix=".tests") as batch:
        for number, test in enumerate(tests):
            batch.write(f"{number} -t {test} {' '.join(options)}\n")
        batch.flush()
        base = ["ucx_perftest", "-p", port, "-w", 5, "-n", iterations, "-f", "-b", batch.name]
        server, client = run.pair(base, [*base, "127.0.0.1"], port, 100, **variables)
    absent(client.errors() + client.output() + server.output() + server.errors(),
           r"ERROR|WARN|(?i:assert)")
    for number, test in enumerate(tests):
        row = re.search(rf"^ *{number} +(\d+)((?: +[\d.]+)+)", client.output(), re.MULTILINE)
        if row is None or int(row[1]) < iterations:
            raise Failure(f"'{test}' measured nothing")


for transport, its_tests in UCT.items():
    @case(f"ucx.uct.{transport}", needs=["ucx_perftest"], timeout_s=120)
    def uct(run, name=transport, tests=tuple(its_tests)):
        perftest(run, tests, ["-d", DEVICE, "-x", name], 200)

for one in ("rc_v", "ud_v"):
    @case(f"ucx.ucp.{one}", needs=["ucx_perftest"], timeout_s=120)
    def ucp(run, transport=one):
        perftest(run, UCP, [], 100, UCX_TLS=f"{transport},self", UCX_NET_DEVICES=DEVICE)


@case("ucx.info", needs=["ucx_info"])
def info(run):
    """What UCX finds out about the device."""
    program = run.start(["ucx_info", "-d"])
    output = run.succeeds(program)
    for name in ("rc_verbs", "ud_verbs"):
        if not re.search(rf"Transport: {name}\n#\s+Device: {DEVICE}", output):
            raise Failure(f"no {name} on {DEVICE}")
    absent(output + program.errors(), r"WARN|ERROR")
