# SPDX-License-Identifier: MIT
"""Network namespaces for a run, and processes in them. A holder keeps a namespace alive; it and the
namespace end with this process.

Peers that cannot be told which congestion control to use run in a namespace whose default is what
airdma chooses on loopback, so that no ratio is one of congestion controls. Needs root, or user
namespaces that anybody may make.
"""
import os
import socket
import subprocess
import sys
import time

TCP_CONGESTION = getattr(socket, "TCP_CONGESTION", 13)


class Unavailable(Exception):
    pass


def loopback_congestion_control():
    """What airdma chooses: the default, but another than bbr where the process may have it."""
    with socket.socket() as probe:
        name = probe.getsockopt(socket.IPPROTO_TCP, TCP_CONGESTION, 16).rstrip(b"\0").decode()
        if name.startswith("bbr"):
            for choice in ("cubic", "reno"):
                try:
                    probe.setsockopt(socket.IPPROTO_TCP, TCP_CONGESTION, choice.encode())
                    return choice
                except OSError:
                    pass
        return name


class Here:
    """The namespace this process is in."""
    pid = "self"

    def inside(self, command):
        return command


class Namespace:
    def __init__(self, congestion_control=None, beside=None):
        """`beside`: another namespace; both can then be joined by a pair of interfaces."""
        # `read` ends when this process does, and nothing is written to it.
        script = "ip link set lo up"
        if congestion_control:
            # A namespace may not have every one that the host has; reno, as fast here, is free.
            file = "/proc/sys/net/ipv4/tcp_congestion_control"
            script += f"; for c in {congestion_control} reno; do echo $c >{file} && break; done 2>&-"
        make = ["unshare", "-n"] if os.geteuid() == 0 or beside else ["unshare", "-Urn"]
        if beside:
            make = beside.inside(make)
        self._holder = subprocess.Popen(
            make + ["sh", "-c", script + "; echo $$; read -r wait"], stdin=subprocess.PIPE,
            stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        self._user = os.geteuid() != 0
        answer = self._holder.stdout.readline().strip()
        if not answer:
            raise Unavailable(f"no network namespace (needs root): "
                              f"{self._holder.communicate()[1].strip()}")
        self.pid = answer

    def inside(self, command):
        user = ["-U", "--preserve-credentials"] if self._user else []
        return ["nsenter", "-t", self.pid, "-n"] + user + command

    def close(self):
        self._holder.communicate()


class VethPair:
    """Two namespaces and a pair of interfaces between them; `at` is the second one's address.
    `segmentation`: whether what is sent together crosses it in one piece. `loss`: the probability
    with which each single packet is lost, either way; 0 is such a path that loses nothing."""
    at = "10.99.7.2"

    def __init__(self, mtu, segmentation=True, loss=None):
        self._losses = []
        self.near = Namespace()
        self.far = Namespace(beside=self.near)
        self._ip(self.near, "link", "add", "v0", "mtu", str(mtu), "type", "veth",
                 "peer", "name", "v1", "mtu", str(mtu), "netns", self.far.pid)
        for place, name, address in ((self.near, "v0", "10.99.7.1"), (self.far, "v1", self.at)):
            self._ip(place, "address", "add", f"{address}/24", "dev", name)
            self._ip(place, "link", "set", name, "up")
            if not segmentation:
                self._command(place, "ethtool", "-K", name, "tx-udp-segmentation", "off", "tso",
                              "off", "gso", "off", "gro", "on")
            if loss is not None:
                self._command(place, "ethtool", "-K", name, "gro", "on")
                self._lose(place, name, loss)
        self._wait_until_up()

    def _wait_until_up(self):
        """The kernel says so about a second later, and programs look at it."""
        limit = time.monotonic() + 10
        while time.monotonic() < limit:
            states = [self._command(place, "ip", "-o", "link", "show", name)
                      for place, name in ((self.near, "v0"), (self.far, "v1"))]
            if all(" state UP " in state for state in states):
                return
            time.sleep(0.05)
        raise Unavailable("a veth interface did not come up")

    def _lose(self, place, name, loss):
        program = os.path.join(os.path.dirname(os.path.abspath(__file__)), "loss.py")
        started = subprocess.Popen(
            place.inside([sys.executable, "-B", program, name, str(loss)]), stdin=subprocess.PIPE,
            stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        self._losses.append(started)
        if started.stdout.readline().strip() != "ready":
            why = started.communicate()[1].strip().rpartition("\n")[2]
            raise Unavailable(f"no loss on a veth interface (needs root): {why}")

    @staticmethod
    def _command(place, *arguments):
        try:
            done = subprocess.run(place.inside([*arguments]), stdin=subprocess.DEVNULL,
                                  capture_output=True, text=True, timeout=30, check=False)
        except FileNotFoundError as error:
            raise Unavailable(str(error)) from error
        if done.returncode != 0:
            raise Unavailable(f"{' '.join(arguments)} (needs root): {done.stderr.strip()}")
        return done.stdout

    def _ip(self, place, *arguments):
        self._command(place, "ip", *arguments)

    def close(self):
        for started in self._losses:
            started.communicate()
        self.far.close()
        self.near.close()
