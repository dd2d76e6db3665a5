# SPDX-License-Identifier: MIT
"""What airdma records of programs over RoCEv2, as tshark reads it: whole conversations between two
network namespaces, and within one."""
import collections
import decimal
import pathlib
import struct
import subprocess
import tempfile

from framework import Failure, case, equal
from support import roce
from support.network import Cable
from support.processes import free_port

PORT = 18610
FAMILIES = {"ipv4": (0, Cable.far_address, "127.0.0.1"), "ipv6": (1, "fd99::2", "::1")}
# tshark's severity "warning"; below it are notes on what peers of ours do, too.
SUSPICIOUS = "_ws.malformed || _ws.expert.severity >= 0x00600000"
WITH_AETH = {0x0D, 0x0F, 0x10, 0x11, 0x12}
WITH_RETH = {0x06, 0x0A, 0x0B, 0x0C}
# What programs without rdma_cm do -> opcodes that must be among what they send.
COMMANDS = {"ib_write_bw -F -n 20 -s 5000 -m 1024": {0x06, 0x07, 0x08, 0x11},
            "ibv_rc_pingpong -n 20 -s 3000 -m 1024": {0x00, 0x01, 0x02, 0x11}}
GID_OPTION = {"ib_write_bw": "-x", "ibv_rc_pingpong": "-g"}
RPING = {0x04, 0x0A, 0x0C, 0x10, 0x11, 0x64}
CM_MESSAGES = ["ConnectRequest", "ConnectReply", "ReadyToUse", "DisconnectRequest",
               "DisconnectReply"]


class Trace:
    """A file that processes record in."""

    def __init__(self, folder):
        self.path = pathlib.Path(folder) / "trace.pcapng"
        self.variables = {"AIRDMA_TRACE": self.path}

    def tshark(self, *options):
        # RPC-over-RDMA's heuristic takes programs' payloads for its own.
        done = subprocess.run(["tshark", "-n", "--disable-protocol", "rpcordma", "-r", self.path,
                               *options], capture_output=True, timeout=120, check=False)
        if done.returncode != 0:
            raise Failure(f"tshark: {done.stderr.decode()}")
        return done.stdout

    def rows(self, *fields, of="infiniband"):
        options = [word for field in fields for word in ("-e", field)]
        text = self.tshark("-Y", of, "-T", "fields", *options).decode()
        return [line.split("\t") for line in text.splitlines()]

    def frames(self):
        """Bytes of each frame."""
        data = self.tshark("-F", "pcap", "-w", "-")
        at, frames = 24, []
        while at < len(data):
            size, = struct.unpack("<I", data[at + 8:at + 12])
            frames.append(data[at + 16:at + 16 + size])
            at += 16 + size
        return frames

    def judge(self, opcodes):
        """Every frame is a RoCEv2 packet whose headers are there; these opcodes are among them."""
        text = self.tshark("-Y", SUSPICIOUS).decode()
        if text:
            raise Failure(f"tshark warns of\n{text}")
        rows = self.rows("infiniband.bth.opcode", "infiniband.aeth.syndrome", "infiniband.reth.va",
                         "infiniband.reth.dmalen", "infiniband.invariant.crc", of="frame")
        seen = collections.Counter()
        for opcode, syndrome, address, size, crc in rows:
            if not opcode or not crc:
                raise Failure("a frame is no RoCEv2 packet for tshark")
            seen[int(opcode)] += 1
            if (int(opcode) in WITH_AETH) != bool(syndrome):
                raise Failure(f"AETH of opcode {opcode}")
            if (int(opcode) in WITH_RETH) != bool(address and size):
                raise Failure(f"RETH of opcode {opcode}")
        missing = set(opcodes) - set(seen)
        if missing:
            raise Failure(f"opcodes {missing} are missing among {seen}")
        frames = self.frames()
        equal(len(frames), len(rows), "frames")
        for frame in frames:
            judge_icrc(frame)
        return seen


def judge_icrc(frame):
    is_v6 = frame[12:14] == b"\x86\xdd"
    ip, udp = (frame[14:54], frame[54:]) if is_v6 else (frame[14:34], frame[34:])
    want = roce.icrc_of_headers(ip, udp[:8], udp[8:-4])
    equal(udp[-4:].hex(), want.hex(), f"the ICRC of {frame.hex()}")


def judge_management(trace):
    """One connection's management in its order, and no queue pairs but those it names. Either end
    may have recorded a message, or both, and a message may have been repeated."""
    # What was sent is recorded once it is sent, with the time before: the answer may be there first.
    rows = trace.rows("frame.time_epoch", "_ws.col.Info", of="infiniband.mad")
    names = [info.split(": ")[1] for _, info in sorted(rows, key=lambda row: decimal.Decimal(row[0]))]
    # Nobody is answered who has ended meanwhile.
    unanswered = ["DisconnectReply"] if "DisconnectReply" not in names else []
    equal(list(dict.fromkeys(names)) + unanswered, CM_MESSAGES, "CM messages")
    said = trace.rows("infiniband.cm.req.localqpn", of="infiniband.cm.req")
    answered = trace.rows("infiniband.cm.rep.localqpn", of="infiniband.cm.rep")
    addressed = {int(row[0], 16) for row in trace.rows("infiniband.bth.destqp", of="!infiniband.mad")}
    equal(addressed, {int(row[0], 16) for row in said + answered}, "queue pairs of the connection")


def record(run, server, client, port, opcodes, cable=None):
    with tempfile.TemporaryDirectory() as folder:
        trace = Trace(folder)
        run.pair(server, client, port, cable=cable, **trace.variables)
        trace.judge(opcodes)
        if 0x64 in opcodes:
            judge_management(trace)


def register(family):
    gid, far_address, own_address = FAMILIES[family]
    needs = ["tshark", "ib_write_bw", "ibv_rc_pingpong", "rping", "ip"]

    @case(f"trace.roce.{family}", needs=needs, ipv6=family == "ipv6")
    def traced(run):
        with Cable() as cable:
            for command, opcodes in COMMANDS.items():
                far, near = ["-d", "roce_v1"], ["-d", "roce_v0", cable.far_address]
                base = [*command.split(), GID_OPTION[command.split()[0]], gid, "-p", PORT]
                record(run, [*base, *far], [*base, *near], PORT, opcodes, cable)
            base = ["rping", "-a", far_address, "-p", PORT, "-C", 3]
            record(run, [*base, "-s"], [*base, "-c"], PORT, RPING, cable)

    @case(f"trace.roce.{family}.loopback", needs=["tshark", "rping"], ipv6=family == "ipv6")
    def within(run):
        port = free_port()
        base = ["rping", "-a", own_address, "-p", port, "-C", 3]
        record(run, [*base, "-s"], [*base, "-c"], port, RPING)


for one in FAMILIES:
    register(one)
