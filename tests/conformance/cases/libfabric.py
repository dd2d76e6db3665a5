# SPDX-License-Identifier: MIT
"""libfabric's verbs provider: fi_info and fi_pingpong between two network namespaces, because the
provider leaves loopback interfaces out."""
import re

from framework import Failure, absent, case, contains
from support.network import Cable

CONTROL_PORT = 47592
# What fi_pingpong measures by default, as far as it fits a message: 64 bytes to 1 MiB.
SIZES = {"msg": ["64", "256", "1k", "4k", "64k", "1m"], "rdm": ["64", "256", "1k", "4k", "64k", "1m"],
         "dgram": ["64", "256", "1k"]}


@case("libfabric.info", needs=["fi_info"])
def info(run):
    with Cable() as cable:
        output = run.succeeds(run.start(["fi_info", "-p", "verbs"], cable.near))
    contains(output, "domain: roce_v0\n", "domain: roce_v0-dgram", "FI_PROTO_RDMA_CM_IB_RC",
             "FI_PROTO_IB_UD", "FI_PROTO_IWARP")


def pingpong(run, kind, *options):
    # libfabric's memory monitor puts itself behind madvise() and munmap(), which glibc calls last of
    # all in a thread that ends, and locks there: the thread sanitizer, which has forgotten the
    # thread by then, crashes on that.
    variables = {"FI_MR_CACHE_MONITOR": "disabled"} if run.sanitized else {}
    with Cable() as cable:
        base = ["fi_pingpong", "-p", "verbs", "-e", kind, "-c", "-I", 100, *options]
        _, client = run.pair(base, [*base, cable.far_address], CONTROL_PORT, cable=cable, **variables)
    # With -c it compares what came back, and says where it is wrong.
    absent(client.output() + client.errors(), r"(?i)error|corrupt")
    for size in SIZES[kind]:
        if not re.search(rf"^{size} +100 +=100 ", client.output(), re.MULTILINE):
            raise Failure(f"no result for {size} bytes")


for one in SIZES:
    @case(f"libfabric.pingpong.{one}", needs=["fi_pingpong"], sanitized=True)
    def pingpong_of(run, kind=one):
        pingpong(run, kind)


@case("libfabric.pingpong.tagged", needs=["fi_pingpong"])
def tagged(run):
    pingpong(run, "rdm", "-m", "tagged")
