#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""hostile_roce_peer.py OWN-ADDRESS OTHER-ADDRESS VICTIM PORT SEED ROUNDS REGIONS: a peer that
connects as InfiniBand's connection manager wants it and then lies, from a seed. Every packet has a
right ICRC unless that is the lie.

Each connection to the victim (tests/conformance/programs/victim.cc) is a few honest messages, whose
answers are looked at, and then one of these:
- a known misdeed, which must get exactly the NAK of the specification;
- a packet that must be ignored, behind which honest messages go on;
- an answer to the victim's own READ that does not fit;
- packets and management datagrams with mutated fields, which may get any answer.
What comes back must never hold a byte of memory without REMOTE_READ. Whether memory was changed
that no peer may change is the victim's to say. REGIONS is "name=address:rkey ..." as the victim
prints it. Ends with a line of JSON, what was done how often; status 1 and what was wrong."""
import collections
import json
import struct
import sys
import time

import roce
from hostile_fields import REGION_BYTES, SECRET, TOP, HostileFields, Wrong

RECEIVE_BYTES, READ_BYTES, DATAGRAM_BYTES = 200, 256, 200
INVALID, ACCESS, SEQUENCE = 0x61, 0x62, 0x60
PATIENCE_S = 20


class Connection:
    def __init__(self, peer):
        self.peer = peer
        dice = peer.dice
        self.path_mtu = dice.choice([1, 2, 3])
        self.mtu = 128 << self.path_mtu
        self.qpn = dice.randrange(16, 1 << 24)
        # Each end chooses with which PSN the other one begins.
        self.expected = dice.choice([0, 0xFFFFFE, dice.getrandbits(24)])
        self.local_id = dice.randrange(1, 1 << 32)
        body = roce.request(self.local_id, peer.port, self.qpn, self.expected, peer.own, peer.victim,
                            self.path_mtu)
        reply = peer.ask(roce.REQ, body, self.local_id, {roce.REP})
        self.remote_id, = struct.unpack(">I", reply[24:28])
        self.victim_qpn = struct.unpack(">I", reply[36:40])[0] >> 8
        self.psn = struct.unpack(">I", reply[44:48])[0] >> 8
        self.reads = reply[60] != 0
        peer.say_mad(roce.RTU, roce.two_ids(self.local_id, self.remote_id))

    def make(self, opcode, headers=b"", payload=b"", **fields):
        """The next packet; a READ's takes one PSN only if its answer is one packet."""
        made = roce.packet(opcode, self.victim_qpn, self.psn, headers, payload, **fields)
        self.psn = self.psn + 1 & 0xFFFFFF
        return made

    def say(self, *packets):
        for one in packets:
            self.peer.wire.send(self.peer.victim, one)

    def hear(self, seconds=PATIENCE_S):
        """The next packet for this queue pair: opcode, PSN, what is behind the BTH."""
        until = time.monotonic() + seconds
        while (left := until - time.monotonic()) > 0:
            data = self.peer.hear(left)
            if data is None or len(data) < 12:
                continue
            opcode, _, _, qpn, psn = struct.unpack(">BBHII", data[:12])
            if qpn & 0xFFFFFF == self.qpn:
                return opcode, psn & 0xFFFFFF, data[12:]
        return None

    def answer(self, packets, wanted, seconds=PATIENCE_S):
        """Says `packets` until the last one's answer is there: opcode and the rest. Answers to
        packets before it, RNR NAKs and the victim's requests do not count."""
        last_psn = struct.unpack(">I", packets[-1][8:12])[0] & 0xFFFFFF
        until = time.monotonic() + seconds
        while time.monotonic() < until:
            self.say(*packets)
            again = time.monotonic() + 1
            while (left := again - time.monotonic()) > 0:
                heard = self.hear(left)
                if heard is None:
                    break
                opcode, psn, rest = heard
                if opcode not in wanted and opcode != roce.ACKNOWLEDGE:
                    continue
                if opcode == roce.ACKNOWLEDGE and rest[0] >> 5 == 1:  # no receive yet
                    time.sleep(0.002)
                    break
                is_ack = opcode == roce.ACKNOWLEDGE and rest[0] >> 5 == 0
                if is_ack and (psn != last_psn or opcode not in wanted):
                    continue
                if opcode == roce.ACKNOWLEDGE and rest[0] == SEQUENCE:
                    continue  # of what came before; what it asks for is said again
                return opcode, rest
        raise Wrong(f"no answer to {packets[-1][:12].hex()} in {seconds} s")

    def succeeds(self, *packets, by=roce.ACKNOWLEDGE):
        opcode, rest = self.answer(packets, {by})
        if opcode != by or by == roce.ACKNOWLEDGE and rest[0] >> 5 != 0:
            raise Wrong(f"an honest message got {opcode:#x} {rest[:4].hex()}")
        return rest

    def send(self, payload):
        self.succeeds(*self.message(roce.SEND_FIRST, roce.SEND_MIDDLE, roce.SEND_LAST,
                                    roce.SEND_ONLY, payload))

    def write(self, key, address, payload):
        return self.message(roce.WRITE_FIRST, roce.WRITE_MIDDLE, roce.WRITE_LAST, roce.WRITE_ONLY,
                            payload, roce.reth(address, key, len(payload)))

    def message(self, first, middle, last, only, payload, headers=b""):
        pieces = [payload[at:at + self.mtu] for at in range(0, len(payload), self.mtu)] or [b""]
        if len(pieces) == 1:
            return [self.make(only, headers, payload)]
        return [self.make(first if i == 0 else last if i + 1 == len(pieces) else middle,
                          headers if i == 0 else b"", piece, ack=i + 1 == len(pieces))
                for i, piece in enumerate(pieces)]

    def read_request(self, key, address, size):
        return self.make(roce.READ_REQUEST, roce.reth(address, key, size))

    def read(self, key, address, size):
        """An honest READ of one packet: its bytes."""
        return self.succeeds(self.read_request(key, address, size), by=roce.RESPONSE_ONLY)[4:][:size]

    def victims_read(self):
        """PSN of the READ that the victim sends on this connection."""
        until = time.monotonic() + PATIENCE_S
        while time.monotonic() < until:
            heard = self.hear(1)
            if heard and heard[0] == roce.READ_REQUEST:
                if heard[2][12:16] != struct.pack(">I", READ_BYTES):
                    raise Wrong(f"the victim READs {heard[2].hex()}")
                return heard[1]
        raise Wrong("the victim's READ did not come")

    def respond(self, opcode, psn, payload=b"", syndrome=0, headers=None):
        headers = roce.aeth(syndrome, 1) if headers is None else headers
        self.say(roce.packet(opcode, self.victim_qpn, psn, headers, payload, ack=False))

    def end(self):
        self.peer.ask(roce.DREQ, roce.two_ids(self.local_id, self.remote_id,
                                              struct.pack(">I", self.victim_qpn << 8)),
                      self.local_id, {roce.DREP})


