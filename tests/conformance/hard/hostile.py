# SPDX-License-Identifier: MIT
"""Strangers on the port of a listener: garbage, half a request, silence, broken FPDUs."""
import dataclasses
import random
import socket
import struct

from framework import Failure, absent, case
from support import mpa
from support.processes import free_port, wait_until

HOST = "127.0.0.1"


def persistent_server(run):
    port = free_port()
    # -S is the size of the server's buffer; clients may use less.
    return run.listening(["rping", "-s", "-P", "-S", 4096, "-a", HOST, "-p", port], port), port


def good_client(run, port):
    """A whole rping, which must succeed whatever strangers do."""
    client = run.start(["rping", "-c", "-v", "-V", "-a", HOST, "-p", port, "-C", 5])
    output = run.succeeds(client)
    if output.count("ping data:") != 5:
        raise Failure("a client did not get its five pings")
    return client


def still_there(server):
    if server.status() is not None:
        raise Failure(f"the server ended: {server}")
    absent(server.errors(), r"(?i)segmentation|abort|assert")


def sends(port, data, then_close=True):
    stranger = socket.create_connection((HOST, port), 10)
    stranger.sendall(data)
    if then_close:
        stranger.close()
        return None
    return stranger


@case("hard.garbage", needs=["rping"], sanitized=True, cm="iwarp")
def garbage(run):
    server, port = persistent_server(run)
    dice = random.Random(run.seed)
    request = mpa.request(b"")
    for round_number in range(run.rounds or 40):
        kind = round_number % 5
        if kind == 0:
            sends(port, dice.randbytes(dice.randrange(1, 5000)))
        elif kind == 1:
            sends(port, request[:dice.randrange(1, len(request))])
        elif kind == 2:
            sends(port, b"")
        elif kind == 3:
            sends(port, mpa.request(b"", revision=dice.randrange(3, 256)))
        else:
            # A private data length that nothing follows, or one over the limit.
            sends(port, mpa.request(b"", claimed_bytes=dice.choice([100, 512, 513, 65535])))
        if round_number % 10 == 9:
            good_client(run, port)
    still_there(server)


@case("hard.silence", needs=["rping"], sanitized=True, cm="iwarp")
def silence(run):
    """Strangers that say nothing, or stop in the middle, while clients go on."""
    server, port = persistent_server(run)
    request = mpa.request(b"")
    strangers = [sends(port, request[:i % len(request)], then_close=False) for i in range(40)]
    for _ in range(3):
        good_client(run, port)
    for stranger in strangers:
        stranger.close()
    good_client(run, port)
    still_there(server)


@case("hard.reset", needs=["rping"], sanitized=True, cm="iwarp")
def reset(run):
    """Strangers that reset the connection, before and after a whole request."""
    server, port = persistent_server(run)
    for data in (b"", mpa.request(b"")[:7], mpa.request(b"")):
        stranger = sends(port, data, then_close=False)
        stranger.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        stranger.close()
        good_client(run, port)
    still_there(server)


def one_shot_server(run):
    """A server for a raw peer each: what a stranger breaks is its own connection."""
    port = free_port()
    return run.listening(["rdma_server", "-s", HOST, "-p", port], port), port


def raw_peer(port):
    """A connection after a valid MPA exchange, and whether its CRCs count."""
    peer = socket.create_connection((HOST, port), 10)
    peer.settimeout(20)
    peer.sendall(mpa.request(b"", crc=True))
    reply = mpa.read_reply(peer)
    if reply.rejected:
        raise Failure("the listener rejected a valid request")
    return peer


def ends_with_terminate(peer, layer, error_type, code, what):
    """The other side says Terminate with this meaning, then closes the stream."""
    said = []
    for fpdu in mpa.fpdus_until_end(peer):
        said.append(fpdu)
    if not said:
        raise Failure(f"{what}: the stream ended without a Terminate")
    got = mpa.terminate_of(said[-1])
    if got != (layer, error_type, code):
        raise Failure(f"{what}: Terminate {got} instead of {(layer, error_type, code)}")


