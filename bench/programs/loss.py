# SPDX-License-Identifier: MIT
"""Random loss on a network interface, by a program of seven instructions at its entrance (XDP): each
packet is dropped with the given probability, for as long as the descriptor that lose() returns is
open. At the entrance of a veth interface its driver also asks the other end for single packets, so
each loss is that of one packet, and a lossless path to compare with has such a program, too. Needs
root.
"""
import ctypes
import os
import platform
import struct

SYSCALL = {"x86_64": 321, "aarch64": 280}
PROG_LOAD, LINK_CREATE = 5, 28
TYPE_XDP, ATTACH_XDP = 6, 37
HAS_FRAGS = 1 << 5  # BPF_F_XDP_HAS_FRAGS: packets longer than a page come here too
GET_RANDOM = 7  # the helper bpf_get_prandom_u32
XDP_DROP, XDP_PASS = 1, 2


def instruction(code, registers=0, offset=0, value=0):
    return struct.pack("<BBhi", code, registers, offset, value)


def program(probability):
    """if (random() < limit) return XDP_DROP; return XDP_PASS;"""
    limit = min(int(probability * 2 ** 31), 2 ** 31 - 1)
    return b"".join((
        instruction(0x85, value=GET_RANDOM),          # r0 = random
        instruction(0x77, value=1),                   # r0 >>= 1, so that the limit has no sign
        instruction(0xa5, offset=2, value=limit),     # if r0 < limit goto drop
        instruction(0xb7, value=XDP_PASS), instruction(0x95),
        instruction(0xb7, value=XDP_DROP), instruction(0x95)))


def bpf(command, attributes):
    libc = ctypes.CDLL(None, use_errno=True)
    number = SYSCALL.get(platform.machine())
    if number is None:
        raise OSError(f"bpf on {platform.machine()}")
    buffer = ctypes.create_string_buffer(attributes, len(attributes))
    result = libc.syscall(number, command, buffer, len(attributes))
    if result < 0:
        code = ctypes.get_errno()
        raise OSError(code, os.strerror(code))
    return result


def lose(interface_index, probability):
    """For an interface of this process's network namespace: a descriptor."""
    code = program(probability)
    instructions = ctypes.create_string_buffer(code, len(code))
    license_text = ctypes.create_string_buffer(b"MIT")
    # Type, number of instructions, where they are, licence, no log, no version, flags.
    loaded = bpf(PROG_LOAD, struct.pack("=IIQQIIQII", TYPE_XDP, len(code) // 8,
                                        ctypes.addressof(instructions),
                                        ctypes.addressof(license_text), 0, 0, 0, 0,
                                        HAS_FRAGS) + bytes(72))
    try:
        return bpf(LINK_CREATE, struct.pack("=IIII", loaded, interface_index, ATTACH_XDP, 0) +
                   bytes(48))
    finally:
        os.close(loaded)


if __name__ == "__main__":
    # loss.py INTERFACE PROBABILITY: until standard input ends.
    import socket
    import sys
    held = lose(socket.if_nametoindex(sys.argv[1]), float(sys.argv[2]))
    print("ready", flush=True)
    sys.stdin.read()
    os.close(held)
