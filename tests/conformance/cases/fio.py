# SPDX-License-Identifier: MIT
"""fio's rdma engine: verbs write, read and send.

fio cannot verify over this engine, in which nothing is ever read back (and it refuses random
offsets), so the programs' memory is compared from outside: the one that got the data must hold whole
blocks of the other's bytes, which nothing but the transfer can have brought there.
"""
import pathlib
import re

from framework import Failure, absent, case
from support.processes import Skip, free_port, wait_until

BLOCK = 64 * 1024
PATTERNS = {"server": "deadface", "client": "c0ffee11"}


def memory_of(pid):
    """The contents of a process's private writable mappings of its buffers' order of size."""
    with open(f"/proc/{pid}/mem", "rb", buffering=0) as memory:
        for line in pathlib.Path(f"/proc/{pid}/maps").read_text().splitlines():
            span, rights = line.split()[:2]
            begin, end = (int(part, 16) for part in span.split("-"))
            if not rights.startswith("rw") or not BLOCK <= end - begin <= 64 << 20:
                continue
            try:
                memory.seek(begin)
                yield memory.read(end - begin)
            except OSError:
                continue  # gone meanwhile, or a device's


def whole_blocks(pid, who):
    block = bytes.fromhex(PATTERNS[who]) * (BLOCK // 4)
    return sum(data.count(block) for data in memory_of(pid))


def fio(role, port, *options):
    return ["fio", f"--name={role}", "--thread", "--ioengine=rdma", f"--port={port}",
            f"--bs={BLOCK}", "--size=256m", "--iodepth=4", "--scramble_buffers=0",
            f"--buffer_pattern=0x{PATTERNS[role]}", *options]


def moved(output, what):
    found = re.search(rf"{what}: bw=.*io=([\d.]+)(MiB|GiB)", output)
    if found is None or float(found[1]) * (1024 if found[2] == "GiB" else 1) < 200:
        raise Failure("fio moved less than it was told")


def transfer(run, verb, judge):
    port = free_port()
    server = run.listening(fio("server", port, "--rw=read", "--time_based", "--runtime=600"), port)
    client = run.start(fio("client", port, "--rw=write", f"--verb={verb}", "--hostname=127.0.0.1",
                           "--time_based", "--runtime=600"))
    programs = {"server": server, "client": client}

    def arrived():
        for program in programs.values():
            if program.status() is not None:
                raise Failure(f"ended early: {program}")
        try:
            return judge(programs)
        except PermissionError:
            raise Skip("this process may not look at its children's memory") from None

    wait_until(arrived, run.programs.seconds(20), "the other side's bytes in memory")
    for program in programs.values():
        program.end()
        absent(program.errors(), r"fio: .*(fail|error|instead of)")


def whole(run, verb):
    """To the end, with exit statuses and the amount moved."""
    port = free_port()
    server, client = run.pair(fio("server", port, "--rw=read"),
                              fio("client", port, "--rw=write", f"--verb={verb}",
                                  "--hostname=127.0.0.1"), port)
    moved(client.output(), "WRITE")
    for program in (server, client):
        absent(program.output() + program.errors(), r"fio: .*(fail|error|instead of)|err=[^0 ]")


def written(programs):
    """The client's pattern is in the server's memory, in the blocks that WRITE or SEND fill."""
    return whole_blocks(programs["server"].pid, "client") >= 2


def read_back(programs):
    """A server does not fill its buffers, so what READ brings are zeros: each block of the pattern
    with which the client filled its own (four, as the other verbs show) is overwritten."""
    return whole_blocks(programs["client"].pid, "client") == 0


def filled(programs):
    return whole_blocks(programs["client"].pid, "client") >= 4


def register(verb, judge, cm="both"):
    @case(f"fio.{verb}", needs=["fio"], cm=cm)
    def runs(run):
        whole(run, verb)

    @case(f"fio.{verb}.compared", needs=["fio"], cm=cm)
    def compared(run):
        transfer(run, verb, judge)


register("write", lambda programs: written(programs) and filled(programs))
register("read", read_back)
# fio accepts with an rnr_retry_count of 0 and sends without asking whether the receiver is ready: over
# InfiniBand and RoCE a SEND that comes before its receive ends the connection.
register("send", lambda programs: written(programs) and filled(programs), cm="iwarp")
