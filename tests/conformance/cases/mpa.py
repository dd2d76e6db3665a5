# SPDX-License-Identifier: MIT
"""What a user may choose about MPA: rping over each choice, judged by the frames on the wire."""
import pathlib
import struct
import tempfile

from framework import Failure, absent, case, contains, equal
from support.processes import free_port

REQUEST, REPLY = b"MPA ID Req Frame", b"MPA ID Rep Frame"
MARKERS, CRC, ENHANCED, LARGE = 0x80, 0x40, 0x10, 0x08
PACKET_BLOCK = 6
HEADERS = 54  # Ethernet, IPv4 and TCP, without options


def packets(path):
    """The captured packets of a pcapng file in the byte order of this machine."""
    data = path.read_bytes()
    at = 0
    while at + 12 <= len(data):
        kind, length = struct.unpack_from("=II", data, at)
        if kind == PACKET_BLOCK:
            captured, = struct.unpack_from("=I", data, at + 20)
            yield data[at + 28:at + 28 + captured]
        at += length


def frame(trace, key):
    """Flags, revision and enhanced word of the first MPA frame with this key."""
    for packet in trace:
        at = packet.find(key)
        if at >= 0:
            flags, revision, _ = struct.unpack_from(">BBH", packet, at + len(key))
            word = struct.unpack_from(">HH", packet, at + len(key) + 4) if flags & ENHANCED else None
            return flags, revision, word
    raise Failure(f"the trace has no {key.decode()}")


def ping(run, server_choice, client_choice, succeeds=True):
    """rping with these variables at its two ends; returns the packets of the connection."""
    with tempfile.TemporaryDirectory() as folder:
        trace = pathlib.Path(folder) / "trace.pcapng"
        port = free_port()
        base = ["-V", "-a", "127.0.0.1", "-p", port, "-C", 20, "-S", 20000]
        server = run.listening(["rping", "-s", *base], port, **server_choice)
        client = run.start(["rping", "-c", *base], AIRDMA_TRACE=str(trace), **client_choice)
        if succeeds:
            run.succeeds(client)
            run.succeeds(server)
            for program in (server, client):
                absent(program.output() + program.errors(), r"mismatch|failed|error")
        elif client.wait(run.programs.seconds(20)) == 0:
            raise Failure(f"ended as if it had connected: {client}")
        else:
            contains(client.output() + client.errors(), "RDMA_CM_EVENT_")
        return list(packets(trace))


@case("mpa.crc", needs=["rping"], sanitized=True, cm="iwarp")
def crc(run):
    for server, client, asked, answered in (
            ("off", "off", 0, 0), ("on", "off", 0, 0), ("require", "off", 0, CRC),
            ("off", "on", CRC, CRC), ("require", "require", CRC, CRC),
            ("refuse", "refuse", 0, 0)):
        trace = ping(run, {"AIRDMA_MPA_CRC": server}, {"AIRDMA_MPA_CRC": client})
        equal(frame(trace, REQUEST)[0] & CRC, asked, f"C of a client with {client}")
        equal(frame(trace, REPLY)[0] & CRC, answered, f"C of a server with {server}")


@case("mpa.crc_refused", needs=["rping"], sanitized=True, cm="iwarp")
def crc_refused(run):
    ping(run, {"AIRDMA_MPA_CRC": "refuse"}, {"AIRDMA_MPA_CRC": "require"}, succeeds=False)
    ping(run, {"AIRDMA_MPA_CRC": "require"}, {"AIRDMA_MPA_CRC": "refuse"}, succeeds=False)


@case("mpa.markers", needs=["rping"], sanitized=True, cm="iwarp")
def markers(run):
    for server, client in (("on", "off"), ("off", "on"), ("on", "on")):
        trace = ping(run, {"AIRDMA_MPA_MARKERS": server}, {"AIRDMA_MPA_MARKERS": client})
        equal(bool(frame(trace, REQUEST)[0] & MARKERS), client == "on", "M of the request")
        equal(bool(frame(trace, REPLY)[0] & MARKERS), server == "on", "M of the reply")


@case("mpa.rtr", needs=["rping"], sanitized=True, cm="iwarp")
def rtr(run):
    a, b, c, d = 0x8000, 0x4000, 0x8000, 0x4000
    for choice, ird, ord_ in (("write", a, c), ("read", a, d), ("send", a | b, 0), ("none", 0, 0)):
        word = frame(ping(run, {}, {"AIRDMA_MPA_RTR": choice}), REPLY)[2]
        equal((word[0] & 0xc000, word[1] & 0xc000), (ird, ord_), f"RTR agreed on with {choice}")
    word = frame(ping(run, {"AIRDMA_MPA_RTR": "read"}, {}), REPLY)[2]
    equal((word[0] & 0xc000, word[1] & 0xc000), (a, d), "RTR that the server likes")


@case("mpa.revision", needs=["rping"], sanitized=True, cm="iwarp")
def revision(run):
    trace = ping(run, {}, {"AIRDMA_MPA_REVISION": "1"})
    for key in (REQUEST, REPLY):
        flags, number, word = frame(trace, key)
        equal((number, word, flags & LARGE), (1, None, LARGE), "revision, depths, large FPDUs")


@case("mpa.fpdu_length", needs=["rping"], sanitized=True, cm="iwarp")
def fpdu_length(run):
    for limit, least, most in (("1448", 1400, 1448), ("", 20000, 65536)):
        trace = ping(run, {"AIRDMA_MPA_MAX_FPDU": limit}, {"AIRDMA_MPA_MAX_FPDU": limit})
        longest = max(len(packet) for packet in trace) - HEADERS
        if not least <= longest <= most:
            raise Failure(f"the longest FPDU with '{limit}' has about {longest} bytes")


@case("mpa.nonsense", needs=["rping"], cm="iwarp")
def nonsense(run):
    """Values that are none change nothing, and the log tells of them."""
    with tempfile.TemporaryDirectory() as folder:
        log = pathlib.Path(folder) / "log"
        ping(run, {}, {"AIRDMA_MPA_CRC": "maybe", "AIRDMA_LOG": f"error:{log}"})
        equal(log.read_text().count("AIRDMA_MPA_CRC=maybe"), 1, "lines about the bad value")
