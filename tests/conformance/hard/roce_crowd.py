# SPDX-License-Identifier: MIT
"""Many RoCEv2 processes of one host: they come and go, are killed and stopped, and the traffic of
the others goes on, each message to the one it is for, none lost. ibv_rc_pingpong compares what it
receives with what was sent (-c)."""
import os
import random
import signal
import time

from framework import Failure, Skip, case
from support.network import Cable
from support.processes import wait_until

PINGPONG = "ibv_rc_pingpong"
HEARS_WITHIN_S = 20


class Pair:
    """A server in one place and its client in another, or in the same."""
    next_port = 18100

    def __init__(self, run, server_at, client_at, address, devices, count, size=4096, as_user=None):
        Pair.next_port += 1
        port = Pair.next_port
        airdma = [run.build / "bin" / "airdma", "run", "--"]
        user = ["setpriv", f"--reuid={as_user}", f"--regid={as_user}", "--clear-groups"] \
            if as_user else []

        def start(place, device, *more):
            return run.programs.start(place.inside(
                [*user, *airdma, PINGPONG, "-d", device, "-g", 0, "-p", port, "-n", count,
                 "-s", size, "-c", *more]))

        self._run = run
        self.server = start(server_at, devices[0])
        wait_until(lambda: self._listens(server_at, port), run.programs.seconds(20),
                   f"{self.server} to listen")
        self.client = start(client_at, devices[1], address)
        self.both = (self.server, self.client)

    @staticmethod
    def _listens(place, port):
        return f":{port:04X} " in "".join(
            line.split(" 0A ")[0] + "\n" for line in
            place.run("cat", "/proc/net/tcp", "/proc/net/tcp6").splitlines() if " 0A " in line)

    def succeeds(self, seconds=60):
        for program in self.both:
            self._run.succeeds(program, seconds)

    def end(self):
        for program in self.both:
            program.end()
            program.close()
            self._run.programs.all.remove(program)

    def runs(self):
        return all(program.status() is None for program in self.both)


def across(run, cable, count, size=4096):
    return Pair(run, cable.near, cable.far, cable.near_address, ("roce_v0", "roce_v1"), count, size)


def within(run, cable, count, **more):
    return Pair(run, cable.near, cable.near, "127.0.0.1", ("roce_lo", "roce_lo"), count, **more)


@case("hard.roce_come_and_go", needs=[PINGPONG, "nsenter", "ip"], timeout_s=240)
def come_and_go(run):
    """Ten processes a side keep exchanging messages while others are started, killed and stopped."""
    dice = random.Random(run.seed)
    with Cable() as cable:
        steady = [across(run, cable, 3000) for _ in range(5)]
        steady += [within(run, cable, 3000) for _ in range(2)]
        passing = []
        for _ in range(run.rounds or 12):
            passing.append(across(run, cable, 10**7) if dice.random() < 0.6
                           else within(run, cable, 10**7))
            if len(passing) < 3:
                continue
            victim = passing.pop(dice.randrange(len(passing)))
            if dice.random() < 0.5:
                # Stopped, and then killed: for others it is as if it never answered.
                dice.choice(victim.both).send(signal.SIGSTOP)
                time.sleep(0.1)  # not to wait for something: this long nobody is to notice it
            dice.choice(victim.both).send(signal.SIGKILL)
            victim.end()
        for pair in steady:
            pair.succeeds()
        for pair in passing:
            if not pair.runs():
                raise Failure("a pair that nobody touched has ended")
            pair.end()


@case("hard.roce_stopped", needs=[PINGPONG, "nsenter", "ip"], timeout_s=180)
def stopped(run):
    """All processes but one pair are stopped on both hosts: the pair's traffic goes on, a new one
    connects, and those that were stopped for less than their peers' patience go on as well."""
    with Cable() as cable:
        crowd = [across(run, cable, 2000) for _ in range(5)]
        pair = across(run, cable, 10**7)
        for other in crowd:
            for program in other.both:
                program.send(signal.SIGSTOP)
        across(run, cable, 1000).succeeds()
        within(run, cable, 1000).succeeds()
        for other in crowd:
            for program in other.both:
                program.send(signal.SIGCONT)
        if not pair.runs():
            raise Failure("the traffic of a pair ended when others were stopped")
        pair.end()
        for other in crowd:
            other.succeeds()


@case("hard.roce_two_users", needs=[PINGPONG, "nsenter", "ip", "setpriv"], timeout_s=120)
def two_users(run):
    """A second user does not get the UDP port, is told so, and has RoCE within the host."""
    if os.geteuid() != 0:
        raise Skip("needs root to become another user")
    with Cable() as cable:
        first = across(run, cable, 10**7)
        second = within(run, cable, 2000, as_user=65432)
        second.succeeds()
        doctor = run.programs.start(cable.near.inside(
            ["setpriv", "--reuid=65432", "--regid=65432", "--clear-groups",
             run.build / "bin" / "airdma", "doctor"]))
        doctor.wait(30)
        if "user 0 has it" not in doctor.output():
            raise Failure(f"doctor does not say who has the port:\n{doctor.output()}")
        if not first.runs():
            raise Failure("the first user's traffic ended")


@case("hard.roce_two_namespaces", needs=[PINGPONG, "nsenter", "ip"], timeout_s=120)
def two_namespaces(run):
    """What is bound, steered and sent in one network namespace is not seen in another."""
    with Cable() as cable, Cable() as other:
        pairs = [across(run, place, 1500) for place in (cable, other) for _ in range(3)]
        for pair in pairs:
            pair.succeeds()
        names = [set(line.split()[-1] for line in
                     place.run("cat", "/proc/net/unix").splitlines() if "@airdma/" in line)
                 for place in (cable.near, other.near)]
        if any(names):
            raise Failure(f"names are left behind by processes that have ended: {names}")
