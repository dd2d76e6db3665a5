# SPDX-License-Identifier: MIT
"""The rows of RoCEv2: beside bare UDP that sends and receives many datagrams by one call
(UDP_SEGMENT, UDP_GRO), and beside libfabric's reliable datagrams over UDP.

Between two network namespaces packets are UDP. Within a host they go by unix sockets between the
processes, and are compared with UDP over loopback all the same.
"""
from contenders import FabricRdm, Perftest, UdpPeer
from places import VethPair
from rows import MIB, Group, idle

ROCE = {"AIRDMA_CM": "roce"}
# The path MTU that rdma_cm finds, for the MTU of an interface.
INTERFACE_MTU = {1024: 1500, 4096: 9000}
VERBS = ("write", "read", "send")


def pair_maker(setup, *arguments, **how):
    """A function that makes a pair of interfaces the first time, and has it from then on."""
    made = []

    def pair():
        if not made:
            made.append(VethPair(*arguments, **how))
            setup.places.append(made[0])
        return made[0]

    return pair


def bandwidth(setup, verb, count, pair=None):
    return Perftest(setup.airdma, f"ib_{verb}_bw -s {MIB} -n {count} --report_gbits",
                    Perftest.AVERAGE_GBIT, 1 / 8, env=ROCE, pair=pair)


def udp(setup, arguments, pair=None):
    return UdpPeer(setup.binary("bench_udp_peer"), arguments, pair)


def between_namespaces(setup, mtu, segmentation, goal):
    """1 MiB messages over a pair of interfaces. Without `segmentation` each packet crosses it by
    itself."""
    group = Group(f"roce{mtu}" if segmentation else f"roce{mtu}single", rounds=0.7)
    pair = pair_maker(setup, INTERFACE_MTU[mtu], segmentation)
    for verb in VERBS:
        group.add(verb, lambda verb=verb: bandwidth(setup, verb, 2000 if segmentation else 600,
                                                    pair()))
    group.add("udp", lambda: udp(setup, f"stream {{}} {mtu} 0.4", pair()))
    path = f"veth, path MTU {mtu}" + ("" if segmentation else ", no segmentation offload")
    for verb in VERBS:
        group.compare(f"RoCE, {path}, 1 MiB {verb.upper()} / UDP stream", verb, "GB/s", "udp", goal)
    return group


def within_host(setup):
    group = Group("rocehost", rounds=0.7)
    for verb in VERBS:
        group.add(verb, lambda verb=verb: bandwidth(setup, verb, 2000))
    group.add("udp", lambda: udp(setup, "stream {} 4096 0.4"))
    group.add("rxd", lambda: FabricRdm(setup.binary("bench_fabric_rdm_peer"), MIB, 16, MIB / 1e9))
    for verb in VERBS:
        group.compare(f"RoCE within a host, 1 MiB {verb.upper()} / UDP stream on loopback", verb,
                      "GB/s", "udp", ">= 0.5")
    group.compare("RoCE within a host, 1 MiB SEND / libfabric udp;ofi_rxd", "send", "GB/s", "rxd",
                  ">= 15")
    return group


def ping_pong(setup, name, title, program, how, count, goal):
    """Half round trips of 64 bytes over a pair of interfaces; both report a median."""
    group = Group(name)
    pair = pair_maker(setup, INTERFACE_MTU[4096])
    group.add("roce", lambda: Perftest(setup.airdma, f"{program} -s 64 -n {count}",
                                       Perftest.TYPICAL_US, env=ROCE, pair=pair()))
    group.add("udp", lambda: udp(setup, f"latency {how} {{}} 64 {count}", pair()))
    words = {"spin": "busy-polling", "epoll": "epoll"}[how]
    group.compare(f"RoCE, veth, 64 B {title} / {words} UDP ping-pong", "roce", "us", "udp", goal)
    return group


def rate(setup):
    group = Group("rocerate")
    program = "ib_send_bw -s 64 -t 128 -n 100000"
    group.add("roce", lambda: Perftest(setup.airdma, program, Perftest.RATE_M, env=ROCE))
    group.add("list", lambda: Perftest(setup.airdma, f"{program} -l 32", Perftest.RATE_M, env=ROCE))
    group.add("rxd", lambda: FabricRdm(setup.binary("bench_fabric_rdm_peer"), 64, 128, 1e-6))
    group.add("iwarp", lambda: Perftest(setup.airdma, program, Perftest.RATE_M))
    name = "RoCE within a host, 64 B SEND rate, window 128"
    group.compare(f"{name}, posted one by one / libfabric udp;ofi_rxd", "roce", "M/s", "rxd",
                  ">= 5")
    group.compare(f"{name}, lists of 32 / libfabric udp;ofi_rxd", "list", "M/s", "rxd", ">= 5")
    group.compare(f"{name}, posted one by one / iWARP", "roce", "M/s", "iwarp")
    return group


def loss(setup):
    """1 % of single packets, either way."""
    group = Group("roceloss", rounds=0.5)
    for key, probability in (("lossy", 0.01), ("lossless", 0.0)):
        pair = pair_maker(setup, INTERFACE_MTU[4096], loss=probability)
        group.add(key, lambda pair=pair: bandwidth(setup, "write", 600, pair()))
    group.compare("RoCE, veth, 1 MiB WRITE, 1 % of the packets lost / none", "lossy", "GB/s",
                  "lossless", ">= 0.5")
    return group


def connections(setup):
    """The same number of messages over 1,000 queue pairs and over one."""
    group = Group("roceconnections", rounds=0.5)
    program = "ib_send_bw -s 64 -t 64"
    for key, how in (("many", "-q 1000 -n 192"), ("one", "-n 192000")):
        group.add(key, lambda how=how: Perftest(setup.airdma, f"{program} {how}", Perftest.RATE_M,
                                                env=ROCE))
    group.compare("RoCE within a host, 64 B SEND rate, 1000 queue pairs / one", "many", "M/s",
                  "one", ">= 0.8")
    return group


# Name of a group, and what makes it.
GROUPS = {
    "roce4096": lambda setup: between_namespaces(setup, 4096, True, ">= 0.75"),
    "roce1024": lambda setup: between_namespaces(setup, 1024, True, ">= 0.65"),
    "roce4096single": lambda setup: between_namespaces(setup, 4096, False, ">= 0.85"),
    "roce1024single": lambda setup: between_namespaces(setup, 1024, False, ">= 0.85"),
    "rocehost": within_host,
    "rocelatency": lambda setup: ping_pong(
        setup, "rocelatency", "SEND half round trip, both polling their CQs", "ib_send_lat", "spin",
        20000, "<= 1.2"),
    "rocememory": lambda setup: ping_pong(
        setup, "rocememory", "WRITE half round trip, both watching memory", "ib_write_lat", "epoll",
        5000, "<= 1"),
    "rocerate": rate,
    "roceloss": loss,
    "roceconnections": connections,
    "roceidle": lambda setup: idle(setup, "roceidle", "roce"),
}
