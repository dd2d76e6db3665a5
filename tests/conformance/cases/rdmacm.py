# SPDX-License-Identifier: MIT
"""Programs of rdmacm-utils: rping, ucmatose, rdma_server and rdma_client, cmtime."""
import re

from framework import Failure, absent, case, contains, equal
from support.processes import free_port

# A ping of rping: a counter, then letters from a start that moves by one each time. ASCII codes
# 65 to 122, which is what the program cycles through.
FIRST_LETTER, LAST_LETTER = 65, 122


def ping_text(number, size):
    """What ping `number` carries, without its terminating zero."""
    head = f"rdma-ping-{number}: "
    span = LAST_LETTER - FIRST_LETTER + 1
    # The start letter advances by one per ping and wraps after the last.
    start = number % span
    return head + "".join(chr(FIRST_LETTER + (start + i) % span)
                          for i in range(size - 1 - len(head)))


def judge_pings(output, prefix, count, size):
    got = re.findall(rf"^{prefix}ping data: (.*)$", output, re.MULTILINE)
    equal(len(got), count, f"number of lines '{prefix}ping data'")
    for number, text in enumerate(got):
        equal(text, ping_text(number, size), f"ping {number}")


def rping(run, address, count=10, size=100):
    port = free_port()
    base = ["-v", "-V", "-a", address, "-p", port, "-C", count, "-S", size]
    server, client = run.pair(["rping", "-s", *base], ["rping", "-c", *base], port)
    # The client prints what came back by RDMA WRITE, the server what it fetched by RDMA READ.
    judge_pings(client.output(), "", count, size)
    judge_pings(server.output(), "server ", count, size)
    for program in (server, client):
        absent(program.errors(), r"failed|error|bogus")


@case("rping.ipv4", needs=["rping"], sanitized=True, cm="both")
def rping_ipv4(run):
    rping(run, "127.0.0.1")


@case("rping.ipv6", needs=["rping"], ipv6=True, sanitized=True, cm="both")
def rping_ipv6(run):
    rping(run, "::1")


@case("rping.own_queue_pair", needs=["rping"], sanitized=True, cm="both")
def rping_own_queue_pair(run):
    """-q: the program makes its queue pair and moves it; at both ends, and at one of them."""
    for server_option, client_option in ((["-q"], ["-q"]), (["-q"], []), ([], ["-q"])):
        port = free_port()
        base = ["-v", "-V", "-a", "127.0.0.1", "-p", port, "-C", 10, "-S", 1000]
        server, client = run.pair(["rping", "-s", *server_option, *base],
                                  ["rping", "-c", *client_option, *base], port)
        judge_pings(client.output(), "", 10, 1000)
        judge_pings(server.output(), "server ", 10, 1000)


@case("rping.large", needs=["rping"], sanitized=True, cm="both")
def rping_large(run):
    """1000 times what rping takes at most; its -V compares what was sent and what came back."""
    port = free_port()
    base = ["-V", "-a", "127.0.0.1", "-p", port, "-C", 1000, "-S", 65535]
    server, client = run.pair(["rping", "-s", *base], ["rping", "-c", *base], port)
    for program in (server, client):
        absent(program.output() + program.errors(), r"data mismatch|failed|error")


@case("rping.persistent", needs=["rping"], sanitized=True, cm="both")
def rping_persistent(run):
    """One server, eight clients at once, twice: the second time on what the first left."""
    port = free_port()
    server = run.listening(["rping", "-s", "-P", "-S", 8000, "-p", port], port)
    for _ in range(2):
        clients = [run.start(["rping", "-c", "-v", "-V", "-a", "127.0.0.1", "-p", port,
                              "-C", 20, "-S", 500 + 1000 * i]) for i in range(8)]
        for i, client in enumerate(clients):
            judge_pings(run.succeeds(client), "", 20, 500 + 1000 * i)
    if server.status() is not None:
        raise Failure("the persistent server ended")
    absent(server.errors(), r"failed|error")


@case("rping.nobody_listens", needs=["rping"], sanitized=True, cm="both")
def rping_nobody_listens(run):
    client = run.start(["rping", "-c", "-a", "127.0.0.1", "-p", free_port(), "-C", 1])
    status = client.wait(run.programs.seconds(20))
    if status == 0:
        raise Failure("a client without a server succeeded")
    contains(client.errors(), "RDMA_CM_EVENT_REJECTED")


@case("rping.nobody_listens.log", needs=["rping"], cm="both")
def rping_nobody_listens_log(run):
    port = free_port()
    client = run.start(["rping", "-c", "-a", "127.0.0.1", "-p", port, "-C", 1], AIRDMA_LOG="info")
    client.wait(run.programs.seconds(20))
    told = [line for line in client.errors().splitlines()
            if line.startswith("airdma[") and f"127.0.0.1:{port}: RDMA_CM_EVENT_REJECTED" in line]
    equal(len(told), 1, "lines of the log about the rejection")


def ucmatose(run, server_options, client_options):
    port = free_port()
    server, client = run.pair(["ucmatose", "-p", port, *server_options],
                              ["ucmatose", "-s", "127.0.0.1", "-p", port, *client_options], port)
    for program in (server, client):
        contains(program.output(), "data transfers complete", "return status 0")
        absent(program.output() + program.errors(), r"failed|failure|failing|error|unable")


@case("ucmatose.connections", needs=["ucmatose"], sanitized=True, cm="both")
def ucmatose_connections(run):
    """50 connections; the side that accepted speaks first."""
    ucmatose(run, ["-c", 50], ["-c", 50])


