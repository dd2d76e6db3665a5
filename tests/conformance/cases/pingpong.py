# SPDX-License-Identifier: MIT
"""The pingpongs of ibverbs-utils, which set their queue pairs up by hand, over RoCEv2."""
import re

from framework import Failure, case, contains
from support.processes import free_port

# The options that the kind of queue pair has: events, on-demand paging aside.
KINDS = {"rc": ["-e", "-c"], "uc": ["-e"], "ud": ["-e"], "srq": ["-e"], "xsrq": ["-e"]}


def play(run, kind, *options):
    port = free_port()
    command = [f"ibv_{kind}_pingpong", "-d", "roce_lo", "-p", port, *options]
    server, client = run.pair(command, [*command, "127.0.0.1"], port)
    for program in (server, client):
        # That of XRC prints no such line.
        if kind != "xsrq" and not re.search(r"iters in .* usec/iter", program.output()):
            raise Failure(f"counts nothing: {program}")


def register(kind):
    needs = [f"ibv_{kind}_pingpong"]

    # The programs with shared receives use one buffer for all of them and all sends: theirs race.
    @case(f"pingpong.{kind}", needs=needs, sanitized="srq" not in kind)
    def ipv4(run):
        play(run, kind, "-g", 0, "-n", 200)

    @case(f"pingpong.{kind}.options", needs=needs)
    def options(run):
        for option in KINDS[kind]:
            play(run, kind, "-g", 0, "-n", 100, option)

    @case(f"pingpong.{kind}.ipv6", needs=needs, ipv6=True)
    def ipv6(run):
        play(run, kind, "-g", 1, "-n", 200)


for one in KINDS:
    register(one)


@case("pingpong.rc.large", needs=["ibv_rc_pingpong"], sanitized=True)
def large(run):
    play(run, "rc", "-g", 0, "-n", 20, "-s", 1000000, "-m", 4096)


@case("pingpong.rc.log", needs=["ibv_rc_pingpong"])
def refusal_in_log(run):
    """Without -g the programs name LIDs, and the log says which attribute that is."""
    port = free_port()
    command = ["ibv_rc_pingpong", "-d", "roce_lo", "-p", port]
    server = run.listening(command, port, AIRDMA_LOG="debug")
    client = run.start([*command, "127.0.0.1"], AIRDMA_LOG="debug")
    for program in (server, client):
        run.exits(program, 1)
    contains(server.errors(), "ibv_modify_qp: qp 0x", "IBV_QP_AV has a value that it cannot have")
