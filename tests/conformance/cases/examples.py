# SPDX-License-Identifier: MIT
"""The programs in examples/, over IPv4 and IPv6."""
from framework import Failure, Skip, case, contains
from support.processes import free_port


def in_order(text, *wanted):
    """`wanted` must occur in `text` in this order."""
    position = 0
    for part in wanted:
        found = text.find(part, position)
        if found < 0:
            raise Failure(f"{part!r} is missing, or comes too early")
        position = found + len(part)


def example(run, name, address, server_options):
    program = run.build / "examples" / name
    if not program.exists():
        raise Skip("the examples were not built")
    port = free_port()
    server, client = run.pair([program, "-s", *server_options, "-p", port],
                              [program, "-c", "-a", address, "-p", port], port)
    return server.output(), client.output()


def connect(run, address, server_options):
    server, client = example(run, "connect", address, server_options)
    in_order(server, "CONNECT_REQUEST", "ESTABLISHED", '13 bytes: "hello server"',
             "hello client", "DISCONNECTED", "rdma_destroy_event_channel")
    in_order(client, "ADDR_RESOLVED", "ROUTE_RESOLVED", "ESTABLISHED", "hello server",
             '35 bytes: "hello client, your message arrived"', "DISCONNECTED",
             "rdma_destroy_event_channel")


def write_with_imm(run, address, server_options):
    for output in example(run, "write_with_imm", address, server_options):
        in_order(output, "round 1", 'immediate 19, so 19 bytes: "written in round 1"', "round 2",
                 'immediate 19, so 19 bytes: "written in round 2"', "DISCONNECTED", "destroyed")
        contains(output, "write completed")


@case("examples.connect.ipv4", sanitized=True, cm="both")
def connect_ipv4(run):
    connect(run, "127.0.0.1", ["-a", "127.0.0.1"])


@case("examples.connect.ipv6", ipv6=True, sanitized=True, cm="both")
def connect_ipv6(run):
    connect(run, "::1", ["-a", "::1"])


@case("examples.connect.any_address", ipv6=True, cm="both")
def connect_any_address(run):
    """A server on the IPv6 wildcard takes IPv4 clients."""
    connect(run, "127.0.0.1", [])


@case("examples.write_with_imm.ipv4", sanitized=True, cm="both")
def write_with_imm_ipv4(run):
    write_with_imm(run, "127.0.0.1", ["-a", "127.0.0.1"])


@case("examples.write_with_imm.ipv6", ipv6=True, sanitized=True, cm="both")
def write_with_imm_ipv6(run):
    write_with_imm(run, "::1", ["-a", "::1"])


@case("examples.connect.nobody_listens", sanitized=True, cm="both")
def nobody_listens(run):
    program = run.build / "examples" / "connect"
    if not program.exists():
        raise Skip("the examples were not built")
    client = run.start([program, "-c", "-a", "127.0.0.1", "-p", free_port()])
    run.exits(client, 1)
    contains(client.errors(), "got RDMA_CM_EVENT_REJECTED")


@case("examples.command_line")
def command_line(run):
    """What is wrong with it is named."""
    for name in ("connect", "write_with_imm"):
        program = run.build / "examples" / name
        if not program.exists():
            raise Skip("the examples were not built")
        for port in ("foo", "99999", "0", ""):
            wrong = run.start([program, "-s", "-p", port])
            run.exits(wrong, 2)
            contains(wrong.errors(), f"{port}: not a port", "usage:")
