# SPDX-License-Identifier: MIT
"""airdma run becomes the program: exit status, signals, standard streams, environment."""
import signal

from framework import Failure, case, contains, equal


@case("launcher.exit_status")
def exit_status(run):
    for status in (0, 1, 42, 255):
        run.exits(run.start(["sh", "-c", f"exit {status}"]), status)


@case("launcher.signal")
def signals(run):
    """A signal that ends the program ends what was started, as the same signal."""
    for number in (signal.SIGTERM, signal.SIGKILL, signal.SIGINT):
        program = run.start(["sh", "-c", "echo ready; exec sleep 60"])
        run.programs.wait_output(program, "ready")
        program.send(number)
        run.exits(program, -number)
    run.exits(run.start(["sh", "-c", "kill -ABRT $$"]), -signal.SIGABRT)


@case("launcher.streams")
def streams(run):
    program = run.start(["sh", "-c", "echo to-out; echo to-err >&2; cat"])
    equal(run.succeeds(program), "to-out\n", "standard output")
    equal(program.errors(), "to-err\n", "standard error")


@case("launcher.process")
def process(run):
    """The program has the process id that was started: there is no wrapper left."""
    program = run.start(["sh", "-c", "echo $$"])
    equal(run.succeeds(program).strip(), str(program.pid), "process id")


@case("launcher.environment")
def environment(run):
    program = run.start(["sh", "-c", "echo $LD_LIBRARY_PATH; echo $KEPT; echo $LD_PRELOAD"],
                        LD_LIBRARY_PATH="/nonexistent", KEPT="kept", LD_PRELOAD="")
    path, kept, _ = run.succeeds(program).split("\n", 2)
    equal(path, f"{run.build}/lib/airdma:/nonexistent", "LD_LIBRARY_PATH")
    equal(kept, "kept", "a variable")


@case("launcher.not_found")
def not_found(run):
    program = run.start(["airdma-no-such-program"])
    run.exits(program, 127)
    contains(program.errors(), "airdma-no-such-program")


@case("launcher.arguments")
def arguments(run):
    """Options of the program are its own, those that look like airdma's too."""
    program = run.start(["printf", "%s|", "--help", "-h", "--", "a b", ""])
    equal(run.succeeds(program), "--help|-h|--|a b||", "arguments")
    if program.errors():
        raise Failure("airdma printed something of its own")