# What a peer does wrong after a good MPA exchange, and the answer: layer (0 RDMAP, 1 DDP, 2 LLP),
# error type, error code. RFC 5040 4.8, RFC 5041 6.2 and 8, RFC 5044 8.
MISDEEDS = {
    "bad CRC": (mpa.fpdu(mpa.send_segment(b"x" * 16), spoil_crc=True), (2, 0, 2)),
    "unknown STag": (mpa.fpdu(mpa.write_segment(0x7FFFFF00, 0, b"x" * 16)), (1, 1, 0)),
    "DDP version": (mpa.fpdu(mpa.send_segment(b"x" * 16, ddp_version=3)), (1, 2, 6)),
    "RDMAP version": (mpa.fpdu(mpa.send_segment(b"x" * 16, rdmap_version=3)), (0, 2, 5)),
    "opcode": (mpa.fpdu(mpa.send_segment(b"x" * 16, opcode=15)), (0, 2, 6)),
    "queue number": (mpa.fpdu(mpa.send_segment(b"x" * 16, queue=9)), (1, 2, 1)),
    "message number": (mpa.fpdu(mpa.send_segment(b"x" * 16, msn=77)), (1, 2, 3)),
    "message too long": (mpa.fpdu(mpa.send_segment(b"x" * 5000)), (1, 2, 5)),
    "READ of an unknown STag": (mpa.fpdu(mpa.read_request(0x7FFFFF00, 16)), (0, 1, 0)),
}


def register_misdeed(name, bytes_sent, answer):
    @case(f"hard.raw.{name.replace(' ', '_')}", needs=["rdma_server"], sanitized=True, cm="iwarp")
    def misdeed(run):
        server, port = one_shot_server(run)
        peer = raw_peer(port)
        peer.sendall(bytes_sent)
        ends_with_terminate(peer, *answer, name)
        peer.close()
        # The program must hear of it and end, by whatever status, but not by a signal.
        status = server.wait(run.programs.seconds(20))
        if status < 0:
            raise Failure(f"{name}: signal {-status} ended the server")


for misdeed_name, (misdeed_bytes, misdeed_answer) in MISDEEDS.items():
    register_misdeed(misdeed_name, misdeed_bytes, misdeed_answer)


