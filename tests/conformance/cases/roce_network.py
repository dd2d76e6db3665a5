# SPDX-License-Identifier: MIT
"""RoCEv2 between two hosts: the pingpongs of ibverbs-utils, perftest and rping over a pair of
interfaces with the usual and with large packets, over IPv4 and IPv6."""
import re

from cases_perftest import judge
from framework import Failure, absent, case
from support.network import Cable

PORT = 18600
GIDS = {"ipv4": 0, "ipv6": 1}
PINGPONGS = {"rc": ["-c", "-n", 200, "-s", 65536], "uc": ["-n", 200, "-e"], "ud": ["-n", 200],
             "srq": ["-n", 400], "xsrq": ["-n", 200]}
# Program, type of queue pair, bytes.
PERFTEST = [("ib_send_bw", "RC", 65536), ("ib_write_bw", "RC", 65536), ("ib_read_bw", "RC", 65536),
            ("ib_atomic_bw", "RC", 8), ("ib_write_bw", "UC", 65536), ("ib_send_lat", "UD", 1000),
            ("ib_send_bw", "XRC", 4096), ("ib_read_lat", "RC", 4096)]


def pingpong(run, cable, kind, gid, mtu, *options):
    command = [f"ibv_{kind}_pingpong", "-p", PORT, "-g", gid, *options]
    # That of datagrams has a size of its own, and takes the path's.
    mtu_options = [] if kind == "ud" else ["-m", mtu]
    server = run.listening([*command, *mtu_options, "-d", "roce_v1"], PORT, cable.far)
    client = run.start([*command, *mtu_options, "-d", "roce_v0", cable.far_address], cable.near)
    for program in (client, server):
        output = run.succeeds(program)
        if kind != "xsrq" and not re.search(r"iters in .* usec/iter", output):
            raise Failure(f"counts nothing: {program}")


def perftest(run, cable, program, kind, size, gid):
    command = [program, "-F", "-p", PORT, "-c", kind, "-x", gid, "-n", 200]
    if size != 8:
        command += ["-s", size]
    server = run.listening([*command, "-d", "roce_v1"], PORT, cable.far)
    client = run.start([*command, "-d", "roce_v0", cable.far_address], cable.near)
    for side in (client, server):
        run.succeeds(side)
        absent(side.output() + side.errors(), r"Completion with error|Couldn't|Failed|Unable")
    judge(client.output(), [size], 200, "the client")


def rping(run, cable, family):
    address = cable.far_address if family == "ipv4" else "fd99::2"
    base = ["-V", "-a", address, "-p", PORT, "-C", 100, "-S", 20000]
    for side in run.pair(["rping", "-s", *base], ["rping", "-c", *base], PORT, cable=cable):
        absent(side.output() + side.errors(), r"data mismatch|failed|error")


def register(link_mtu, path_mtu, family):
    @case(f"network.mtu_{link_mtu}.{family}", needs=["ibv_rc_pingpong", "ib_send_bw", "rping", "ip"],
          timeout_s=120)
    def over(run):
        with Cable(mtu=link_mtu) as cable:
            for kind, options in PINGPONGS.items():
                pingpong(run, cable, kind, GIDS[family], path_mtu, *options)
            for program, kind, size in PERFTEST:
                perftest(run, cable, program, kind, size, GIDS[family])
            rping(run, cable, family)


for one in GIDS:
    register(1500, 1024, one)
    register(9000, 4096, one)