@case("ucmatose.thousand", needs=["ucmatose"], cm="both")
def ucmatose_thousand(run):
    """A thousand connections at once between two processes; none is lost."""
    ucmatose(run, ["-c", 1000, "-C", 2], ["-c", 1000, "-C", 2])


@case("rping.crowd", needs=["rping"], timeout_s=90, cm="both")
def rping_crowd(run):
    """60 processes connect at once to one server, whose backlog is 3."""
    port = free_port()
    server = run.listening(["rping", "-s", "-P", "-q", "-p", port], port)
    clients = [run.start(["rping", "-c", "-v", *(["-q"] if i % 2 else []), "-a", "127.0.0.1",
                          "-p", port, "-C", 3]) for i in range(60)]
    for client in clients:
        judge_pings(run.succeeds(client), "", 3, 64)
    if server.status() is not None:
        raise Failure("the persistent server ended")


@case("ucmatose.sizes", needs=["ucmatose"], cm="both")
def ucmatose_sizes(run):
    options = ["-c", 4, "-C", 100, "-S", 40000]
    ucmatose(run, options, options)


@case("ucmatose.migrate", needs=["ucmatose"], sanitized=True, cm="both")
def ucmatose_migrate(run):
    """-m: ids move to another event channel before they disconnect."""
    ucmatose(run, ["-c", 8, "-m"], ["-c", 8, "-m"])


@case("ucmatose.tos", needs=["ucmatose"], cm="both")
def ucmatose_tos(run):
    """-t and -a set options of the id."""
    ucmatose(run, ["-c", 2], ["-c", 2, "-t", 8, "-a", 14])


def synchronous(run, server_options, address):
    port = free_port()
    server, client = run.pair(["rdma_server", "-p", port, *server_options],
                              ["rdma_client", "-s", address, "-p", port], port)
    contains(server.output(), "rdma_server: start", "rdma_server: end 0")
    contains(client.output(), "rdma_client: start", "rdma_client: end 0")


@case("rdma_server.ipv4", needs=["rdma_server", "rdma_client"], sanitized=True, cm="both")
def rdma_server_ipv4(run):
    """Synchronous ids, rdma_create_ep and rdma_get_request."""
    synchronous(run, [], "127.0.0.1")


@case("rdma_server.ipv6", needs=["rdma_server", "rdma_client"], ipv6=True, cm="both")
def rdma_server_ipv6(run):
    synchronous(run, ["-s", "::1"], "::1")


@case("cmtime.connections", needs=["cmtime"], sanitized=True, cm="both")
def cmtime_connections(run):
    port = free_port()
    server = run.listening(["cmtime", "-p", port, "-c", 100], port)
    client = run.start(["cmtime", "-s", "127.0.0.1", "-p", port, "-c", 100])
    output = run.succeeds(client)
    contains(output, "create id", "resolve addr", "connect", "disconnect", "destroy")
    absent(output + client.errors(), r"(?i)error|failure|reject")
    absent(server.errors(), r"(?i)error|failure")


def extended(run, kind):
    """rdma_xserver and rdma_xclient; `kind` r: a reliable connection, x: XRC."""
    port = free_port()
    server, client = run.pair(["rdma_xserver", "-p", port, "-c", kind],
                              ["rdma_xclient", "-s", "127.0.0.1", "-p", port, "-c", kind], port)
    contains(server.output(), "rdma_xserver: start", "rdma_xserver: end 0")
    contains(client.output(), "rdma_xclient: start", "rdma_xclient: end 0")


@case("rdma_xserver.reliable", needs=["rdma_xserver", "rdma_xclient"], sanitized=True, cm="both")
def rdma_xserver_reliable(run):
    extended(run, "r")


@case("rdma_xserver.xrc", needs=["rdma_xserver", "rdma_xclient"], sanitized=True)
def rdma_xserver_xrc(run):
    extended(run, "x")


UDADDY_PORT = 7174  # always


def udaddy(run, *options):
    base = ["udaddy", *options]
    for program in run.pair(base, [*base, "-s", "127.0.0.1"], UDADDY_PORT):
        contains(program.output(), "data transfers complete", "return status 0")
        absent(program.output() + program.errors(), r"failed|failure|failing|error|unable")


# Not sanitized: it answers from the buffer that all its receives share, while they come in.
@case("udaddy.one", needs=["udaddy"])
def udaddy_one(run):
    """Datagrams both ways with a service that rdma_cm has looked up."""
    udaddy(run)


@case("udaddy.many", needs=["udaddy"])
def udaddy_many(run):
    udaddy(run, "-c", 50, "-C", 20, "-S", 1000)


def mckey(run, group, address):
    """Receivers join the group, and get what another process sends to it."""
    base = ["stdbuf", "-oL", "mckey", "-m", group, "-b", address, "-C", 10, "-S", 1000]
    receivers = [run.start(base), run.start(base)]
    for receiver in receivers:
        run.programs.wait_output(receiver, "joined dgid")
    sender = run.start([*base, "-s"])
    for program in (sender, *receivers):
        contains(run.succeeds(program), "data transfers complete", "return status 0")
        absent(program.output() + program.errors(), r"failed|failure|failing|error|unable")


for name, group, address in (("messages", "239.1.2.3", "127.0.0.1"),
                             ("messages.ipv6", "ff0e::99", "::1"),
                             ("messages.ipv6.link", "ff02::99%lo", "::1"),
                             ("messages.ipv6.node", "ff01::99%lo", "::1")):
    @case(f"mckey.{name}", needs=["mckey", "stdbuf"], sanitized=True)
    def mckey_on_loopback(run, group=group, address=address):
        mckey(run, group, address)
