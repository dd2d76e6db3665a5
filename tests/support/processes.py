# SPDX-License-Identifier: MIT
"""Programs under test: started in a process group each, watched, and always ended.

Nothing here sleeps for synchronisation: one waits for a condition (a port that listens, a line of
output, an exit), looks at it every few milliseconds, and gives up at a deadline.
"""
import ctypes
import os
import pathlib
import random
import re
import signal
import socket
import subprocess
import tempfile
import time

LOOK_AGAIN_S = 0.005
ADDR_NO_RANDOMIZE = 0x0040000


class Failure(Exception):
    """What a case found wrong, in words."""


class Skip(Exception):
    """Why a case cannot run here."""


def wait_until(condition, seconds, what):
    """Returns the first true value of condition(); raises Failure after `seconds`."""
    deadline = time.monotonic() + seconds
    while True:
        value = condition()
        if value:
            return value
        if time.monotonic() >= deadline:
            raise Failure(f"waited {seconds:g} s for {what}")
        time.sleep(LOOK_AGAIN_S)


def rdma_cm_ports(process="self"):
    """Ports of a process's network namespace that RoCEv2 services of rdma_cm have
    (docs/decisions/0010). Without those of RDMA_PS_TCP (0106) at all addresses, which listen over
    TCP as well, and last.
    """
    try:
        table = pathlib.Path(f"/proc/{process}/net/unix").read_text()
    except FileNotFoundError:
        return set()
    services = re.findall(r" @airdma/cm/([0-9a-f]+)/(\d+)/(\w+)", table)
    return {int(port) for space, port, address in services if (space, address) != ("0106", "any")}


def listening_ports(process="self"):
    """Ports of a process's network namespace that somebody serves: TCP's in state LISTEN (0A), IPv4
    and IPv6, and rdma_cm's."""
    ports = rdma_cm_ports(process)
    for table in (f"/proc/{process}/net/tcp", f"/proc/{process}/net/tcp6"):
        try:
            lines = pathlib.Path(table).read_text().splitlines()[1:]
        except FileNotFoundError:  # a kernel without IPv6
            continue
        for line in lines:
            _, local, _, state = line.split()[:4]
            if state == "0A":
                ports.add(int(local.rsplit(":", 1)[1], 16))
    return ports


def has_ipv6():
    try:
        with socket.socket(socket.AF_INET6, socket.SOCK_STREAM) as probe:
            probe.bind(("::1", 0))
        return True
    except OSError:
        return False


def free_port():
    """A port nobody uses, below the range from which the kernel takes ports for clients."""
    low, high = 10000, 32000
    for _ in range(200):
        port = random.SystemRandom().randrange(low, high)
        if port in listening_ports():
            continue
        try:
            with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as probe:
                probe.bind(("", port))
            return port
        except OSError:
            continue
    raise Failure("no free port found")


def without_address_randomization():
    """For the thread sanitizer, whose memory map does not fit every randomized one."""
    ctypes.CDLL(None).personality(ADDR_NO_RANDOMIZE)


class Program:
    """One started command. Its output goes to files, so that nothing blocks on a full pipe."""

    def __init__(self, command, environment, fixed_addresses=False, stdin=subprocess.DEVNULL):
        self.command = command
        self._out = tempfile.TemporaryFile(mode="w+b")
        self._err = tempfile.TemporaryFile(mode="w+b")
        self._process = subprocess.Popen(
            command, stdin=stdin, stdout=self._out, stderr=self._err,
            env=environment, start_new_session=True,
            preexec_fn=without_address_randomization if fixed_addresses else None)
        self.pid = self._process.pid

    @staticmethod
    def _read(file):
        size = os.fstat(file.fileno()).st_size
        return os.pread(file.fileno(), size, 0).decode(errors="replace")

    def output(self):
        return self._read(self._out)

    def errors(self):
        return self._read(self._err)

    def status(self):
        """None while it runs, the exit status, or -N when signal N ended it."""
        return self._process.poll()

    def wait(self, seconds):
        try:
            return self._process.wait(seconds)
        except subprocess.TimeoutExpired:
            raise Failure(f"still runs after {seconds:g} s: {self}") from None

    def send(self, number):
        self._process.send_signal(number)

    def end(self, number=signal.SIGKILL):
        """Ends it and all its children, and collects it."""
        try:
            os.killpg(self.pid, number)
        except ProcessLookupError:
            pass
        self._process.wait(30)

    def close(self):
        self._out.close()
        self._err.close()

    def report(self):
        tail = "".join(f"    {name}| {line[:200]}\n"
                       for name, text in (("out", self.output()), ("err", self.errors()))
                       for line in text.splitlines()[-40:])
        return f"  {self} -> status {self.status()}\n{tail}"

    def __str__(self):
        return " ".join(self.command)


class Programs:
    """All programs of one case. Leaving it ends those that still run, whatever happened."""

    def __init__(self, environment, time_factor=1.0, fixed_addresses=False):
        self._environment = environment
        self._fixed_addresses = fixed_addresses
        self.time_factor = time_factor
        self.all = []

    def __enter__(self):
        return self

    def __exit__(self, *_):
        for program in self.all:
            program.end()

    def start(self, command, stdin=subprocess.DEVNULL, **variables):
        environment = dict(self._environment, **variables)
        self.all.append(Program([str(word) for word in command], environment,
                                self._fixed_addresses, stdin))
        return self.all[-1]

    def seconds(self, seconds):
        """A deadline, longer where everything is slower."""
        return seconds * self.time_factor

    def wait_listening(self, program, port, seconds=20, place=None):
        def listens():
            if port in listening_ports(place.pid if place else "self"):
                return True
            if program.status() is not None:
                raise Failure(f"ended before it listened on port {port}: {program}")
            return False

        wait_until(listens, self.seconds(seconds), f"a listener on port {port} of {program}")

    def wait_output(self, program, text, seconds=20):
        def printed():
            if text in program.output() + program.errors():
                return True
            if program.status() is not None:
                raise Failure(f"ended before it printed {text!r}: {program}")
            return False

        wait_until(printed, self.seconds(seconds), f"{text!r} from {program}")

    def report(self):
        return "".join(program.report() for program in self.all)