# The same by a peer that was given a key: an rping client sends its buffer's address, key and size
# in its first message. Each is made from those three; the buffer may be read and written.
KEYED_MISDEEDS = {
    "WRITE behind the end": (lambda b: mpa.write_segment(b.key, b.address + b.size, b"x"), (1, 1, 1)),
    "WRITE over the end":
        (lambda b: mpa.write_segment(b.key, b.address + b.size - 1, b"xy"), (1, 1, 1)),
    "WRITE before the start":
        (lambda b: mpa.write_segment(b.key, b.address - 1, b"xy"), (1, 1, 1)),
    "WRITE that wraps": (lambda b: mpa.write_segment(b.key, 2**64 - 4, b"x" * 16), (1, 1, 3)),
    "WRITE with a key beside":
        (lambda b: mpa.write_segment(b.key ^ 1, b.address, b"x"), (1, 1, 0)),
    "tagged DDP version":
        (lambda b: mpa.write_segment(b.key, b.address, b"x", ddp_version=2), (1, 1, 4)),
    "tagged SEND": (lambda b: mpa.write_segment(b.key, b.address, b"x", opcode=3), (0, 2, 6)),
    "answer without a READ":
        (lambda b: mpa.write_segment(b.key, b.address, b"x", opcode=2), (0, 2, 6)),
    "READ over the end":
        (lambda b: mpa.read_request(b.key, b.size, b.address + 1), (0, 1, 1)),
    "READ that wraps": (lambda b: mpa.read_request(b.key, 4096, 2**64 - 8), (0, 1, 4)),
    "READ cut short":
        (lambda b: mpa.read_request(b.key, 1, b.address)[:-1], (0, 2, 0xFF)),
    "READ in the SENDs' queue":
        (lambda b: mpa.send_segment(b"x" * 28, opcode=1, queue=0), (0, 2, 6)),
    "atomic that is denied": (lambda b: mpa.atomic_request(b.key, b.address & ~7), (0, 1, 2)),
    "atomic of an unknown key": (lambda b: mpa.atomic_request(0x7FFFFF00, 0), (0, 1, 0)),
    "atomic out of line": (lambda b: mpa.atomic_request(b.key, (b.address | 7) - 3), (0, 2, 0xFF)),
    "unknown atomic": (lambda b: mpa.atomic_request(b.key, b.address, operation=1), (0, 2, 6)),
    "answer without an atomic":
        (lambda b: mpa.send_segment(b"x" * 12, opcode=11, queue=3), (0, 2, 6)),
    "immediate of seven bytes": (lambda b: mpa.send_segment(b"x" * 7, opcode=8), (0, 2, 0xFF)),
    "message offset": (lambda b: mpa.send_segment(b"x", offset=4), (1, 2, 4)),
    "one byte too long": (lambda b: mpa.send_segment(b"x" * 17), (1, 2, 5)),
    "no header": (lambda b: b"\x41" * 5, (1, 0, 0)),
}


@dataclasses.dataclass
class Advertised:
    address: int
    key: int
    size: int


def keyed_peer(listener):
    """Accepts an rping client; the connection, and the buffer of which it tells."""
    peer, _ = listener.accept()
    peer.settimeout(20)
    peer.sendall(mpa.accept(mpa.read_mpa_request(peer)))
    for ulpdu in mpa.fpdus_until_end(peer):
        if ulpdu[1] & 0x0F == 3:  # else it is a WRITE of nothing that knocks
            return peer, Advertised(*struct.unpack(">QII", ulpdu[18:34]))
    raise Failure("the client said nothing")


def register_keyed_misdeed(name, made, answer):
    @case(f"hard.keyed.{name.replace(' ', '_')}", needs=["rping"], sanitized=True, cm="iwarp")
    def misdeed(run):
        with socket.create_server((HOST, 0)) as listener:
            listener.settimeout(20)
            port = listener.getsockname()[1]
            client = run.start(["rping", "-c", "-a", HOST, "-p", port, "-C", 1, "-S", 4000])
            peer, buffer = keyed_peer(listener)
            with peer:
                peer.sendall(mpa.fpdu(made(buffer)))
                ends_with_terminate(peer, *answer, name)
            if client.wait(run.programs.seconds(20)) < 0:
                raise Failure(f"{name}: a signal ended the client")


for keyed_name, (keyed_bytes, keyed_answer) in KEYED_MISDEEDS.items():
    register_keyed_misdeed(keyed_name, keyed_bytes, keyed_answer)


@case("hard.raw.garbage", needs=["rping"], sanitized=True, cm="iwarp")
def raw_garbage(run):
    """Random bytes after a valid exchange: the listener and its other clients go on."""
    server, port = persistent_server(run)
    dice = random.Random(run.seed)
    for _ in range(run.rounds or 10):
        peer = raw_peer(port)
        try:
            peer.sendall(dice.randbytes(dice.randrange(1, 100000)))
            peer.shutdown(socket.SHUT_WR)
            for _ in mpa.fpdus_until_end(peer):
                pass
        except (BrokenPipeError, ConnectionResetError):
            pass  # it may refuse to read more
        peer.close()
    good_client(run, port)
    still_there(server)
    wait_until(lambda: server.errors().count("DISCONNECT EVENT") > 0, run.programs.seconds(10),
               "the server to hear of its lost connections")
