# SPDX-License-Identifier: MIT
"""A peer that speaks valid MPA and then lies in DDP and RDMAP, from a seed.

Each connection to the victim (tests/conformance/programs/victim.cc) is a few honest messages, whose
answers are looked at, and then one of two ends:
- a known misdeed, which must get exactly the Terminate of the RFCs;
- segments with right CRCs but mutated fields, cuts and orders, which may get any answer, but an end.
What comes back must never hold a byte of memory without REMOTE_READ. Whether memory was changed
that no peer may change is the victim's to say.
"""
import socket
import struct

from support import mpa
from support.hostile_fields import REGION_BYTES, SECRET, TOP, HostileFields, Wrong

WRITE, READ_REQUEST, READ_RESPONSE, SEND, SEND_INVALIDATE = 0, 1, 2, 3, 4
TERMINATE, IMMEDIATE, ATOMIC_REQUEST, ATOMIC_RESPONSE = 7, 8, 10, 11
RECEIVE_BYTES, READ_BYTES = 200, 256


def tagged(stag, offset, payload, opcode=WRITE, last=True, ddp=1, rdmap=1):
    control = 0x80 | (0x40 if last else 0) | ddp
    return struct.pack(">BBIQ", control, rdmap << 6 | opcode, stag, offset % TOP) + payload


def untagged(opcode, queue, msn, offset, payload, last=True, stag=0, ddp=1, rdmap=1):
    control = (0x40 if last else 0) | ddp
    return struct.pack(">BBIIII", control, rdmap << 6 | opcode, stag, queue, msn & 0xFFFFFFFF,
                       offset) + payload


class Connection:
    """One connection after a valid MPA exchange."""

    def __init__(self, port, reads):
        self.reads = reads  # the victim will READ from us
        self.msn = 1
        self.read_msn = 1
        self.stream = socket.create_connection(("127.0.0.1", port), 20)
        self.stream.settimeout(20)
        self.stream.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.stream.sendall(mpa.request(b"", crc=True))
        if mpa.read_reply(self.stream).rejected:
            raise Wrong("the victim rejected a valid request")
        self.segments = mpa.fpdus_until_end(self.stream)

    def say(self, *ulpdus):
        self.stream.sendall(b"".join(mpa.fpdu(ulpdu) for ulpdu in ulpdus))

    def send(self, payload):
        self.say(untagged(SEND, 0, self.msn, 0, payload))
        self.msn += 1

    def read_request(self, stag, offset, size):
        body = struct.pack(">IQIIQ", 0x77, 0x100, size, stag, offset % TOP)
        segment = untagged(READ_REQUEST, 1, self.read_msn, 0, body)
        self.read_msn += 1
        return segment

    def next_segment(self):
        segment = next(self.segments, None)
        if segment is not None and SECRET in segment:
            raise Wrong("bytes of memory without REMOTE_READ came back")
        return segment

    def read(self, stag, offset, size):
        """An honest READ: the answer's bytes."""
        self.say(self.read_request(stag, offset, size))
        data = b""
        while True:
            segment = self.next_segment()
            if segment is None or mpa.terminate_of(segment):
                raise Wrong(f"an honest READ got {mpa.terminate_of(segment or b'')}")
            if segment[1] & 0x0F == READ_RESPONSE:
                data += segment[14:]
                if segment[0] & 0x40:
                    return data

    def victims_read(self):
        """Sink STag and offset of the READ that the victim sends on this connection."""
        self.say(tagged(0, 0, b""))  # who accepts may wait for the initiator's first FPDU
        segment = self.next_segment()
        if segment is None or segment[1] & 0x0F != READ_REQUEST:
            raise Wrong("the victim's READ did not come")
        stag, offset, size = struct.unpack(">IQI", segment[18:34])
        if size != READ_BYTES:
            raise Wrong(f"the victim READs {size} bytes")
        return stag, offset

    def last_segment(self):
        last = None
        while (segment := self.next_segment()) is not None:
            last = segment
        return last

    def close(self, reset):
        if reset:
            self.stream.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.stream.close()


