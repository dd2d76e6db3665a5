# SPDX-License-Identifier: MIT
"""A peer of MPA, DDP and RDMAP in a few lines, so that tests can say what no library would.

Written from RFC 5044, 5041 and 5040 alone: it shares nothing with what it tests.
"""
import dataclasses
import struct

REQUEST_KEY = b"MPA ID Req Frame"
REPLY_KEY = b"MPA ID Rep Frame"
MARKERS, CRC, REJECT, ENHANCED = 0x80, 0x40, 0x20, 0x10
TERMINATE_OPCODE = 7


def _table():
    table = []
    for byte in range(256):
        value = byte
        for _ in range(8):
            value = (value >> 1) ^ (0x82F63B78 if value & 1 else 0)
        table.append(value)
    return table


_CRC32C = _table()


def crc32c(data):
    value = 0xFFFFFFFF
    for byte in data:
        value = _CRC32C[(value ^ byte) & 0xFF] ^ (value >> 8)
    return value ^ 0xFFFFFFFF


def request(private_data, revision=1, crc=True, claimed_bytes=None):
    """An MPA request frame (RFC 5044 7.1.1)."""
    length = len(private_data) if claimed_bytes is None else claimed_bytes
    return REQUEST_KEY + struct.pack(">BBH", CRC if crc else 0, revision, length) + private_data


# Kinds of ready-to-receive frame: bits A and B, and C and D, of the enhanced words (RFC 6581 9.1).
RTR_SEND, RTR_WRITE, RTR_READ = (0x4000, 0), (0, 0x8000), (0, 0x4000)
PEER_TO_PEER = 0x8000  # bit A


def peer_to_peer_request(rtr, depth=4):
    """An MPA request of revision 2 that offers this kind of RTR frame alone."""
    words = struct.pack(">HH", PEER_TO_PEER | rtr[0] | depth, rtr[1] | depth)
    return REQUEST_KEY + struct.pack(">BBH", CRC | ENHANCED, 2, len(words)) + words


def chosen_rtr(reply):
    """The kind of RTR frame that an enhanced reply asks for; None for none."""
    if not reply.flags & ENHANCED:
        return None
    first, second = struct.unpack(">HH", reply.private_data[:4])
    return (first & 0x4000, second & 0xC000) if first & PEER_TO_PEER else None


@dataclasses.dataclass
class Request:
    flags: int
    revision: int
    private_data: bytes


def read_mpa_request(stream):
    frame = read_exactly(stream, 20)
    if frame[:16] != REQUEST_KEY:
        raise ValueError(f"not an MPA request: {frame!r}")
    flags, revision, length = struct.unpack(">BBH", frame[16:])
    return Request(flags, revision, read_exactly(stream, length))


def accept(request, depth=4):
    """The MPA reply that accepts this request, with CRCs and without an RTR frame."""
    enhanced = request.flags & ENHANCED
    word = struct.pack(">HH", depth, depth) if enhanced else b""
    return REPLY_KEY + struct.pack(">BBH", CRC | enhanced, request.revision, len(word)) + word


@dataclasses.dataclass
class Reply:
    flags: int
    revision: int
    private_data: bytes

    @property
    def rejected(self):
        return bool(self.flags & REJECT)


def read_exactly(stream, count):
    data = b""
    while len(data) < count:
        more = stream.recv(count - len(data))
        if not more:
            raise EOFError(f"the stream ended {count - len(data)} bytes early")
        data += more
    return data


def read_reply(stream):
    frame = read_exactly(stream, 20)
    if frame[:16] != REPLY_KEY:
        raise ValueError(f"not an MPA reply: {frame!r}")
    flags, revision, length = struct.unpack(">BBH", frame[16:])
    return Reply(flags, revision, read_exactly(stream, length))


def fpdu(ulpdu, spoil_crc=False):
    """Length, ULPDU, pad to a multiple of four, CRC32C over all before (RFC 5044 4)."""
    body = struct.pack(">H", len(ulpdu)) + ulpdu
    body += bytes(-len(body) % 4)
    # The CRC goes out with its least significant byte first.
    return body + struct.pack("<I", crc32c(body) ^ int(spoil_crc))


