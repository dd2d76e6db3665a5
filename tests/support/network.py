# SPDX-License-Identifier: MIT
"""Two network namespaces with a cable between them, for one test. Needs root, or user namespaces
that anybody may make."""
import os
import signal
import subprocess

from support.processes import Skip, wait_until


class Place:
    """A network namespace, kept alive by a process of its own."""

    def __init__(self, beside=None):
        as_root = os.geteuid() == 0
        make = ["unshare", "-n"] if as_root or beside else ["unshare", "-Urn"]
        self._enter_user = [] if as_root else ["-U", "--preserve-credentials"]
        command = make + ["sh", "-c", "ip link set lo up && echo $$; read -r wait"]
        self._holder = subprocess.Popen(
            beside.inside(command) if beside else command, stdin=subprocess.PIPE,
            stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, start_new_session=True)
        self.pid = self._holder.stdout.readline().strip()
        if not self.pid:
            raise Skip("no network namespace to be had")

    def inside(self, command):
        return ["nsenter", "-t", self.pid, "-n", *self._enter_user, *map(str, command)]

    def run(self, *command):
        done = subprocess.run(self.inside(command), stdin=subprocess.DEVNULL, capture_output=True,
                              text=True, timeout=30, check=False)
        if done.returncode != 0:
            raise Skip(f"{' '.join(map(str, command))}: {done.stderr.strip()}")
        return done.stdout

    def close(self):
        try:
            os.killpg(self._holder.pid, signal.SIGKILL)
        except ProcessLookupError:
            pass
        self._holder.communicate()


class Cable:
    """`near` and `far`, joined by interfaces v0 (10.99.8.1, fd99::1) and v1 (.2, ::2)."""
    near_address = "10.99.8.1"
    far_address = "10.99.8.2"

    def __init__(self, mtu=1500):
        self.near = Place()
        self.far = Place(beside=self.near)
        self.near.run("ip", "link", "add", "v0", "mtu", mtu, "type", "veth", "peer", "name", "v1",
                      "mtu", mtu, "netns", self.far.pid)
        for place, name, last in ((self.near, "v0", 1), (self.far, "v1", 2)):
            place.run("ip", "address", "add", f"10.99.8.{last}/24", "dev", name)
            place.run("ip", "address", "add", f"fd99::{last}/64", "dev", name, "nodad")
            place.run("ip", "link", "set", name, "up")
        # The kernel may take a second to notice the carrier, and a port without one is not active.
        for place, name in ((self.near, "v0"), (self.far, "v1")):
            wait_until(lambda there=place, link=name: "state UP" in
                       there.run("ip", "link", "show", link), 20, f"{name} to be up")

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.far.close()
        self.near.close()
