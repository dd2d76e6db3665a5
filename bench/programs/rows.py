# SPDX-License-Identifier: MIT
"""The table: which programs make a group of rows, and what each row compares.

All contenders of a group run once in a round, one after the other. A contender that cannot be made
on this machine leaves the reason for its rows.
"""
import os
import re
from dataclasses import dataclass, field

from contenders import (Cmtime, Fabric, Failed, Iperf3, Missing, Perftest, TcpPeer, Ucx, run)
from places import Namespace, Unavailable, VethPair, loopback_congestion_control
from samples import Goal, Line

MIB = 1 << 20
CRC_OFF = {"AIRDMA_MPA_CRC": "off"}
# What fits a segment on Ethernet: the loopback interface's own are 64 KiB.
FPDU_MSS = {"AIRDMA_MPA_MAX_FPDU": "1448"}


@dataclass
class Setup:
    """What every group is made from. `places` are closed at the end of the run."""
    airdma: str
    binaries: str
    loopback: object = None  # namespace for peers on loopback
    places: list = field(default_factory=list)

    def binary(self, name):
        return os.path.join(self.binaries, name)

    def peer_place(self):
        if self.loopback is None:
            self.loopback = Namespace(loopback_congestion_control())
            self.places.append(self.loopback)
        return self.loopback

    def tcp(self, arguments, scale=1.0):
        return TcpPeer(self.binary("bench_tcp_peer"), arguments, scale)


@dataclass
class Group:
    name: str
    rounds: float = 1.0  # of the run's number of rounds: less for what takes long
    contenders: dict = field(default_factory=dict)
    lines: list = field(default_factory=list)
    missing: dict = field(default_factory=dict)

    def add(self, key, make):
        try:
            self.contenders[key] = make()
        except (Missing, Unavailable) as reason:
            self.missing[key] = str(reason)

    def compare(self, name, product, unit, peer=None, goal=None):
        self.lines.append(Line(name, product, unit, peer, Goal(goal) if goal else None))


def bulk(setup, verb):
    """1 MiB messages, one queue pair: -t 128 requests of the default, both ends polling."""
    group = Group(verb)
    name = f"1 MiB {verb.upper()}"
    program = f"ib_{verb}_bw -s {MIB} -n 1500 --report_gbits"
    for key, env in (("airdma", None), ("mss", FPDU_MSS), ("no crc", CRC_OFF)):
        group.add(key, lambda env=env: Perftest(setup.airdma, program, Perftest.AVERAGE_GBIT, 1 / 8,
                                                env=env))
        if key == "airdma":
            group.add("tcp", lambda: setup.tcp(f"stream {MIB} 0.3"))
    group.add("ucx", lambda: Ucx(setup.peer_place(), f"-t tag_bw -s {MIB} -n 1500 -w 50",
                                 MIB / 1e9))
    group.add("fabric", lambda: Fabric(setup.peer_place(), setup.binary("bench_fabric_peer"), MIB))
    group.compare(f"{name}, CRC, / spinning TCP stream", "airdma", "GB/s", "tcp", ">= 0.85")
    group.compare(f"{name}, CRC, / UCX tcp", "airdma", "GB/s", "ucx", "> 1")
    group.compare(f"{name}, CRC, / libfabric tcp", "airdma", "GB/s", "fabric", "> 1")
    group.compare(f"{name}, FPDUs of 1448 bytes / of 64 KiB", "mss", "GB/s", "airdma", ">= 0.65")
    group.compare(f"{name}, CRC on / off", "airdma", "GB/s", "no crc", ">= 0.88")
    return group


def ping_pong(setup, group_name, title, program, how, count, goal):
    """Half round trips of 64 bytes; both sides report a median."""
    group = Group(group_name)
    group.add("airdma", lambda: Perftest(setup.airdma, f"{program} -s 64 -n {count}",
                                         Perftest.TYPICAL_US))
    group.add("tcp", lambda: setup.tcp(f"latency {how} 64 {count}"))
    words = {"spin": "busy-polling", "epoll": "epoll"}[how]
    group.compare(f"64 B {title} / {words} TCP ping-pong", "airdma", "us", "tcp", goal)
    return group


def rate(setup):
    """One queue pair with at most 64 requests outstanding. A program posts them one by one as the
    queue has room (ib_send_bw -t 64), or in lists (-l 32: two lists fill the window)."""
    group = Group("rate")
    one = "ib_send_bw -s 64 -t 64 -n 100000"
    group.add("airdma", lambda: Perftest(setup.airdma, one, Perftest.RATE_M))
    # GB/s divided by 64 bytes are 10^9 messages/s.
    group.add("tcp", lambda: setup.tcp("stream 4096 0.2", 1000 / 64))
    group.add("list", lambda: Perftest(setup.airdma, f"{one} -l 32", Perftest.RATE_M))
    group.add("ucx", lambda: Ucx(setup.peer_place(), "-t tag_bw -s 64 -n 60000 -w 1000", 1e-6))
    name = "64 B SEND rate, window 64"
    for title, key in (("posted one by one", "airdma"), ("lists of 32", "list")):
        group.compare(f"{name}, {title} / TCP, 64 per send", key, "M/s", "tcp", ">= 0.5")
        group.compare(f"{name}, {title} / UCX tcp", key, "M/s", "ucx", ">= 10")
    return group


