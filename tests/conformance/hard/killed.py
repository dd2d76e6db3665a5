# SPDX-License-Identifier: MIT
"""kill -9 at random moments: the survivor hears of it, ends or goes on, and leaks nothing.

The moments come from --seed, so a failure can be run again; --rounds 200 runs them by hand.
"""
import pathlib
import random
import re
import signal
import time

from framework import Failure, case
from support.processes import free_port, wait_until

HOST = "127.0.0.1"
# Far above what it takes, which are seconds where a request is sent again until its retries are used
# up; a survivor that hears nothing never ends.
HEARS_WITHIN_S = 40


def footprint(pid):
    """Descriptors, threads and resident kilobytes of a process."""
    process = pathlib.Path(f"/proc/{pid}")
    status = (process / "status").read_text()
    return (len(list((process / "fd").iterdir())), len(list((process / "task").iterdir())),
            int(re.search(r"VmRSS:\s+(\d+)", status)[1]))


def spin_until(moment):
    """Moments are a millisecond apart: waiting for one is the point here, not synchronisation."""
    while time.monotonic() < moment:
        pass


def kill_after(dice, most_s, victim):
    spin_until(time.monotonic() + dice.random() * most_s)
    victim.send(signal.SIGKILL)


def rping_client(run, port):
    return run.start(["rping", "-c", "-V", "-a", HOST, "-p", port, "-S", 2000])


def settled(run, server, wanted, what):
    """The footprint comes back to `wanted` descriptors and threads: closing takes a moment."""
    last = ()

    def same():
        nonlocal last
        last = footprint(server.pid)
        return last[0] <= wanted[0] and last[1] <= wanted[1]

    try:
        wait_until(same, run.programs.seconds(HEARS_WITHIN_S), what)
    except Failure:
        raise Failure(f"{what}: {last[:2]} descriptors and threads instead of {wanted[:2]}") from None


# Over iWARP alone: rping's server ends itself at the UNREACHABLE of a client that died before its RTU.
@case("hard.kill_rping_client", needs=["rping"], sanitized=True, timeout_s=120, cm="iwarp")
def kill_rping_client(run):
    """Clients of a persistent server die; it frees what they used and serves the next."""
    port = free_port()
    server = run.listening(["rping", "-s", "-P", "-S", 4096, "-a", HOST, "-p", port], port)
    at_rest = footprint(server.pid)[1]  # a sanitizer has a thread of its own, too
    dice = random.Random(run.seed)
    rounds = run.rounds or 20

    def one_whole():
        client = run.start(["rping", "-c", "-V", "-a", HOST, "-p", port, "-C", 10, "-S", 2000])
        run.succeeds(client)

    def some_killed(count):
        for _ in range(count):
            client = rping_client(run, port)
            kill_after(dice, 0.05, client)
            client.wait(10)
            client.close()
            run.programs.all.remove(client)

    # The first ones fill pools and caches; what comes after must not add to them.
    one_whole()
    some_killed(5)
    one_whole()
    wait_until(lambda: footprint(server.pid)[1] <= at_rest, run.programs.seconds(HEARS_WITHIN_S),
               "the threads of the first connections to end")
    before = footprint(server.pid)
    some_killed(rounds)
    one_whole()
    settled(run, server, before, f"after {rounds} kills")
    grown_kb = footprint(server.pid)[2] - before[2]
    # A connection holds far more than 8 kB (buffers of the program alone are 4 kB each).
    if grown_kb > 1024 + 8 * rounds and not run.sanitized:
        raise Failure(f"{grown_kb} kB more after {rounds} kills")


@case("hard.kill_rping_server", needs=["rping"], sanitized=True, timeout_s=120, cm="both")
def kill_rping_server(run):
    """The server dies; its client hears DISCONNECTED, or cannot connect, and ends."""
    dice = random.Random(run.seed)
    for number in range(run.rounds or 20):
        port = free_port()
        server = run.listening(["rping", "-s", "-a", HOST, "-p", port, "-S", 2000], port)
        client = rping_client(run, port)
        kill_after(dice, 0.05, server)
        status = client.wait(run.programs.seconds(HEARS_WITHIN_S))
        if status < 0:
            raise Failure(f"round {number}: signal {-status} ended the client")
        # Killed before it connected: a refusal; afterwards: the end of the connection.
        heard = client.errors()
        if not re.search(r"DISCONNECT EVENT|REJECTED|CONNECT_ERROR|UNREACHABLE", heard):
            raise Failure(f"round {number}: the client ended without hearing of the end")


def kill_perftest(run, victim_is_client, number, dice):
    port = free_port()
    base = ["ib_write_bw", "-R", "-F", "-p", port, "-s", 65536, "-D", 20]
    server = run.listening(base, port)
    client = run.start([*base, HOST])
    survivor, victim = (server, client) if victim_is_client else (client, server)
    kill_after(dice, 0.5, victim)
    victim.wait(10)
    if victim_is_client and "RDMA_Write BW Test" not in server.output():
        # It died before it had connected, so the server waits for another, rightly.
        server.end()
        return
    status = survivor.wait(run.programs.seconds(HEARS_WITHIN_S))
    if status < 0:
        raise Failure(f"round {number}: signal {-status} ended the survivor")


@case("hard.kill_write_bw_server", needs=["ib_write_bw"], sanitized=True, timeout_s=180, cm="both")
def kill_write_bw_server(run):
    dice = random.Random(run.seed)
    for number in range(run.rounds or 10):
        kill_perftest(run, False, number, dice)


@case("hard.kill_write_bw_client", needs=["ib_write_bw"], sanitized=True, timeout_s=180, cm="both")
def kill_write_bw_client(run):
    dice = random.Random(run.seed)
    for number in range(run.rounds or 10):
        kill_perftest(run, True, number, dice)