class HostilePeer(HostileFields):
    def __init__(self, own, other, victim, port, seed, regions):
        super().__init__(regions, seed, most_outside=200)
        self.own, self.victim, self.port = own, victim, port
        self.wire, self.other_wire = roce.Wire(own), roce.Wire(other)
        self.datagrams = regions.pop("datagrams", None)  # QPN and Q_Key
        self.transaction = self.dice.getrandbits(60)

    # The wire.

    def hear(self, seconds):
        """The next packet that is not management's, which is looked after here."""
        data, address = self.wire.receive(seconds)
        if data is None or address != self.victim:
            return None
        if SECRET in data:
            raise Wrong("bytes of memory without REMOTE_READ came back")
        if data[0] == roce.UD_SEND_ONLY and len(data) == 12 + 8 + 256:
            self.on_mad(data[20:])
            return None
        return data

    def on_mad(self, datagram):
        self.mads.append(datagram)

    mads = collections.deque(maxlen=64)

    def say_mad(self, attribute, body, transaction=None):
        self.wire.send(self.victim, roce.management_packet(
            roce.mad(attribute, transaction or self.transaction, body)))

    def ask(self, attribute, body, local_id, wanted):
        """Says a management datagram until it is answered."""
        self.transaction += 1
        until = time.monotonic() + 6 * PATIENCE_S
        while time.monotonic() < until:
            self.say_mad(attribute, body)
            again = time.monotonic() + 0.3
            while (left := again - time.monotonic()) > 0:
                self.hear(left)
                while self.mads:
                    answer = self.mads.popleft()
                    kind = struct.unpack(">H", answer[16:18])[0]
                    if struct.unpack(">I", answer[28:32])[0] != local_id:
                        self.decline(kind, answer)
                    elif kind in wanted:
                        return answer
                    elif kind == roce.REJ:
                        # All places are taken by what mutated requests have left: they go.
                        time.sleep(0.2)
        raise Wrong(f"no answer to management datagram {attribute:#x}")

    def decline(self, kind, answer):
        """An answer to a request that was mutated: a victim that waits has a place less."""
        if kind != roce.REP:
            return
        theirs, ours = struct.unpack(">II", answer[24:32])
        body = roce.two_ids(ours, theirs, struct.pack(">BBH", 1 << 6, 0, 28))
        self.say_mad(roce.REJ, body, struct.unpack(">Q", answer[8:16])[0])

    def denied(self, *more):
        return self.dice.choice(["local", "sink", "inbox", *more])

    # Known misdeeds: each returns packets and the NAK that they must get.

    def write_guess(self, c):
        return c.write(self.guess(), self.address("open"), self.payload(1, 64)), ACCESS

    def write_gone(self, c):
        return c.write(self.key("gone"), self.address("gone"), self.payload(1, 64)), ACCESS

    def write_foreign(self, c):
        return c.write(self.key("foreign"), self.address("foreign"), self.payload(1, 64)), ACCESS

    def write_outside(self, c):
        address, size = self.outside("open")
        return c.write(self.key("open"), address, self.dice.randbytes(size)), ACCESS

    def write_wraps(self, c):
        data = self.payload(2, 64)
        return c.write(self.key("open"), TOP - self.dice.randrange(1, len(data)), data), ACCESS

    def write_denied(self, c):
        region = self.denied("read_only")
        return c.write(self.key(region), self.address(region), self.payload(1, 64)), ACCESS

    def write_leaves_later(self, c):
        """A message of several packets that goes on beyond the region's end."""
        address = self.address("open") + REGION_BYTES - c.mtu
        return c.write(self.key("open"), address, self.dice.randbytes(2 * c.mtu)), ACCESS

    def write_more(self, c):
        """More, or less, than its RETH has announced."""
        size = self.dice.randint(1, 64)
        told = self.dice.choice([size - 1, size + 1, size + c.mtu, 1 << 31])
        header = roce.reth(self.address("open"), self.key("open"), told)
        wanted = ACCESS if told > REGION_BYTES else INVALID
        return [c.make(roce.WRITE_ONLY, header, self.dice.randbytes(size))], \
            (wanted, INVALID) if told > REGION_BYTES else wanted

    def write_more_later(self, c):
        told = c.mtu + self.dice.randint(1, 60)
        header = roce.reth(self.address("open"), self.key("open"), told)
        return [c.make(roce.WRITE_FIRST, header, self.dice.randbytes(c.mtu), ack=False),
                c.make(self.dice.choice([roce.WRITE_LAST, roce.WRITE_MIDDLE]), b"",
                       self.dice.randbytes(c.mtu))], INVALID

    def read_guess(self, c):
        return [c.read_request(self.guess(), self.address("open"), 16)], ACCESS

    def read_gone(self, c):
        return [c.read_request(self.key("gone"), self.address("gone"), 16)], ACCESS

    def read_foreign(self, c):
        return [c.read_request(self.key("foreign"), self.address("foreign"), 16)], ACCESS

    def read_outside(self, c):
        address, size = self.outside("open")
        return [c.read_request(self.key("open"), address, size)], ACCESS

    def read_too_much(self, c):
        size = self.dice.choice([REGION_BYTES + 1, 1 << 31])
        return [c.read_request(self.key("open"), self.address("open"), size)], ACCESS

    def read_endless(self, c):
        size = self.dice.choice([(1 << 31) + 1, 0xFFFFFFFF])
        return [c.read_request(self.key("open"), self.address("open"), size)], (INVALID, ACCESS)

    def read_wraps(self, c):
        return [c.read_request(self.key("open"), TOP - 8, 64)], ACCESS

    def read_denied(self, c):
        region = self.denied()
        return [c.read_request(self.key(region), self.address(region), 64)], ACCESS

    def atomic(self, c, address, key):
        return [c.make(self.dice.choice([roce.COMPARE_SWAP, roce.FETCH_ADD]),
                       roce.atomic_eth(address, key, self.dice.getrandbits(64)))]

    def atomic_guess(self, c):
        return self.atomic(c, self.address("open"), self.guess()), ACCESS

    def atomic_foreign(self, c):
        return self.atomic(c, self.address("foreign"), self.key("foreign")), ACCESS

    def atomic_denied(self, c):
        region = self.denied("read_only")
        return self.atomic(c, self.address(region), self.key(region)), ACCESS

    def atomic_outside(self, c):
        shift = self.dice.choice([-8, REGION_BYTES, 1 << 40])
        return self.atomic(c, self.address("open") + shift, self.key("open")), ACCESS

    def atomic_unaligned(self, c):
        return self.atomic(c, self.address("open") + self.dice.randint(1, 7),
                           self.key("open")), INVALID

    def send_too_long(self, c):
        size = self.dice.choice([RECEIVE_BYTES + 1, RECEIVE_BYTES + 57, 900])
        return c.message(roce.SEND_FIRST, roce.SEND_MIDDLE, roce.SEND_LAST, roce.SEND_ONLY,
                         self.dice.randbytes(size)), INVALID

    def invalidate(self, c):
        """Nothing but a memory window may be invalidated by a peer."""
        key = self.dice.choice([self.key(r) for r in self.regions] + [self.guess()])
        return [c.make(roce.SEND_ONLY_INVALIDATE, struct.pack(">I", key),
                       self.payload(0, 64))], ACCESS

    def continues_nothing(self, c):
        opcode = self.dice.choice([roce.SEND_MIDDLE, roce.SEND_LAST, roce.WRITE_MIDDLE,
                                   roce.WRITE_LAST])
        return [c.make(opcode, b"", self.dice.randbytes(c.mtu))], INVALID

    def begins_twice(self, c):
        header = roce.reth(self.address("open"), self.key("open"), 2 * c.mtu)
        first = (roce.WRITE_FIRST, header, self.dice.randbytes(c.mtu))
        second = self.dice.choice([
            (roce.SEND_ONLY, b"", b"x"),
            (roce.SEND_LAST, b"", b"x"),
            (roce.WRITE_FIRST, header, self.dice.randbytes(c.mtu)),
            (roce.READ_REQUEST, roce.reth(self.address("open"), self.key("open"), 8), b""),
            (roce.FETCH_ADD, roce.atomic_eth(self.address("open"), self.key("open")), b"")])
        return [c.make(*first, ack=False), c.make(*second)], INVALID

    def unknown_opcode(self, c):
        return [c.make(self.dice.choice([0x15, 0x18, 0x1A, 0x1C, 0x1E, 0x1F]), bytes(16),
                       self.payload(0, 64))], INVALID

    def first_is_short(self, c):
        header = roce.reth(self.address("open"), self.key("open"), 2 * c.mtu)
        return [c.make(roce.WRITE_FIRST, header, self.payload(1, c.mtu - 1))], INVALID

    def beyond_the_mtu(self, c):
        size = c.mtu + self.dice.randint(1, 300)
        header = roce.reth(self.address("open"), self.key("open"), size)
        return [c.make(roce.WRITE_ONLY, header, self.dice.randbytes(size))], INVALID

    MISDEEDS = (write_guess, write_gone, write_foreign, write_outside, write_wraps, write_denied,
                write_leaves_later, write_more, write_more_later, read_guess, read_gone,
                read_foreign, read_outside, read_too_much, read_endless, read_wraps, read_denied,
                atomic_guess, atomic_foreign, atomic_denied, atomic_outside, atomic_unaligned,
                send_too_long, invalidate, continues_nothing, begins_twice, unknown_opcode,
                first_is_short, beyond_the_mtu)

    def misdeed(self, c):
        function = self.dice.choice(self.MISDEEDS)
        packets, wanted = function(self, c)
        opcode, rest = c.answer(packets, set())
        wanted = wanted if isinstance(wanted, tuple) else (wanted,)
        if opcode != roce.ACKNOWLEDGE or rest[0] not in wanted:
            raise Wrong(f"{function.__name__}: {opcode:#x} {rest[:4].hex()} instead of NAK "
                        f"{' or '.join(map(hex, wanted))}")
        self.counts[f"misdeed {function.__name__}"] += 1

    # What must be ignored: a WRITE of what must not arrive, but for one field.

    def ignored(self, c):
        target = self.address("open") + 8
        before = c.read(self.key("open"), target, 32)
        header = roce.reth(target, self.key("open"), 32)
        evil = bytes(byte ^ 0xFF for byte in before)

        def made(opcode=roce.WRITE_ONLY, qpn=c.victim_qpn, psn=c.psn, **fields):
            return roce.packet(opcode, qpn, psn, header, evil, **fields)

        # An answer that nobody asked for; of a victim that READs it would be one to that.
        unasked = [] if c.reads else ["answer"]
        kind = self.dice.choice(["icrc", "pkey", "ahead", "behind", "version", "address", "cut",
                                 "queue pair", "service", "notification", *unasked])
        if kind == "icrc":
            # No identification of an IP header makes a difference in one bit.
            self.wire.send(self.victim, made(), spoil=1 << self.dice.randrange(32))
        elif kind == "pkey":
            c.say(made(pkey=self.dice.choice([0, 0x7FFE, 0x1234])))
        elif kind == "ahead":
            c.say(made(psn=c.psn + self.dice.choice([1, 2, 1 << 22])))
        elif kind == "behind":
            c.say(made(psn=c.psn - self.dice.choice([1, 2, 1 << 22])))
        elif kind == "version":
            c.say(made(version=self.dice.randint(1, 15)))
        elif kind == "address":
            self.other_wire.send(self.victim, made())
        elif kind == "cut":
            c.say(made()[:self.dice.randrange(12, 28)])
            self.wire.send_raw(self.victim, made()[:self.dice.randrange(0, 16)])
        elif kind == "queue pair":
            c.say(made(qpn=self.dice.choice([0, 2, c.victim_qpn ^ 0x800, 0xFFFFFF])))
        elif kind == "service":
            c.say(made(opcode=self.dice.choice([0x2A, 0x6A, 0x8A, 0xAA, 0xEA])))
        elif kind == "answer":
            for psn in (c.expected, c.expected - 1, self.dice.getrandbits(24)):
                c.respond(self.dice.choice([roce.ACKNOWLEDGE, roce.RESPONSE_ONLY,
                                            roce.ATOMIC_ACKNOWLEDGE]), psn,
                          headers=roce.aeth(0, 9) + bytes(8))
        else:
            c.say(roce.packet(roce.CNP, c.victim_qpn, 0, bytes(16), ack=False))
        if c.read(self.key("open"), target, 32) != before:
            raise Wrong(f"a packet with a wrong {kind} was carried out")
        c.send(b"still here")
        self.counts[f"ignored {kind}"] += 1

    # Answers to the victim's READ.

    def wrong_answer(self, c):
        psn = c.victims_read()
        data = self.dice.randbytes(READ_BYTES)
        kind = self.dice.randrange(9)
        if kind == 0:
            c.respond(roce.RESPONSE_ONLY, psn, data[:self.dice.randrange(READ_BYTES)])
        elif kind == 1:
            c.respond(roce.RESPONSE_ONLY, psn, data + self.payload(1, 64))
        elif kind == 2:
            c.respond(roce.RESPONSE_FIRST, psn, data)
            c.respond(roce.RESPONSE_LAST, psn + 1, self.payload(1, c.mtu))
        elif kind == 3:
            c.respond(roce.RESPONSE_LAST, psn, data)
        elif kind == 4:
            c.respond(roce.RESPONSE_ONLY, psn + self.dice.choice([1, 2, 1 << 22, -1]), data)
        elif kind == 5:
            c.respond(roce.ACKNOWLEDGE, psn + self.dice.choice([0, 0, 1, 1 << 22]))
        elif kind == 6:
            c.respond(roce.ACKNOWLEDGE, psn, syndrome=self.dice.choice(
                [0x60, 0x61, 0x62, 0x63, 0x64, 0x7F, 0x20, 0x3F, 0x40, 0x80, 0xFF]))
        elif kind == 7:
            c.respond(roce.ATOMIC_ACKNOWLEDGE, psn, headers=roce.aeth(0, 1) + bytes(8))
        else:
            self.other_wire.send(self.victim, roce.packet(
                roce.RESPONSE_ONLY, c.victim_qpn, psn, roce.aeth(0, 1), data, ack=False))
            c.respond(roce.RESPONSE_ONLY, psn, data)
        self.counts[f"wrong answer {kind}"] += 1

    # Anything.

    def template(self, c):
        data = self.payload(0, c.mtu)
        key, address = self.key(self.dice.choice(list(self.regions))), self.address("open")
        opcode = self.dice.choice([*range(0x00, 0x18), 0x1D, self.dice.randrange(256)])
        headers = self.dice.choice([b"", roce.reth(address, key, len(data)),
                                    roce.atomic_eth(address, key), roce.aeth(0, 1),
                                    struct.pack(">I", key), self.dice.randbytes(24)])
        psn = c.psn + self.dice.choice([0, 0, 0, 0, 1, -1, 5])
        return bytearray(roce.packet(opcode, c.victim_qpn, psn, headers, data,
                                     ack=self.dice.random() < 0.5))

    def mutation(self, c):
        for _ in range(self.dice.randint(1, 12)):
            made = self.template(c)
            for _ in range(self.dice.choice([0, 0, 1, 3])):
                made[self.dice.randrange(len(made))] = self.dice.getrandbits(8)
            if self.dice.random() < 0.2:
                del made[self.dice.randrange(len(made)):]
            c.say(bytes(made))
            c.psn += self.dice.choice([0, 1, 1])
        c.hear(0.001)
        self.counts["mutated connections"] += 1

    def datagram_misdeed(self, _):
        if self.datagrams is None:
            return
        qpn, qkey = self.datagrams
        kind = self.dice.choice(["honest", "Q_Key", "too long", "opcode", "no header"])
        payload, opcode, headers = self.payload(0, 64), roce.UD_SEND_ONLY, roce.deth(qkey, 7)
        if kind == "Q_Key":
            headers = roce.deth(qkey ^ (1 << self.dice.randrange(32)), 7)
            payload = SECRET  # the victim looks for it among what it received
        elif kind == "too long":
            payload = self.payload(DATAGRAM_BYTES + 1, 1300)
        elif kind == "opcode":
            opcode = self.dice.choice([0x60, 0x61, 0x62, 0x66, 0x6A, 0x6C, 0x71])
            payload = SECRET
        elif kind == "no header":
            headers, payload = b"", self.payload(0, 7)
        self.wire.send(self.victim, roce.packet(opcode, qpn, self.dice.getrandbits(24), headers,
                                                payload, ack=False))
        self.counts[f"datagram {kind}"] += 1

    def management_garbage(self, c):
        for _ in range(self.dice.randint(1, 6)):
            kind = self.dice.randrange(0x0E, 0x1D)
            if kind == roce.REQ:
                body = roce.request(self.dice.getrandbits(32), self.port, self.dice.getrandbits(24),
                                    self.dice.getrandbits(24), self.own, self.victim)
            else:
                body = roce.two_ids(self.dice.choice([c.local_id, self.dice.getrandbits(32)]),
                                    self.dice.choice([c.remote_id, self.dice.getrandbits(32)]),
                                    self.dice.randbytes(self.dice.choice([0, 4, 224])))
            datagram = bytearray(roce.mad(kind, self.dice.getrandbits(64), body))
            # Not the addresses of a REQ: its answer is to come here.
            for _ in range(self.dice.choice([0, 1, 2, 8])):
                at = self.dice.randrange(256)
                if kind != roce.REQ or not 80 <= at < 116:
                    datagram[at] = self.dice.getrandbits(8)
            if self.dice.random() < 0.1:
                del datagram[self.dice.randrange(256):]
            self.wire.send(self.victim, roce.management_packet(bytes(datagram)))
        self.counts["garbage for management"] += 1

    # Connections.

    def honesty(self, c):
        for _ in range(self.dice.randrange(4)):
            kind = self.dice.randrange(4)
            data = self.payload(0, RECEIVE_BYTES)
            at = self.address("open") + 64 + self.dice.randrange(REGION_BYTES - 64 - len(data))
            if kind == 0:
                c.send(data)
            elif kind == 1:
                c.succeeds(*c.write(self.key("open"), at, data))
                if data and c.read(self.key("open"), at, len(data)) != data:
                    raise Wrong("a READ returns other bytes than the WRITE before it wrote")
            elif kind == 2:
                c.succeeds(*c.write(self.guess(), at, b""))  # nothing is written: no misdeed
            else:
                self.add(c)
            self.counts["honest messages"] += 1

    def add(self, c):
        key, address = self.key("open"), self.address("open")
        header = roce.atomic_eth(address, key, 5)
        rest = c.succeeds(c.make(roce.FETCH_ADD, header), by=roce.ATOMIC_ACKNOWLEDGE)
        before, = struct.unpack(">Q", rest[4:12])
        after, = struct.unpack("<Q", c.read(key, address, 8))
        if after != (before + 5) % TOP:
            raise Wrong(f"FETCH_ADD of 5 made {before:#x} {after:#x}")

    def one_connection(self):
        c = Connection(self)
        if c.reads and self.dice.random() < 0.6:
            self.wrong_answer(c)
        else:
            self.honesty(c)
            what = self.dice.choice([self.misdeed, self.misdeed, self.ignored, self.mutation,
                                     self.management_garbage, self.datagram_misdeed])
            what(c)
        c.end()


def main(arguments):
    own, other, victim, port, seed, rounds, text = arguments
    regions = {}
    for word in text.split():
        name, value = word.split("=")
        regions[name] = tuple(int(part, 16) for part in value.split(":"))
    peer = HostilePeer(own, other, victim, int(port), seed, regions)
    status = 0
    for number in range(int(rounds)):
        try:
            peer.one_connection()
        except Wrong as wrong:
            print(f"seed {seed}, connection {number}: {wrong}")
            status = 1
            break
    print(json.dumps(peer.counts))
    return status


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
