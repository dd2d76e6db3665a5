# SPDX-License-Identifier: MIT
"""A hundred connections under load whose peer is killed, frozen, or does not listen.

The program at both ends is programs/crowd.cc: numbered messages in both directions on each
connection, every one compared.
"""
import os
import pathlib
import re
import signal
import socket

from framework import Failure, case, equal
from support import mpa
from support.processes import free_port, wait_until

COUNT = 100
# What a connection may hold: 256 kB each of frames that TCP does not take, of messages that wait for
# receives, and of what was read behind those; and as much again for its queues and the heap. A peer
# that takes nothing must not cost more, whatever the program sends.
MOST_KB_PER_CONNECTION = 1024


class Crowd:
    """One running crowd: its commands and its figures."""

    def __init__(self, run, *arguments, before=()):
        self.run = run
        read_end, write_end = os.pipe()
        self.commands = os.fdopen(write_end, "wb", buffering=0)
        self.program = run.start([*before, run.build / "tests/bin/hard/crowd", *arguments],
                                 stdin=read_end)
        os.close(read_end)
        self.asked = 0

    def say(self, command):
        self.commands.write(command.encode() + b"\n")

    def status(self):
        self.say("status")
        self.asked += 1
        lines = []

        def answered():
            lines[:] = re.findall(r"^status .*$", self.program.output(), re.MULTILINE)
            if self.program.status() is not None:
                raise Failure(f"ended: {self.program}")
            return len(lines) >= self.asked

        wait_until(answered, self.run.programs.seconds(20), f"an answer of {self.program}")
        return {name: int(value) for name, value in re.findall(r"(\w+)=(\d+)", lines[-1])}

    def reaches(self, what, seconds=30, **wanted):
        last = {}

        def reached():
            last.update(self.status())
            return all(last[name] >= value for name, value in wanted.items())

        try:
            wait_until(reached, self.run.programs.seconds(seconds), what)
        except Failure:
            raise Failure(f"{what}: {last} instead of {wanted}") from None
        return last

    def footprint(self):
        process = pathlib.Path(f"/proc/{self.program.pid}")
        resident = int(re.search(r"VmRSS:\s+(\d+)", (process / "status").read_text())[1])
        return (len(list((process / "fd").iterdir())), len(list((process / "task").iterdir())),
                resident)

    def end(self):
        self.commands.close()
        self.run.succeeds(self.program, 60)


def server(run):
    port = free_port()
    crowd = Crowd(run, "serve", port)
    run.programs.wait_listening(crowd.program, port)
    return crowd, port


def loaded(run, port, serving, count, established):
    """A client with `count` connections, all of which move messages."""
    client = Crowd(run, "connect", port, count)
    client.reaches("all connections", established=count)
    serving.reaches("all connections at the server", established=established)
    client.reaches("traffic on all connections", messages=count * 20)
    return client


def all_right(state):
    for figure in ("wrong", "failed"):
        equal(state[figure], 0, f"{figure} in {state}")


@case("hard.crowd.killed_client", sanitized=True, timeout_s=120, cm="iwarp")
def killed_client(run):
    """Twice, so that what the first kill left behind would show in the second. Kept buffers are
    4 MB at most; a connection lost would be 100 times 256 kB."""
    serving, port = server(run)
    for number in (1, 2):
        client = loaded(run, port, serving, COUNT, number * COUNT)
        client.program.send(signal.SIGKILL)
        state = serving.reaches("the ends of all connections", disconnected=number * COUNT,
                                ended=number * COUNT)
        all_right(state)
        if number == 1:
            settled = serving.footprint()
    last = ()

    def same():
        nonlocal last
        last = serving.footprint()
        return last[:2] <= settled[:2] and last[0] <= settled[0]

    wait_until(same, run.programs.seconds(10), "descriptors and threads as after the first kill")
    if last[2] > settled[2] + 8192 and not run.sanitized:
        raise Failure(f"{last[2]} kB resident, {settled[2]} after the first kill")
    serving.end()


