# SPDX-License-Identifier: MIT
"""Datagrams through the connection manager: udaddy, which looks services up, and mckey, whose
members join groups; and connections by the thousand. Between two network namespaces, because the
programs' ports are fixed."""
import pathlib
import socket

from framework import absent, case, contains
from support.network import Cable
from support.processes import free_port, wait_until

UDADDY_SERVICE = "airdma/cm/0111/7174/"
SOURCES = {"ipv4": ("10.99.8.1", "10.99.8.2"), "ipv6": ("fd99::1", "fd99::2")}
GROUPS = {"ipv4": "239.11.12.13", "ipv6": "ff0e::11:12:13"}


def wait_for(run, place, table, text, what):
    """Until a table of the kernel's for the place's network says so."""
    path = pathlib.Path(f"/proc/{place.pid}/net/{table}")
    wait_until(lambda: text in path.read_text(), run.programs.seconds(20), what)


def all_right(run, *programs):
    for program in programs:
        contains(run.succeeds(program), "test complete", "return status 0")
        absent(program.output() + program.errors(), r"(?i)error|fail|bad")


def udaddy(run, family):
    with Cable() as cable:
        options = ["-c", 3, "-C", 50, "-S", 1000]
        server = run.start(["udaddy", *options, "-b", SOURCES[family][1]], cable.far)
        wait_for(run, cable.far, "unix", UDADDY_SERVICE, "udaddy's service")
        format_option = ["-f", "ipv6"] if family == "ipv6" else []
        client = run.start(["udaddy", *options, *format_option, "-s", SOURCES[family][1]], cable.near)
        all_right(run, client, server)


def kernels_name(group):
    """As /proc/net/igmp and igmp6 have it."""
    if ":" in group:
        return socket.inet_pton(socket.AF_INET6, group).hex()
    return socket.inet_aton(group)[::-1].hex().upper()


def has_routes(place, family):
    """Those of IPv6 to groups come with the link, a second after it was made."""
    return family == "ipv4" or "ff00::/8" in place.run("ip", "-6", "route", "show", "table", "local")


def mckey(run, family):
    """Receivers on both hosts; what is sent reaches the sender's own host, too."""
    group = GROUPS[family]
    near, far = SOURCES[family]

    def start(place, address, *options):
        return run.start(["mckey", "-m", group, "-b", address, "-C", 20, "-S", 1000, *options], place)

    with Cable() as cable:
        receivers = []
        for place, address in ((cable.far, far), (cable.near, near)):
            wait_until(lambda there=place: has_routes(there, family), run.programs.seconds(20),
                       f"a way to {group}")
            receivers.append(start(place, address))
            wait_for(run, place, "igmp6" if family == "ipv6" else "igmp", kernels_name(group),
                     f"a member of {group}")
        sender = start(cable.near, near, "-s")
        all_right(run, sender, *receivers)


for one in SOURCES:
    # Not sanitized: its receives share one buffer, so datagrams race with each other and with itself.
    @case(f"udaddy.{one}", needs=["udaddy", "ip"])
    def udaddy_of(run, family=one):
        udaddy(run, family)

    @case(f"mckey.{one}", needs=["mckey", "ip"], sanitized=True)
    def mckey_of(run, family=one):
        mckey(run, family)


@case("cmtime.thousand", needs=["cmtime"], timeout_s=120)
def cmtime_thousand(run):
    """A thousand connections over RoCEv2, all under way at once in each step."""
    port = free_port()
    server = run.listening(["cmtime", "-p", port, "-c", 1000], port)
    client = run.start(["cmtime", "-s", "127.0.0.1", "-p", port, "-c", 1000])
    output = run.succeeds(client, 100)
    contains(output, "create id", "resolve addr", "connect", "disconnect", "destroy")
    absent(output + client.errors() + server.errors(), r"(?i)error|failure|reject")