def connections(setup):
    """The same number of messages over 1,000 queue pairs and over one. Three windows for each queue
    pair: perftest counts the last completion as a whole window, and where queue pairs advance
    unevenly it would stop polling before all have sent."""
    group = Group("connections", rounds=0.5)
    program = "ib_send_bw -s 64 -t 64"
    group.add("many", lambda: Perftest(setup.airdma, f"{program} -q 1000 -n 192", Perftest.RATE_M))
    group.add("one", lambda: Perftest(setup.airdma, f"{program} -n 192000", Perftest.RATE_M))
    group.compare("64 B SEND rate, 1000 connections / one", "many", "M/s", "one", ">= 0.8")
    return group


def connect(setup):
    """1,000 connections, all begun before the first is waited for, then all closed."""
    group = Group("connect")
    group.add("airdma", lambda: Cmtime(setup.airdma, 1000))
    group.add("tcp", lambda: setup.tcp("connections 1000"))
    group.compare("connections per second, cmtime / TCP", "airdma", "1/s", "tcp", ">= 0.5")
    return group


def idle(setup, name="idle", transport="iwarp"):
    """500 connections of a process with itself: 1,000 queue pairs."""
    group = Group(name, rounds=0)
    words = "idle queue pairs" if transport == "iwarp" else "idle RoCE queue pairs"
    last = []

    def ticks():
        last.clear()
        out = run([setup.airdma, "run", "--", setup.binary("bench_idle_qps"), "500", "10"],
                  dict(os.environ, AIRDMA_CM=transport))
        last[:] = idle_figures(out)
        return last[0]

    def of_the_same_run(index):
        if not last:
            raise Failed("bench_idle_qps printed no figures")
        return last[index]

    group.add("ticks", lambda: ticks)
    group.add("wakeups", lambda: lambda: of_the_same_run(1))
    group.add("memory", lambda: lambda: of_the_same_run(2))
    group.compare(f"CPU ticks in 10 s with 1000 {words}", "ticks", "", goal="= 0")
    group.compare("wake-ups in these 10 s", "wakeups", "")
    group.compare("resident memory of an idle queue pair, 64 + 64 requests", "memory", "KiB")
    return group


def idle_figures(out):
    """Ticks, wake-ups, KiB of each queue pair."""
    found = re.search(r"(\d+) CPU ticks, (-?\d+) wake-ups, ([\d.]+) KiB each", out)
    if not found:
        raise Failed(f"bench_idle_qps printed no figures\n{out}")
    return [float(text) for text in found.groups()]


def veth(setup, mtu):
    """Two namespaces joined by a pair of interfaces; both programs keep the default congestion
    control, as airdma does on a path that may leave the host."""
    group = Group(f"veth{mtu}", rounds=0.7)
    made = []

    def pair():
        if not made:
            made.append(VethPair(mtu))
            setup.places.append(made[0])
        return made[0]

    group.add("airdma", lambda: Perftest(setup.airdma, f"ib_write_bw -s {MIB} -n 2000 "
                                         "--report_gbits", Perftest.AVERAGE_GBIT, 1 / 8,
                                         pair=pair()))
    group.add("iperf3", lambda: Iperf3(pair()))
    group.compare(f"veth, MTU {mtu}, 1 MiB WRITE / iperf3", "airdma", "GB/s", "iperf3", ">= 0.85")
    return group


# Name of a group, and what makes it.
GROUPS = {
    "write": lambda setup: bulk(setup, "write"),
    "read": lambda setup: bulk(setup, "read"),
    "send": lambda setup: bulk(setup, "send"),
    "latency": lambda setup: ping_pong(
        setup, "latency", "SEND half round trip, both polling their CQs", "ib_send_lat", "spin",
        20000, "<= 1.15"),
    "memory": lambda setup: ping_pong(
        setup, "memory", "WRITE half round trip, both watching memory", "ib_write_lat", "epoll",
        5000, "<= 1"),
    "events": lambda setup: ping_pong(
        setup, "events", "SEND half round trip, completion channels", "ib_send_lat -e", "epoll",
        5000, "<= 1.15"),
    "rate": rate,
    "connections": connections,
    "connect": connect,
    "idle": idle,
    "veth1500": lambda setup: veth(setup, 1500),
    "veth9000": lambda setup: veth(setup, 9000),
}
