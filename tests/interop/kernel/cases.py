# SPDX-License-Identifier: MIT
"""What airdma and the kernel's rxe do together: the same program at both ends."""
import re

import guest as guests
from processes import wait_until

GROUP = "239.77.0.1"
BOTH = (4, 6)
# What `rdma resource` and /proc show while a server waits in the connection manager.
GUEST_LISTENS = "rdma resource show cm_id | grep -q LISTEN"
OUR_LISTENER = "@airdma/cmo/"


def addresses(family, kernel_serves):
    """The server's and the client's."""
    pair = guests.ADDRESS[family], guests.HOST[family]
    return pair if kernel_serves else pair[::-1]


class Case:
    """A program that meets its peer on a TCP port and takes device and GID as arguments."""

    has_port = True
    families = BOTH

    def __init__(self, command, gid_option):
        self.name = command
        self._gid_option = gid_option

    def _ours(self, device, gid, port):
        return f"{self.name} -p {port} -d {device} {self._gid_option} {gid}"

    _theirs = _ours

    def commands(self, sides, family, port, kernel_serves):
        """airdma's and the kernel's."""
        our_gid, their_gid = sides.gids[family]
        ours = self._ours(sides.device, our_gid, port)
        theirs = self._theirs("rxe0", their_gid, port)
        # The TCP connection need not be of the family that is tested.
        if kernel_serves:
            return f"{ours} {guests.ADDRESS[4]}", theirs
        return ours, f"{theirs} {guests.HOST[4]}"

    def wait_for_guest(self, guest, server, port):
        guest.wait_for(server, f"cat /proc/net/tcp /proc/net/tcp6 | grep -q ':{port:04X} 0*:0000 0A'")

    def wait_for_ours(self, programs, server, port):
        programs.wait_listening(server, port)


class Bulk(Case):
    """bulk.c: every byte compared."""

    def __init__(self, operation, mebibytes, program):
        super().__init__(f"bulk {operation} {mebibytes} MiB", "")
        self._rest = f"{operation} {mebibytes}"
        self._program = program

    def _ours(self, device, gid, port):
        return f"{self._program} {device} {gid} {self._rest} {port}"

    def _theirs(self, device, gid, port):
        return f"bulk {device} {gid} {self._rest} {port}"


class Managed(Case):
    """Ends that meet in the RDMA connection manager. {server}, {client}: addresses; {device}."""

    has_port = False

    def __init__(self, name, server, client, families=BOTH):
        super().__init__(name, "")
        self.families = families
        self._server = server
        self._client = client

    def commands(self, sides, family, port, kernel_serves):
        server, client = addresses(family, kernel_serves)
        names = {"server": server, "client": client}
        far, near = {"device": "rxe0", **names}, {"device": sides.device, **names}
        if kernel_serves:
            return self._client.format(**near), self._server.format(**far)
        return self._server.format(**near), self._client.format(**far)

    def wait_for_guest(self, guest, server, port):
        guest.wait_for(server, GUEST_LISTENS)

    def wait_for_ours(self, programs, server, port):
        def listens():
            with open("/proc/net/unix", encoding="ascii") as sockets:
                return server.status() is not None or OUR_LISTENER in sockets.read()

        wait_until(listens, 20, f"a listener of {server}")


class Multicast(Managed):
    """mckey: the server is the one that receives. rxe's host refuses to join IPv6 groups."""

    def __init__(self, messages, size):
        common = f"mckey -m {GROUP} -C {messages} -S {size} -b"
        super().__init__(f"mckey -C {messages} -S {size}", f"{common} {{server}}",
                         f"{common} {{client}} -s", families=(4,))

    def wait_for_guest(self, guest, server, port):
        # Of all groups rxe takes the Ethernet address of an IPv6 group with the same last bytes.
        octets = [f"{int(octet):02x}" for octet in GROUP.split(".")]
        guest.wait_for(server, f"/usr/bin/ip maddress show dev eth0 | grep -q {':'.join(octets)}")

    def wait_for_ours(self, programs, server, port):
        group = "".join(f"{int(octet):02X}" for octet in reversed(GROUP.split(".")))

        def joined():
            with open("/proc/net/igmp", encoding="ascii") as groups:
                return server.status() is not None or re.search(group, groups.read())

        wait_until(joined, 20, f"{server} to join its group")


def managed():
    found = [
        Managed("rping -C 10 -V", "rping -s -a {server} -C 10 -V", "rping -c -a {server} -C 10 -V"),
        Managed("rping -C 10 -V -S 30000", "rping -s -a {server} -C 10 -V -S 30000",
                "rping -c -a {server} -C 10 -V -S 30000"),
        Managed("ucmatose -c 4 -C 10 -S 5000", "ucmatose -b {server} -c 4 -C 10 -S 5000",
                "ucmatose -s {server} -c 4 -C 10 -S 5000"),
        Managed("udaddy -c 2 -C 10", "udaddy -b {server} -c 2 -C 10",
                "udaddy -s {server} -c 2 -C 10"),
        Multicast(10, 100),
        Multicast(10, 1000),
    ]
    # perftest 4.5 asks for IPv4 addresses alone under -R.
    for verb in ("send", "write", "read", "atomic"):
        name = f"ib_{verb}_bw -R -F -n 100" + ("" if verb == "atomic" else " -s 5000")
        found.append(Managed(name, f"{name} -d {{device}}", f"{name} -d {{device}} {{server}}",
                             families=(4,)))
    return found


def unmanaged():
    pingpongs = [Case(f"ibv_{kind}_pingpong -n 50 -c -s {size}", "-g")
                 for kind, size in (("rc", 1), ("rc", 5000), ("rc", 262144), ("uc", 5000),
                                    ("ud", 1000), ("srq", 5000))]
    perftests = [Case(f"ib_{verb}_{kind} -n 100 -s {size}", "-x")
                 for verb in ("send", "write", "read")
                 for kind, size in (("bw", 64), ("bw", 65536), ("lat", 64))]
    services = [Case(f"ib_{verb} -c {service} -n 100 -s 1000", "-x")
                for verb, service in (("send_bw", "UC"), ("write_bw", "UC"), ("send_bw", "UD"),
                                      ("send_lat", "UD"))]
    atomics = [Case(f"ib_atomic_{kind} -n 100 -A {operation}", "-x")
               for kind, operation in (("bw", "FETCH_AND_ADD"), ("lat", "CMP_AND_SWAP"))]
    return pingpongs + perftests + services + atomics


def bulk(program, mebibytes):
    return [Bulk(operation, mebibytes, program) for operation in ("send", "write", "read")]


def marked():
    """Packets that may be marked instead of dropped."""
    return [Case("ib_write_bw --tclass=2 -n 100 -s 65536", "-x")]
