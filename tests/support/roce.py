# SPDX-License-Identifier: MIT
"""RoCEv2 packets and the connection manager's datagrams, for peers that are no RDMA program:
IBTA vol. 1, chapters 9 and 12, annex A17. IPv4 alone.

A packet is made of bytes at will; send() adds the ICRC that belongs to it. The socket is one that
never fragments and is not connected, so that Linux gives its packets the identification 0, which
the ICRC covers."""
import socket
import struct
import zlib

PORT = 4791
IP_MTU_DISCOVER, IP_PMTUDISC_DO = 10, 2
MANAGEMENT_QPN, MANAGEMENT_QKEY = 1, 0x80010000

SEND_FIRST, SEND_MIDDLE, SEND_LAST, SEND_ONLY = 0x00, 0x01, 0x02, 0x04
WRITE_FIRST, WRITE_MIDDLE, WRITE_LAST, WRITE_ONLY = 0x06, 0x07, 0x08, 0x0A
READ_REQUEST, RESPONSE_FIRST, RESPONSE_LAST, RESPONSE_ONLY = 0x0C, 0x0D, 0x0F, 0x10
ACKNOWLEDGE, ATOMIC_ACKNOWLEDGE, COMPARE_SWAP, FETCH_ADD = 0x11, 0x12, 0x13, 0x14
SEND_ONLY_INVALIDATE, UD_SEND_ONLY, CNP = 0x17, 0x64, 0x81

REQ, MRA, REJ, REP, RTU, DREQ, DREP = range(0x10, 0x17)
SIDR_REQ, SIDR_REP, LAP, APR = range(0x17, 0x1B)


def bth(opcode, qpn, psn, ack=True, pad=0, pkey=0xFFFF, version=0, solicited=False):
    flags = (0x80 if solicited else 0) | 0x40 | pad << 4 | version
    return struct.pack(">BBHII", opcode, flags, pkey, qpn & 0xFFFFFF,
                       (1 << 31 if ack else 0) | psn & 0xFFFFFF)


def packet(opcode, qpn, psn, headers=b"", payload=b"", **fields):
    pad = -len(payload) % 4
    return bth(opcode, qpn, psn, pad=pad, **fields) + headers + payload + bytes(pad)


def reth(address, rkey, size):
    return struct.pack(">QII", address % (1 << 64), rkey, size)


def atomic_eth(address, rkey, swap_or_add=1, compare=0):
    return struct.pack(">QIQQ", address % (1 << 64), rkey, swap_or_add, compare)


def aeth(syndrome, msn=0):
    return struct.pack(">BBH", syndrome, msn >> 16 & 0xFF, msn & 0xFFFF)


def deth(qkey, source):
    return struct.pack(">II", qkey, source)


def icrc_of_headers(ip, udp, data):
    """Over IPv4 or IPv6 header, UDP header and the packet with ones in place of what routers change
    (A17.3.2, vol. 1 7.8.1)."""
    ip = bytearray(ip)
    if ip[0] >> 4 == 4:
        for at in (1, 8, 10, 11):  # type of service, time to live, checksum
            ip[at] = 0xFF
    else:
        ip[0] |= 0x0F  # traffic class and flow label
        ip[1:4] = b"\xff" * 3
        ip[7] = 0xFF  # hop limit
    covered = b"\xff" * 8 + ip + udp[:6] + b"\xff\xff" + data[:4] + b"\xff" + data[5:]
    return struct.pack("<I", zlib.crc32(covered))


def icrc(source, destination, source_port, data):
    """Of a packet that Linux sends over IPv4 as Wire does."""
    udp_bytes = 8 + len(data) + 4
    ip = struct.pack(">BBHHHBBH", 0x45, 0, 20 + udp_bytes, 0, 0x4000, 0, 17, 0)
    return icrc_of_headers(ip + socket.inet_aton(source) + socket.inet_aton(destination),
                           struct.pack(">HHHH", source_port, PORT, udp_bytes, 0), data)


class Wire:
    """The RoCEv2 port of one address."""

    def __init__(self, address):
        self.address = address
        self.socket = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self.socket.setsockopt(socket.IPPROTO_IP, IP_MTU_DISCOVER, IP_PMTUDISC_DO)
        self.socket.bind((address, PORT))

    def send(self, destination, data, spoil=0):
        """`spoil` is what the ICRC is wrong by."""
        right = struct.unpack("<I", icrc(self.address, destination, PORT, data))[0]
        self.send_raw(destination, data + struct.pack("<I", right ^ spoil))

    def send_raw(self, destination, data):
        self.socket.sendto(data, (destination, PORT))

    def receive(self, seconds):
        """The next packet without its ICRC, and whose it is; nothing when none comes."""
        self.socket.settimeout(max(seconds, 0.0001))
        try:
            data, (address, _) = self.socket.recvfrom(65536)
        except TimeoutError:
            return None, None
        return data[:-4], address


def mad(attribute, transaction, body):
    header = struct.pack(">BBBBHHQHHI", 1, 7, 2, 3, 0, 0, transaction, attribute, 0, 0)
    return (header + body).ljust(256, b"\0")


def management_packet(datagram, psn=0):
    return packet(UD_SEND_ONLY, MANAGEMENT_QPN, psn, deth(MANAGEMENT_QKEY, MANAGEMENT_QPN), datagram,
                  ack=False)


def mapped(address):
    return bytes(10) + b"\xff\xff" + socket.inet_aton(address)


def request(local_id, port, qpn, psn, source, destination, path_mtu=3, space=0x0106):
    """A REQ's body: 4 READs and atomics either way, timeouts of a quarter second."""
    timeout = 16
    return (struct.pack(">IIQQII", local_id, 0, space << 16 | port, 0x1234, 0, 0)
            + struct.pack(">IIII", qpn << 8 | 4, 4, timeout << 3, psn << 8 | timeout << 3 | 7)
            + struct.pack(">HBBHH", 0xFFFF, path_mtu << 4 | 7, 3 << 4, 0xFFFF, 0xFFFF)
            + mapped(source) + mapped(destination)
            + struct.pack(">IBBBB", 0, 0, 64, 0, 14 << 3) + bytes(44)
            + struct.pack(">BBH", 0, 0x40, 40000) + bytes(12) + socket.inet_aton(source)
            + bytes(12) + socket.inet_aton(destination))


def two_ids(local_id, remote_id, more=b""):
    return struct.pack(">II", local_id, remote_id) + more
