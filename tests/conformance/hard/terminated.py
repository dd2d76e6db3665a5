# SPDX-License-Identifier: MIT
"""A peer that answers a READ with each Terminate there is: the program hears the right status."""
import socket
import struct

from framework import Failure, absent, case, contains
from support import mpa
from support.processes import free_port

HOST = "127.0.0.1"
BUFFER, KEY, SIZE = 0x10000, 0x1234, 64  # what the peer says it has
REM_INV_REQ_ERR, REM_ACCESS_ERR, REM_OP_ERR = 9, 10, 11

# Layer, error type and code (RFC 5040 4.8, RFC 5041 8, RFC 5044 8), and the status of the READ that
# the headers in the Terminate name.
CAUSES = [((0, 0, 0), REM_OP_ERR), ((1, 0, 0), REM_OP_ERR)]
CAUSES += [((0, 1, code), REM_ACCESS_ERR) for code in (0, 1, 2, 3, 4, 9, 0xFF)]
CAUSES += [((0, 2, code), REM_INV_REQ_ERR) for code in (5, 6, 9, 0xFF)]
CAUSES += [((0, 2, code), REM_OP_ERR) for code in (7, 8)]
CAUSES += [((1, 1, code), REM_ACCESS_ERR) for code in (0, 1, 2, 3)]
CAUSES += [((1, 1, 4), REM_INV_REQ_ERR)]
CAUSES += [((1, 2, code), REM_INV_REQ_ERR) for code in (1, 2, 3, 4, 5, 6)]
# Without headers only one of RDMAP can be about the READ.
BARE = [(cause, status if cause[0] == 0 and cause[1] != 0 else None) for cause, status in CAUSES]
BARE += [((2, 0, code), None) for code in (1, 2, 3)]


def rping_server(run, **choice):
    """It READs what a client's first message tells of."""
    port = free_port()
    return run.listening(["rping", "-s", "-a", HOST, "-p", port, "-C", 1], port, **choice), port


def connected(port, request):
    peer = socket.create_connection((HOST, port), 10)
    peer.settimeout(20)
    peer.sendall(request)
    reply = mpa.read_reply(peer)
    if reply.rejected:
        raise Failure("the server rejected a valid request")
    return peer, reply


def provoke_read(peer, writer, msn=1):
    """Tells of a buffer; the Read Request that answers it."""
    told = struct.pack(">QII", BUFFER, KEY, SIZE)
    peer.sendall(writer.fpdu(mpa.send_segment(told, msn=msn)))
    for ulpdu in mpa.fpdus_until_end(peer):
        if ulpdu[1] & 0x0F == 1 and ulpdu[18 + 12:18 + 16] != bytes(4):
            return ulpdu
    raise Failure("the server did not READ")


def hears(run, server, status, what):
    """The server ends by itself, its READ with this status; nothing: flushed, in silence."""
    if server.wait(run.programs.seconds(20)) < 0:
        raise Failure(f"{what}: a signal ended the server")
    said = server.output() + server.errors()
    if status is None:
        absent(said, r"completion failed")
    else:
        contains(said, f"cq completion failed status {status}")


def refuse(run, cause, status, headers, writer_kind=mpa.Writer, **choice):
    server, port = rping_server(run, **choice)
    peer, _ = connected(port, mpa.request(b""))
    with peer:
        writer = writer_kind()
        offender = provoke_read(peer, writer)
        peer.sendall(writer.fpdu(mpa.terminate(*cause, offender if headers else None)))
        peer.shutdown(socket.SHUT_WR)
        for _ in mpa.fpdus_until_end(peer):
            pass
    hears(run, server, status, f"Terminate {cause}")


@case("hard.terminated.with_headers", needs=["rping"], sanitized=True, timeout_s=180, cm="iwarp")
def with_headers(run):
    for cause, status in CAUSES:
        refuse(run, cause, status, headers=True)


@case("hard.terminated.without_headers", needs=["rping"], sanitized=True, timeout_s=180, cm="iwarp")
def without_headers(run):
    for cause, status in BARE:
        refuse(run, cause, status, headers=False)


@case("hard.terminated.markers", needs=["rping"], sanitized=True, cm="iwarp")
def markers(run):
    """The server wants markers in what it receives."""
    for cause, status in CAUSES[::4]:
        refuse(run, cause, status, True, mpa.MarkingWriter, AIRDMA_MPA_MARKERS="on")


@case("hard.terminated.bad_marker", needs=["rping"], sanitized=True, cm="iwarp")
def bad_marker(run):
    server, port = rping_server(run, AIRDMA_MPA_MARKERS="on")
    peer, _ = connected(port, mpa.request(b""))
    with peer:
        peer.sendall(mpa.MarkingWriter(spoil=True).fpdu(mpa.send_segment(b"x" * 16)))
        said = list(mpa.fpdus_until_end(peer))
    if not said or mpa.terminate_of(said[-1]) != (2, 0, 3):
        raise Failure("a marker that points astray went unnoticed")
    hears(run, server, None, "a bad marker")


# The frames of peer-to-peer mode (RFC 6581 9.2), and the first message number behind each.
READY = {
    mpa.RTR_SEND: (mpa.send_segment(b""), 2),
    mpa.RTR_WRITE: (mpa.write_segment(1, 0, b""), 1),
    mpa.RTR_READ: (mpa.read_request(1, 0), 1),
}


@case("hard.terminated.ready_to_receive", needs=["rping"], sanitized=True, cm="iwarp")
def ready_to_receive(run):
    """A connection that begins with each kind of RTR frame."""
    for kind, (ulpdu, msn) in READY.items():
        choice = {mpa.RTR_SEND: "send", mpa.RTR_WRITE: "write", mpa.RTR_READ: "read"}[kind]
        server, port = rping_server(run, AIRDMA_MPA_RTR=choice)
        peer, reply = connected(port, mpa.peer_to_peer_request(kind))
        with peer:
            if mpa.chosen_rtr(reply) != kind:
                raise Failure(f"the server did not choose the only RTR frame offered, {choice}")
            writer = mpa.Writer()
            peer.sendall(writer.fpdu(ulpdu))
            offender = provoke_read(peer, writer, msn)
            peer.sendall(writer.fpdu(mpa.terminate(0, 1, 2, offender)))
        hears(run, server, REM_ACCESS_ERR, f"with {choice} as RTR frame")