@case("hard.crowd.killed_server", sanitized=True, timeout_s=120, cm="iwarp")
def killed_server(run):
    serving, port = server(run)
    client = loaded(run, port, serving, COUNT, COUNT)
    serving.program.send(signal.SIGKILL)
    all_right(client.reaches("the ends of all connections", disconnected=COUNT, ended=COUNT))
    client.end()


def bounded(crowd, before_kb, count):
    resident = crowd.footprint()[2]
    most = before_kb + count * MOST_KB_PER_CONNECTION
    if resident > most and not crowd.run.sanitized:
        raise Failure(f"{resident} kB resident, {before_kb} before, with {count} idle peers")


def traffic_goes_on(crowd, factor=50):
    now = crowd.status()["messages"]
    crowd.reaches("traffic of the others", messages=now + COUNT * factor)


@case("hard.crowd.frozen", sanitized=True, timeout_s=180, cm="iwarp")
def frozen(run):
    """A stopped process costs the other side nothing but its own traffic; it goes on where it was."""
    serving, port = server(run)
    awake = loaded(run, port, serving, COUNT, COUNT)
    sleeper = loaded(run, port, serving, COUNT, 2 * COUNT)
    before = serving.footprint()[2]
    for _ in range(3):
        at = sleeper.status()["messages"]
        sleeper.program.send(signal.SIGSTOP)
        for _ in range(3):
            traffic_goes_on(awake)
            bounded(serving, before, COUNT)
        sleeper.program.send(signal.SIGCONT)
        sleeper.reaches("traffic of the woken process", messages=at + COUNT * 20)
    for crowd in (awake, sleeper):
        crowd.say("stop")
        all_right(crowd.reaches("the end of all connections", ended=COUNT))
        crowd.end()
    all_right(serving.reaches("the end of all connections", ended=2 * COUNT))
    serving.end()


@case("hard.crowd.deaf", sanitized=True, timeout_s=120, cm="iwarp")
def deaf(run):
    """Peers that never post a receive: their stream stands, and nobody else's."""
    serving, port = server(run)
    awake = loaded(run, port, serving, 20, 20)
    before = serving.footprint()[2]
    silent = Crowd(run, "connect", port, COUNT, "deaf")
    silent.reaches("all connections", established=COUNT)
    for _ in range(3):
        traffic_goes_on(awake)
        bounded(serving, before, COUNT)
    for crowd in (serving, silent):
        all_right(crowd.status())
    silent.program.send(signal.SIGKILL)
    serving.reaches("the ends of the deaf", ended=COUNT)
    traffic_goes_on(awake)
    serving.end()


def raw_peer(port):
    """A peer that makes a valid MPA exchange, speaks once, and never reads."""
    peer = socket.create_connection(("127.0.0.1", port), 20)
    peer.settimeout(20)
    peer.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    peer.sendall(mpa.request(b"", crc=True))
    if mpa.read_reply(peer).rejected:
        raise Failure("the listener rejected a valid request")
    peer.sendall(mpa.fpdu(mpa.write_segment(0, 0, b"")))
    return peer


@case("hard.crowd.unread", sanitized=True, timeout_s=120, cm="iwarp")
def unread(run):
    """Sockets that nobody reads: what waits for them is bounded, and goes when they go."""
    serving, port = server(run)
    awake = loaded(run, port, serving, 20, 20)
    before = serving.footprint()[2]
    peers = [raw_peer(port) for _ in range(COUNT)]
    serving.reaches("the raw peers", established=20 + COUNT)
    for _ in range(3):
        traffic_goes_on(awake)
        bounded(serving, before, COUNT)
    for peer in peers:
        peer.close()
    serving.reaches("the ends of the raw peers", ended=COUNT)
    awake.say("stop")
    all_right(awake.reaches("the end of all connections", ended=20))
    awake.end()
    serving.end()
