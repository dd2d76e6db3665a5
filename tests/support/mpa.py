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
