# SPDX-License-Identifier: MIT
"""What passes between airdma and the guest: counts of congestion marks and notifications, and
captures for Wireshark.
"""
import contextlib
import re
import select
import socket
import subprocess
import threading

import guest as guests

ALL_PROTOCOLS = 0x0003
ETHERNET_BYTES, IPV6_BYTES, UDP_BYTES = 14, 40, 8
ROCE_PORT = 4791
UDP = 17
CONGESTION_EXPERIENCED = 3
NOTIFICATION = 0x81  # opcode of a CNP


def read_frame(frame):
    """(traffic class, opcode) of a RoCEv2 packet, or None."""
    kind = int.from_bytes(frame[12:14], "big")
    ip = frame[ETHERNET_BYTES:]
    if kind == 0x0800 and ip[9] == UDP:
        service, udp = ip[1], ip[4 * (ip[0] & 15):]
    elif kind == 0x86dd and ip[6] == UDP:
        service, udp = (ip[0] & 15) << 4 | ip[1] >> 4, ip[IPV6_BYTES:]
    else:
        return None
    if int.from_bytes(udp[2:4], "big") != ROCE_PORT or len(udp) <= UDP_BYTES:
        return None
    return service, udp[UDP_BYTES]


class Counts:
    """Counts on the interface to the guest, both directions, until it is left."""

    def __init__(self):
        self.marks = 0
        self.notifications = 0
        self._socket = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(ALL_PROTOCOLS))
        self._socket.bind((guests.INTERFACE, 0))
        self._ends = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)

    def _run(self):
        while True:
            readable, _, _ = select.select([self._socket], [], [], 0.1)
            if readable:
                self._count(self._socket.recv(65536))
            elif self._ends.is_set():
                return

    def _count(self, frame):
        found = read_frame(frame)
        if found is None:
            return
        service, opcode = found
        self.marks += service & 3 == CONGESTION_EXPERIENCED
        self.notifications += opcode == NOTIFICATION

    def __enter__(self):
        self._thread.start()
        return self

    def __exit__(self, *_):
        self._ends.set()
        self._thread.join()
        self._socket.close()


@contextlib.contextmanager
def capture(folder, name):
    """Writes what passes to a file of this name, if there is a folder."""
    if folder is None:
        yield
        return
    path = folder / (re.sub(r"[^\w.]+", "-", name) + ".pcapng")
    # The start of each packet: whole transfers would not be looked at by anyone.
    with subprocess.Popen(["dumpcap", "-q", "-i", guests.INTERFACE, "-s", "160", "-w", str(path)],
                          stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True) as dumpcap:
        for line in dumpcap.stderr:
            if line.startswith("File:"):
                break
        try:
            yield
        finally:
            dumpcap.terminate()
            dumpcap.stderr.read()