class Writer:
    """The FPDUs of one direction of a stream."""

    def fpdu(self, ulpdu):
        return fpdu(ulpdu)


class MarkingWriter:
    """The same with a marker in each 512th place (RFC 5044 4.3), or with wrong ones."""

    def __init__(self, spoil=False):
        self.position = 0  # bytes of the stream before the next FPDU
        self.spoil = spoil

    def fpdu(self, ulpdu):
        plain = struct.pack(">H", len(ulpdu)) + ulpdu
        plain += bytes(-len(plain) % 4)
        body = b""
        start = self.position + (4 if self.position % 512 == 0 else 0)  # of the length field
        for at in range(len(plain) + 4):
            here = self.position + len(body)
            if here % 512 == 0:
                back = 0 if here < start else here - start
                body += struct.pack(">HH", 0, back ^ (4 if self.spoil else 0))
            if at == len(plain):
                break
            body += plain[at:at + 1]
        body += struct.pack("<I", crc32c(body))
        self.position += len(body)
        return body


def send_segment(payload, opcode=3, queue=0, msn=1, offset=0, ddp_version=1, rdmap_version=1):
    """One untagged segment, the last of its message (RFC 5041 4.3, RFC 5040 4.1)."""
    return struct.pack(">BBIIII", 0x40 | ddp_version, rdmap_version << 6 | opcode, 0, queue, msn,
                       offset) + payload


def write_segment(stag, offset, payload, opcode=0, ddp_version=1):
    """One tagged segment, its last: of an RDMA WRITE unless told otherwise (RFC 5041 4.2)."""
    return struct.pack(">BBIQ", 0x80 | 0x40 | ddp_version, 1 << 6 | opcode, stag, offset) + payload


def read_request(stag, size, offset=0):
    """An RDMA READ request (RFC 5040 4.4)."""
    body = struct.pack(">IQIIQ", 1, 0, size, stag, offset)
    return send_segment(body, opcode=1, queue=1)


def atomic_request(stag, offset, operation=0):
    """An Atomic Request that would add 1 (RFC 7306 5.2)."""
    body = struct.pack(">IIIQQQQQ", operation, 1, stag, offset, 1, 0, 0, 0)
    return send_segment(body, opcode=10, queue=1)


def terminate(layer, error_type, code, offender=None):
    """A Terminate, with the headers of the ULPDU that it is about (RFC 5040 4.8): DDP's, and a Read
    Request's own when RDMAP complains."""
    shown, bits = b"", 0
    if offender is not None:
        bits = 0xC0
        tagged = offender[0] & 0x80
        shown = struct.pack(">H", len(offender)) + offender[:14 if tagged else 18]
        if layer == 0 and offender[1] & 0x0F == 1:
            bits, shown = 0xE0, shown + offender[18:18 + 28]
    control = struct.pack(">BBBB", layer << 4 | error_type, code, bits, 0)
    return send_segment(control + shown, opcode=TERMINATE_OPCODE, queue=2)


def fpdus_until_end(stream):
    """Yields the ULPDU of each FPDU that arrives, with its CRC checked, until the stream ends."""
    while True:
        try:
            first = stream.recv(2)
        except ConnectionResetError:
            return
        if not first:
            return
        if len(first) < 2:
            first += read_exactly(stream, 1)
        length = struct.unpack(">H", first)[0]
        pad = -(2 + length) % 4
        rest = read_exactly(stream, length + pad + 4)
        body = first + rest[:-4]
        if struct.unpack("<I", rest[-4:])[0] != crc32c(body):
            raise ValueError("an FPDU with a wrong CRC came back")
        yield rest[:length]


def terminate_of(ulpdu):
    """Layer, error type and error code of a Terminate message; None for anything else."""
    if len(ulpdu) < 22 or ulpdu[1] & 0x0F != TERMINATE_OPCODE:
        return None
    layer_and_type, code = ulpdu[18], ulpdu[19]
    return layer_and_type >> 4, layer_and_type & 0x0F, code
