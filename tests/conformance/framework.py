# SPDX-License-Identifier: MIT
"""What a conformance case is and what it may use.

    @case("rping.ipv4", needs=["rping"], sanitized=True)
    def rping_ipv4(run):
        port = free_port()
        server = run.listening(["rping", "-s", "-p", port], port)
        client = run.start(["rping", "-c", "-a", "127.0.0.1", "-p", port, "-C", 3])
        run.succeeds(client)
        run.succeeds(server)

A case raises Failure with words for whoever reads the log, or Skip with the reason.

Which device rdma_cm takes for an address: what the user gets who says nothing, unless the case has
cm="iwarp". With cm="both" there are two cases, rping.ipv4 and rping.ipv4.iwarp.
"""
import dataclasses
import importlib.util
import re
import shutil
import sys

from support.processes import Failure, Skip, has_ipv6

CASES = {}
# Words with which sanitizers begin a report.
SANITIZER_REPORT = re.compile(
    r"ERROR: (Address|Leak)Sanitizer|WARNING: ThreadSanitizer|: runtime error: ")


@dataclasses.dataclass
class Case:
    name: str
    function: object
    needs: tuple
    ipv6: bool
    sanitized: bool
    timeout_s: int
    variables: dict

    def check_requirements(self):
        missing = [program for program in self.needs if shutil.which(program) is None]
        if missing:
            raise Skip(f"not installed: {' '.join(missing)}")
        if self.ipv6 and not has_ipv6():
            raise Skip("no IPv6 on the loopback interface")


# Values of cm: endings of names -> what the programs' environment has.
CM = {"default": {"": {}}, "iwarp": {"": {"AIRDMA_CM": "iwarp"}}}
CM["both"] = {**CM["default"], ".iwarp": CM["iwarp"][""]}


def case(name, needs=(), ipv6=False, sanitized=False, timeout_s=60, cm="default"):
    """Registers a case. `sanitized`: it also says something in builds with sanitizers."""

    def register(function):
        for ending, variables in CM[cm].items():
            if name + ending in CASES:
                raise ValueError(f"two cases are called {name + ending}")
            CASES[name + ending] = Case(name + ending, function, tuple(needs), ipv6, sanitized,
                                        timeout_s, variables)
        return function

    return register


def load(folder):
    """Imports every file in cases/ and hard/; returns the cases by name."""
    for path in sorted([*folder.glob("cases/*.py"), *folder.glob("hard/*.py")]):
        name = f"{path.parent.name}_{path.stem}"
        spec = importlib.util.spec_from_file_location(name, path)
        # Under its name, so that those behind it in the alphabet may import it.
        sys.modules[name] = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(sys.modules[name])
    return CASES


def check_sanitizers(programs):
    for program in programs.all:
        if SANITIZER_REPORT.search(program.errors()):
            raise Failure(f"a sanitizer reported something: {program}")


class Run:
    """One execution of a case."""

    def __init__(self, programs, options, variables=None):
        self.programs = programs
        self._variables = variables or {}
        self.build = options.build.resolve()
        self.sanitized = bool(options.sanitize)
        self.rounds = options.rounds
        self.seed = options.seed

    def start(self, command, place=None, **variables):
        """Starts a program over airdma, in a network namespace of its own if one is named."""
        command = [self.build / "bin" / "airdma", "run", "--", *command]
        return self.programs.start(place.inside(command) if place else command,
                                   **{**self._variables, **variables})

    def listening(self, command, port, place=None, **variables):
        """Starts a server over airdma and returns once it listens."""
        server = self.start(command, place, **variables)
        self.programs.wait_listening(server, port, place=place)
        return server

    def exits(self, program, status, seconds=40):
        got = program.wait(self.programs.seconds(seconds))
        if got != status:
            raise Failure(f"ended with {got}, not {status}: {program}")
        return program.output()

    def succeeds(self, program, seconds=40):
        """Waits for exit status 0 and returns what the program printed."""
        return self.exits(program, 0, seconds)

    def pair(self, server_command, client_command, port, seconds=40, cable=None, **variables):
        """Runs a client against its server, from one end of a cable to the other if there is one;
        returns the two programs, both ended with 0."""
        far, near = (cable.far, cable.near) if cable else (None, None)
        server = self.listening(server_command, port, far, **variables)
        client = self.start(client_command, near, **variables)
        self.succeeds(client, seconds)
        self.succeeds(server, seconds)
        return server, client


def contains(text, *wanted):
    """Each of `wanted` must be a part of `text`."""
    for part in wanted:
        if part not in text:
            raise Failure(f"{part!r} is missing in what was printed")


def absent(text, pattern):
    found = re.search(pattern, text)
    if found:
        raise Failure(f"printed {found[0]!r}")


def equal(got, wanted, what):
    if got != wanted:
        raise Failure(f"{what}: {got!r} instead of {wanted!r}")
