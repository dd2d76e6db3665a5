# SPDX-License-Identifier: MIT
"""Memory and descriptors that run out: errors of calls and events, no crash, no hang, no leak."""
import contextlib
import os
import pathlib
import socket

from framework import Failure, absent, case, contains
from hard_crowded import COUNT, Crowd, all_right
from support.processes import free_port, wait_until

TICKS_PER_SECOND = os.sysconf("SC_CLK_TCK")


def starved(run, kind):
    folder = run.build / "tests/bin/hard"
    program = run.start([folder / "starved", kind], LD_PRELOAD=str(folder / "scarce.so"))
    output = run.succeeds(program, 100)
    absent(output, "WRONG")
    return output


@case("hard.starved.memory", timeout_s=120, cm="iwarp")
def starved_of_memory(run):
    """Each allocation from creating an event channel to the end of a connection fails in its turn."""
    contains(starved(run, "memory"), "in a fresh process", "and all after it", "ended")


@case("hard.starved.descriptors", timeout_s=120, cm="iwarp")
def starved_of_descriptors(run):
    contains(starved(run, "descriptors"), "descriptors are enough", "ended")


def limited(run, *arguments):
    return Crowd(run, *arguments, before=["prlimit", "--nofile=64:64"])


def processor_ticks(pid):
    fields = pathlib.Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return int(fields[11]) + int(fields[12])


@case("hard.few_descriptors.server", needs=["prlimit"], timeout_s=120, cm="iwarp")
def few_descriptors_server(run):
    """A listener that cannot accept waits without spinning, and accepts when it can."""
    port = free_port()
    serving = limited(run, "serve", port)
    run.programs.wait_listening(serving.program, port)
    many = Crowd(run, "connect", port, COUNT)
    last = many.reaches("some connections", established=10, messages=400)
    # So that there is nothing to do but to accept, which it cannot.
    serving.say("hush")
    many.say("hush")

    def at_rest():
        nonlocal last
        before, last = last, many.status()
        return before == last

    wait_until(at_rest, run.programs.seconds(20), "the traffic to end")
    with contextlib.ExitStack() as strangers:
        for _ in range(40):
            strangers.enter_context(socket.create_connection(("127.0.0.1", port), 20))
        if len(list(pathlib.Path(f"/proc/{serving.program.pid}/fd").iterdir())) > 64:
            raise Failure("more than 64 descriptors")
        ticks = processor_ticks(serving.program.pid)
        # A second of the machine's time, in which whoever spins uses some of it.
        awake_until = os.times().elapsed + 1
        wait_until(lambda: os.times().elapsed >= awake_until, 10, "a second to pass")
        used = processor_ticks(serving.program.pid) - ticks
    if used > TICKS_PER_SECOND // 10:
        raise Failure(f"{used} ticks in a second at rest without descriptors")
    many.program.end()
    serving.reaches("the ends of the first", ended=last["established"])
    client = Crowd(run, "connect", port, 12)
    client.reaches("connections when there is room", established=12)
    client.say("stop")
    all_right(client.reaches("the end of all connections", ended=12))
    client.end()
    serving.end()


@case("hard.few_descriptors.client", needs=["prlimit"], timeout_s=120, cm="iwarp")
def few_descriptors_client(run):
    port = free_port()
    serving = Crowd(run, "serve", port)
    run.programs.wait_listening(serving.program, port)
    client = limited(run, "connect", port, COUNT)
    state = client.reaches("some connections", established=30, failed=30, messages=30 * 20)
    made = COUNT - state["failed"]
    client.reaches("all connections that there can be", established=made)
    client.say("stop")
    client.reaches("the end of all connections", ended=made)
    client.end()
    serving.reaches("the end of all connections", ended=made)
    serving.end()
