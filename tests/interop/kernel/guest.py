# SPDX-License-Identifier: MIT
"""The guest: one qemu, which emulates the processor so that it runs anywhere, on a tap interface of
this network namespace, and a way to run commands in it.
"""
import re
import socket
import subprocess
import threading

from processes import Failure, wait_until

HOST = {4: "10.77.0.1", 6: "fd77::1"}
ADDRESS = {4: "10.77.0.2", 6: "fd77::2"}
INTERFACE = "kernel0"
SHELL_PORT = 2300
BOOT_S = 90
# Every checksum is on the wire, every packet is as large as the MTU says.
NO_OFFLOADS = ",".join(f"{name}=off" for name in (
    "csum", "guest_csum", "gso", "guest_tso4", "guest_tso6", "guest_ecn", "guest_ufo", "host_tso4",
    "host_tso6", "host_ecn", "host_ufo"))


def set_up_network():
    for command in ("link set lo up",
                    f"tuntap add {INTERFACE} mode tap",
                    f"link set {INTERFACE} mtu 1500 up",
                    f"address add {HOST[4]}/24 dev {INTERFACE}",
                    f"address add {HOST[6]}/64 dev {INTERFACE} nodad"):
        subprocess.run(["ip", *command.split()], check=True)


class Answer:
    """A command that runs in the guest."""

    def __init__(self, script, seconds):
        self.script = script
        self._seconds = seconds
        self.text = ""
        self.status = None
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self):
        script = f"({self.script}) </dev/null 2>&1\necho \"[status $?]\"\n"
        try:
            with socket.create_connection((ADDRESS[4], SHELL_PORT), self._seconds) as shell:
                shell.sendall(script.encode())
                shell.shutdown(socket.SHUT_WR)
                whole = b"".join(iter(lambda: shell.recv(65536), b"")).decode(errors="replace")
        except OSError as error:
            self.text = f"the guest does not answer: {error}"
            return
        found = re.search(r"\[status (\d+)\]\n$", whole)
        self.text = whole[:found.start()] if found else whole
        self.status = int(found.group(1)) if found else None

    def running(self):
        return self._thread.is_alive()

    def wait(self):
        self._thread.join(self._seconds + 5)
        return self.status


class Guest:
    def __init__(self, kernel, initramfs, console, processors=1):
        self._console = console
        self._qemu = subprocess.Popen(
            ["qemu-system-x86_64", "-machine", "pc,accel=tcg", "-cpu", "max", "-smp", str(processors),
             "-m", "768", "-nodefaults", "-display", "none", "-no-reboot",
             "-serial", f"file:{console}", "-kernel", str(kernel), "-initrd", str(initramfs),
             "-append", "console=ttyS0 quiet panic=1 mitigations=off",
             "-netdev", f"tap,id=net,ifname={INTERFACE},script=no,downscript=no,vhost=off",
             "-device", f"virtio-net-pci,netdev=net,romfile=,{NO_OFFLOADS}"],
            stdin=subprocess.DEVNULL)
        wait_until(self._ready, BOOT_S, "the guest to boot")

    def _ready(self):
        if self._qemu.poll() is not None:
            raise Failure(f"qemu ended with status {self._qemu.returncode}")
        return "interop guest is ready" in self.console() and self.run("true").status == 0

    def console(self):
        return self._console.read_text(errors="replace") if self._console.exists() else ""

    def start(self, script, seconds=60):
        return Answer(script, seconds)

    def run(self, script, seconds=60):
        answer = Answer(script, seconds)
        answer.wait()
        return answer

    def wait_for(self, server, look):
        """Until a command says that the server is ready."""
        def ready():
            if not server.running():
                raise Failure("the guest's server ended before it was ready")
            return self.run(look).status == 0

        wait_until(ready, 30, "the guest's server")

    def end(self):
        self._qemu.kill()
        self._qemu.wait()