class HostilePeer(HostileFields):
    def __init__(self, port, regions, seed):
        super().__init__(regions, seed, most_outside=300)
        self.port = port
        self.accepted = 0

    # Known misdeeds: each returns segments and the Terminate they must get.

    def write_guess(self, _):
        return [tagged(self.guess(), self.address("open"), self.payload(1, 64))], (1, 1, 0)

    def write_gone(self, _):
        return [tagged(self.key("gone"), self.address("gone"), self.payload(1, 64))], (1, 1, 0)

    def write_foreign(self, _):
        return [tagged(self.key("foreign"), self.address("foreign"), self.payload(1, 64))], (1, 1, 2)

    def write_outside(self, _):
        offset, size = self.outside("open")
        return [tagged(self.key("open"), offset, self.dice.randbytes(size))], (1, 1, 1)

    def write_wraps(self, _):
        data = self.payload(2, 64)
        offset = TOP - self.dice.randrange(1, len(data))
        return [tagged(self.key("open"), offset, data)], (1, 1, 3)

    def write_denied(self, _):
        region = self.dice.choice(["read_only", "local", "sink", "inbox"])
        return [tagged(self.key(region), self.address(region), self.payload(1, 64))], (0, 1, 2)

    def write_leaves_later(self, _):
        """Segments inside the region, and one that goes on beyond its end."""
        end = self.address("open") + REGION_BYTES
        first = tagged(self.key("open"), end - 64, self.dice.randbytes(64), last=False)
        return [first, tagged(self.key("open"), end, self.payload(1, 64))], (1, 1, 1)

    def read_guess(self, c):
        return [c.read_request(self.guess(), self.address("open"), 16)], (0, 1, 0)

    def read_gone(self, c):
        return [c.read_request(self.key("gone"), self.address("gone"), 16)], (0, 1, 0)

    def read_foreign(self, c):
        return [c.read_request(self.key("foreign"), self.address("foreign"), 16)], (0, 1, 3)

    def read_outside(self, c):
        offset, size = self.outside(self.dice.choice(["open", "read_only"]))
        return [c.read_request(self.key("open"), offset, size)], (0, 1, 1)

    def read_too_much(self, c):
        size = self.dice.choice([REGION_BYTES + 1, 1 << 31, 0xFFFFFFFF])
        return [c.read_request(self.key("open"), self.address("open"), size)], (0, 1, 1)

    def read_wraps(self, c):
        return [c.read_request(self.key("open"), TOP - 8, 64)], (0, 1, 4)

    def read_denied(self, c):
        region = self.dice.choice(["local", "sink", "inbox"])
        return [c.read_request(self.key(region), self.address(region), 64)], (0, 1, 2)

    def read_request_length(self, c):
        body = self.dice.randbytes(self.dice.choice([0, 1, 27, 29, 64]))
        return [untagged(READ_REQUEST, 1, c.read_msn, 0, body)], (0, 2, 0xFF)

    def read_request_msn(self, c):
        c.read_msn += self.dice.choice([1, 7, 1 << 31, -1])
        return [c.read_request(self.key("open"), self.address("open"), 16)], (1, 2, 3)

    def response_unasked(self, _):
        region = self.dice.choice(list(self.regions))
        return [tagged(self.key(region), self.address(region), self.payload(1, 64),
                       READ_RESPONSE)], (0, 2, 6)

    def send_too_long(self, c):
        size = self.dice.choice([RECEIVE_BYTES + 1, RECEIVE_BYTES + 57, 4000])
        return [untagged(SEND, 0, c.msn, 0, self.dice.randbytes(size))], (1, 2, 5)

    def send_too_long_later(self, c):
        return [untagged(SEND, 0, c.msn, 0, self.dice.randbytes(RECEIVE_BYTES), last=False),
                untagged(SEND, 0, c.msn, RECEIVE_BYTES, self.payload(1, 64))], (1, 2, 5)

    def send_msn(self, c):
        msn = c.msn + self.dice.choice([1, 2, 100, 1 << 31, -1])
        return [untagged(SEND, 0, msn, 0, self.payload(0, 64))], (1, 2, 3)

    def send_offset(self, c):
        return [untagged(SEND, 0, c.msn, self.dice.randint(1, 300), self.payload(0, 64))], (1, 2, 4)

    def send_offset_gap(self, c):
        return [untagged(SEND, 0, c.msn, 0, b"x" * 10, last=False),
                untagged(SEND, 0, c.msn, self.dice.choice([0, 9, 11]), b"y" * 10)], (1, 2, 4)

    def queue(self, c):
        number = self.dice.choice([4, 5, 1 << 16, 0xFFFFFFFF])
        return [untagged(SEND, number, c.msn, 0, self.payload(0, 64))], (1, 2, 1)

    def untagged_ddp_version(self, c):
        return [untagged(SEND, 0, c.msn, 0, b"x", ddp=self.dice.choice([0, 2, 3]))], (1, 2, 6)

    def tagged_ddp_version(self, _):
        return [tagged(self.key("open"), self.address("open"), b"x",
                       ddp=self.dice.choice([0, 2, 3]))], (1, 1, 4)

    def rdmap_version(self, c):
        version = self.dice.choice([0, 2, 3])
        return [self.dice.choice([
            untagged(SEND, 0, c.msn, 0, b"x", rdmap=version),
            tagged(self.key("open"), self.address("open"), b"x", rdmap=version)])], (0, 2, 5)

    def opcode(self, c):
        return [untagged(self.dice.choice([12, 13, 14, 15]), 0, c.msn, 0, b"x")], (0, 2, 6)

    def immediate_length(self, c):
        size = self.dice.choice([0, 1, 7, 9, 64])
        return [untagged(IMMEDIATE, 0, c.msn, 0, self.dice.randbytes(size))], (0, 2, 0xFF)

    def atomic(self, c, region, shift=0, operation=0, key=None):
        """FETCH_ADD is operation 0, COMPARE_SWAP 2; the masks are whole (RFC 7306 5.2)."""
        stag = self.key(region) if key is None else key
        everything = TOP - 1
        body = struct.pack(">IIIQQQQQ", operation, self.dice.getrandbits(32), stag,
                           (self.address(region) + shift) % TOP, 1, everything, 0, everything)
        segment = untagged(ATOMIC_REQUEST, 1, c.read_msn, 0, body)
        c.read_msn += 1
        return [segment]

    def atomic_guess(self, c):
        return self.atomic(c, "open", key=self.guess()), (0, 1, 0)

    def atomic_foreign(self, c):
        return self.atomic(c, "foreign"), (0, 1, 3)

    def atomic_denied(self, c):
        return self.atomic(c, self.dice.choice(["read_only", "local", "sink", "inbox"])), (0, 1, 2)

    def atomic_outside(self, c):
        return self.atomic(c, "open", self.dice.choice([-8, REGION_BYTES, 1 << 40])), (0, 1, 1)

    def atomic_unaligned(self, c):
        return self.atomic(c, "open", self.dice.randint(1, 7)), (0, 2, 0xFF)

    def atomic_operation(self, c):
        return self.atomic(c, "open", operation=self.dice.choice([1, 3, 9, 15])), (0, 2, 6)

    def atomic_length(self, c):
        segment = self.atomic(c, "open")[0]
        return [segment[:self.dice.randint(18, len(segment) - 1)]
                if self.dice.random() < 0.5 else segment + b"x"], (0, 2, 0xFF)

    def atomic_answer_unasked(self, c):
        return [untagged(ATOMIC_RESPONSE, 3, 1, 0, self.payload(12, 12))], (0, 2, 6)

    def invalidate_open(self, c):
        """Nothing but a memory window may be invalidated by a peer."""
        region = self.dice.choice(list(self.regions))
        return [untagged(self.dice.choice([SEND_INVALIDATE, 6]), 0, c.msn, 0, self.payload(0, 64),
                         stag=self.key(region))], (0, 1, 9)

    def too_short(self, _):
        return [bytes([0x41, 0x43]) + self.payload(0, 11)], (1, 0, 0)

    MISDEEDS = (write_guess, write_gone, write_foreign, write_outside, write_wraps, write_denied,
                write_leaves_later, read_guess, read_gone, read_foreign, read_outside,
                read_too_much, read_wraps, read_denied, read_request_length, read_request_msn,
                response_unasked, send_too_long, send_too_long_later, send_msn, send_offset,
                send_offset_gap, queue, untagged_ddp_version, tagged_ddp_version, rdmap_version,
                opcode, immediate_length, atomic_guess, atomic_foreign, atomic_denied,
                atomic_outside, atomic_unaligned, atomic_operation, atomic_length,
                atomic_answer_unasked, invalidate_open, too_short)

    # Answers to the victim's own READ.

    def response_misdeed(self, c):
        stag, offset = c.victims_read()
        data = self.dice.randbytes(READ_BYTES)
        kind = self.dice.randrange(5)
        if kind == 0:
            return "answer_guess", [tagged(self.guess(), offset, data, READ_RESPONSE)], (1, 1, 0)
        if kind == 1:
            shift = self.dice.choice([-1, 1, -READ_BYTES, 4096, 1 << 40])
            return "answer_outside", [tagged(stag, offset + shift, data, READ_RESPONSE)], (1, 1, 1)
        if kind == 2:
            return "answer_too_long", [tagged(stag, offset, data + b"x", READ_RESPONSE)], (1, 1, 1)
        if kind == 3:
            short = data[:self.dice.randrange(READ_BYTES)]
            return "answer_too_short", [tagged(stag, offset, short, READ_RESPONSE)], (0, 2, 0xFF)
        again = tagged(stag, offset, data, READ_RESPONSE)
        return "answer_twice", [again, again], (0, 2, 6)

    # Mutations.

    def honest_segment(self, c):
        kind = self.dice.randrange(8)
        stag, offset = self.key("open"), self.address("open") + self.dice.randrange(2048)
        if kind == 0:
            return tagged(stag, offset, self.payload(0, 300))
        if kind == 1:
            return c.read_request(stag, offset, self.dice.randrange(2000))
        if kind == 2:
            return untagged(SEND, 0, c.msn, 0, self.payload(0, RECEIVE_BYTES))
        if kind == 3:
            return tagged(stag, offset, self.payload(0, 300), READ_RESPONSE)
        if kind == 4:
            return untagged(TERMINATE, 2, 1, 0, self.payload(0, 80))
        if kind == 5:
            return untagged(self.dice.choice([SEND_INVALIDATE, 5, 6]), 0, c.msn, 0,
                            self.payload(0, 64), stag=self.dice.choice([stag, self.guess()]))
        if kind == 6:
            return untagged(self.dice.choice([IMMEDIATE, 9]), 0, c.msn, 0, self.payload(8, 8))
        body = struct.pack(">IIIQQQQQ", self.dice.choice([0, 1, 2, 9]), 7, stag,
                           offset & ~7, *(self.dice.getrandbits(64) for _ in range(4)))
        return untagged(ATOMIC_REQUEST, self.dice.choice([1, 3]), c.read_msn, 0, body)

    def mutate(self, segment):
        data = bytearray(segment)
        for _ in range(self.dice.choice([0, 1, 1, 1, 2, 3])):
            kind = self.dice.randrange(6)
            at = self.dice.randrange(min(len(data), 46)) if data else 0
            if kind == 0 and data:
                data[at] ^= 1 << self.dice.randrange(8)
            elif kind == 1 and data:
                data[at] = self.dice.choice([0, 1, 0x7F, 0x80, 0xFF, self.dice.randrange(256)])
            elif kind == 2:
                del data[self.dice.randrange(len(data) + 1):]
            elif kind == 3:
                data += self.payload(0, 600)
            elif kind == 4 and len(data) > 1:
                data[1] = data[1] & 0xF0 | self.dice.randrange(16)
            elif kind == 5 and data:
                word = struct.pack(">I", self.dice.choice([0, 1, 0x7FFFFFFF, 0xFFFFFFFF,
                                                           self.dice.getrandbits(32)]))
                data[at:at + 4] = word
        return bytes(data)

    def mutated_stream(self, c):
        """Bytes of one to six mutated segments, cut anywhere."""
        stream = b"".join(
            mpa.fpdu(self.mutate(self.honest_segment(c)), spoil_crc=self.dice.random() < 0.02)
            for _ in range(self.dice.randint(1, 6)))
        pieces = [stream]
        if self.dice.random() < 0.3:
            cut = self.dice.randrange(len(stream) + 1)
            pieces = [stream[:cut], stream[cut:]]
        if self.dice.random() < 0.1:
            pieces[-1] = pieces[-1][:self.dice.randrange(len(pieces[-1]) + 1)]
        return pieces

    # Connections.

    def connect(self):
        connection = Connection(self.port, reads=self.accepted % 2 == 1)
        self.accepted += 1
        return connection

    def honesty(self, c):
        for _ in range(self.dice.randrange(4)):
            kind = self.dice.randrange(4)
            data = self.payload(0, RECEIVE_BYTES)
            offset = self.address("open") + self.dice.randrange(REGION_BYTES - len(data))
            if kind == 0:
                c.send(data)
            elif kind == 1 and not c.reads:
                c.say(tagged(self.key("open"), offset, data))
                if data and c.read(self.key("open"), offset, len(data)) != data:
                    raise Wrong("a READ returns other bytes than the WRITE before it wrote")
            elif kind == 2:
                c.say(tagged(self.guess(), offset, b""))  # nothing is written: no misdeed
            elif kind == 3 and not c.reads:
                c.read(self.key("read_only"), self.address("read_only"), 64)
            self.counts["honest messages"] += 1

    def misdeed(self, c):
        if c.reads and self.dice.random() < 0.5:
            name, segments, wanted = self.response_misdeed(c)
        else:
            if c.reads:
                # Its READ is answered first: what is unasked must be so.
                stag, offset = c.victims_read()
                c.say(tagged(stag, offset, self.dice.randbytes(READ_BYTES), READ_RESPONSE))
            self.honesty(c)
            function = self.dice.choice(self.MISDEEDS)
            name, (segments, wanted) = function.__name__, function(self, c)
        c.say(*segments)
        last = c.last_segment()
        got = mpa.terminate_of(last) if last else None
        if got != wanted:
            raise Wrong(f"{name}: Terminate {got} instead of {wanted}")
        self.counts[f"misdeed {name}"] += 1

    def mutation(self, c):
        self.honesty(c)
        try:
            for piece in self.mutated_stream(c):
                c.stream.sendall(piece)
            if self.dice.random() < 0.7:
                c.stream.shutdown(socket.SHUT_WR)
                last = c.last_segment()
                got = mpa.terminate_of(last) if last else None
                self.counts[f"mutation: {got and 'Terminate %d/%d/%#x' % got or 'no Terminate'}"] += 1
            else:
                self.counts["mutation: we reset"] += 1
        except (BrokenPipeError, ConnectionResetError):
            self.counts["mutation: the victim reset"] += 1

    def one_connection(self):
        c = self.connect()
        try:
            if self.dice.random() < 0.5:
                self.misdeed(c)
            else:
                self.mutation(c)
        except TimeoutError:
            raise Wrong("the victim neither answered nor ended the connection in 20 s") from None
        finally:
            c.close(reset=self.dice.random() < 0.5)
