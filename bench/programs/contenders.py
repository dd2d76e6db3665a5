# SPDX-License-Identifier: MIT
"""How each program is run and its figure read. A contender is a function that runs both ends once
and returns one number; the server end runs on the first processor, the client on the last."""
import json
import os
import re
import shutil
import subprocess
import time

from places import Here

LIMIT_S = 60
PORT = 18600
CPUS = sorted(os.sched_getaffinity(0))


class Failed(Exception):
    pass


class Missing(Exception):
    """The program is not on this machine: its rows say so."""


def need(program):
    if shutil.which(program) is None:
        raise Missing(f"{program} is not installed")


def listening(port, pid="self"):
    """True when a TCP socket of the process's network namespace listens on the port."""
    for name in ("tcp", "tcp6"):
        try:
            with open(f"/proc/{pid}/net/{name}") as table:
                lines = table.readlines()[1:]
        except OSError:
            continue
        for line in lines:
            fields = line.split()
            if fields[3] == "0A" and int(fields[1].rsplit(":", 1)[1], 16) == port:
                return True
    return False


def run(command, env=None):
    done = subprocess.run(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                          stderr=subprocess.PIPE, text=True, timeout=LIMIT_S, env=env, check=False)
    if done.returncode != 0:
        raise Failed(f"{' '.join(command)}: status {done.returncode}\n{done.stdout}{done.stderr}")
    return done.stdout


def wait_for_listener(server, port, pid, what):
    limit = time.monotonic() + LIMIT_S
    while not listening(port, pid):
        if server.poll() is not None or time.monotonic() > limit:
            raise Failed(f"{what}: the server does not listen")
        time.sleep(0.005)


def both_ends(server, client, *, port=PORT, env=None, near=Here(), far=Here(), endless=False):
    """Runs the server's command in `far` and the client's in `near`; what the client printed.
    An `endless` server is ended, another one ends by itself."""
    whole = dict(os.environ, **(env or {}))
    # Not to a pipe: nobody would read it meanwhile, and perftest prints a line per queue pair.
    started = subprocess.Popen(far.inside(["taskset", "-c", str(CPUS[0])] + server), env=whole,
                               stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
                               stderr=subprocess.DEVNULL)
    try:
        wait_for_listener(started, port, far.pid, " ".join(server))
        out = run(near.inside(["taskset", "-c", str(CPUS[-1])] + client), whole)
        if not endless:
            started.wait(timeout=LIMIT_S)
        return out
    finally:
        if started.poll() is None:
            started.kill()
            started.wait()


IWARP = {"AIRDMA_CM": "iwarp"}


def ends_of(pair):
    """The places of both ends, and the server's address: on loopback without a pair."""
    if pair is None:
        return {}, "127.0.0.1"
    return {"near": pair.near, "far": pair.far}, pair.at


class Perftest:
    """A program of perftest with its arguments over airdma, for example "ib_send_lat -s 64"; over
    iWARP unless `env` says otherwise."""
    # Latency programs print size, count, minimum, maximum, typical, ...; bandwidth programs size,
    # count, peak, average (with --report_gbits: Gb/s), messages (Mp/s).
    TYPICAL_US, AVERAGE_GBIT, RATE_M = 4, 3, 4

    def __init__(self, airdma, arguments, column, scale=1.0, env=None, pair=None):
        need(arguments.split()[0])
        self._program = [airdma, "run", "--"] + arguments.split() + ["-R", "-F", "-p", str(PORT)]
        self._column = column
        self._scale = scale
        self._env = {**IWARP, **(env or {})}
        self._pair = pair

    def __call__(self):
        places, at = ends_of(self._pair)
        out = both_ends(self._program, self._program + [at], env=self._env, **places)
        return perftest_value(out, self._column) * self._scale


def perftest_value(out, column):
    found = [line.split() for line in out.splitlines() if re.match(r"\s*\d+\s+\d+\s", line)]
    if not found:
        raise Failed(f"perftest printed no result\n{out}")
    return float(found[-1][column])


class TcpPeer:
    """bench_tcp_peer, which is both ends itself."""

    def __init__(self, binary, arguments, scale=1.0):
        self._command = [binary] + arguments.split()
        self._scale = scale

    def __call__(self):
        return float(run(self._command)) * self._scale


class UdpPeer:
    """bench_udp_peer: its client's arguments, with {} for the server's address and port."""
    PORT = 18604

    def __init__(self, binary, arguments, pair=None):
        self._binary = binary
        self._arguments = arguments
        self._pair = pair

    def __call__(self):
        places, at = ends_of(self._pair)
        client = self._arguments.format(f"{at} {self.PORT}").split()
        return float(both_ends([self._binary, "serve", str(self.PORT)], [self._binary] + client,
                               port=self.PORT, **places))


class FabricRdm:
    """libfabric's udp;ofi_rxd provider on loopback; messages per second times `scale`."""
    PORT = 18605

    def __init__(self, binary, size, window, scale):
        if not os.path.exists(binary):
            raise Missing("bench_fabric_rdm_peer is not built (libfabric-dev)")
        self._command = [binary, str(self.PORT), str(size), str(window)]
        self._scale = scale

    def __call__(self):
        out = both_ends(self._command, self._command + ["127.0.0.1", "0.5"], port=self.PORT,
                        endless=True)
        return float(out) * self._scale


class Ucx:
    """ucx_perftest over TCP; messages per second times `scale`."""
    PORT = 18601

    def __init__(self, place, arguments, scale):
        need("ucx_perftest")
        self._place = place
        self._arguments = arguments.split()
        self._scale = scale

    def __call__(self):
        base = ["ucx_perftest", "-p", str(self.PORT)]
        out = both_ends(base, base + ["127.0.0.1", "-f"] + self._arguments, port=self.PORT,
                        near=self._place, far=self._place,
                        env={"UCX_TLS": "tcp,self", "UCX_NET_DEVICES": "lo",
                             "UCX_WARN_UNUSED_ENV_VARS": "n"})
        return ucx_rate(out) * self._scale


def ucx_rate(out):
    """Messages per second: the last column of the last line."""
    found = [line.split() for line in out.splitlines() if re.match(r"\s*\d+(\s+[\d.]+){7}\s*$", line)]
    if not found:
        raise Failed(f"ucx_perftest printed no result\n{out}")
    return float(found[-1][-1])


class Fabric:
    """libfabric's tcp provider, asked by bench_fabric_peer for a stream of messages: fi_pingpong has
    only one under way."""
    PORT = 18602

    def __init__(self, place, binary, size):
        self._place = place
        self._size = size
        if not os.path.exists(binary):
            raise Missing("bench_fabric_peer is not built (libfabric-dev)")
        self._binary = binary

    def __call__(self):
        base = [self._binary, str(self.PORT), str(self._size)]
        return float(both_ends(base, base + ["127.0.0.1", "0.3"], port=self.PORT,
                               near=self._place, far=self._place))


class Iperf3:
    PORT = 18603

    def __init__(self, pair, seconds=1):
        need("iperf3")
        self._pair = pair
        self._seconds = seconds

    def __call__(self):
        base = ["iperf3", "-p", str(self.PORT)]
        out = both_ends(base + ["-s", "-1"], base + ["-c", self._pair.at, "-J", "-l", "1M", "-t",
                        str(self._seconds)], port=self.PORT, near=self._pair.near,
                        far=self._pair.far)
        return iperf3_gigabytes(out)


def iperf3_gigabytes(out):
    try:
        return json.loads(out)["end"]["sum_received"]["bits_per_second"] / 8e9
    except (ValueError, KeyError) as error:
        raise Failed(f"iperf3 printed no result\n{out}") from error


class Cmtime:
    """Connections per second, all of cmtime's steps together."""
    PORT = 7471

    def __init__(self, airdma, connections):
        need("cmtime")
        self._program = [airdma, "run", "--", "cmtime", "-p", str(self.PORT)]
        self._connections = connections

    def __call__(self):
        program = self._program + ["-c", str(self._connections)]
        out = both_ends(program, program + ["-s", "127.0.0.1"], port=self.PORT, env=IWARP,
                        endless=True)
        return self._connections / cmtime_seconds(out)


def cmtime_seconds(out):
    """The sum of the steps' total times."""
    steps = re.findall(r"^[a-z ]+:\s+([\d.]+)\s", out, re.MULTILINE)
    if not steps:
        raise Failed(f"cmtime printed no times\n{out}")
    return sum(float(step) for step in steps) / 1000
