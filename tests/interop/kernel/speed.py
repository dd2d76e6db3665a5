# SPDX-License-Identifier: MIT
"""airdma beside the kernel's own software devices in the same guest: perftest's programs, client and
server both there, on the address of its network interface. What is between them differs: rxe hands
packets of 1,024 bytes from one queue pair to the other, siw has the kernel's TCP over the loopback
interface. airdma's path MTU is rxe's.

All devices take turns within a round, and a ratio is the median of the rounds' ratios. An emulated
processor gives no figures of a real one; only what stands beside each other says something.
"""
import math
import re
import statistics

import guest as guests
from processes import Failure

ROUNDS = 5
RUN_S = 90
PORT = 18515
# The kernel has one device at a time, for its connection manager to choose.
DEVICES = {
    "airdma, RoCEv2": ("", "env AIRDMA_CM=roce /airdma/bin/airdma run --", "roce_eth0"),
    "airdma, iWARP": ("", "env AIRDMA_CM=iwarp /airdma/bin/airdma run --", "iwarp_eth0"),
    "rxe": ("rdma link add rxe0 type rxe netdev eth0", "", "rxe0"),
    "siw": ("rdma link add siw0 type siw netdev eth0", "", "siw0"),
}
# Name, program and options, column of its result, unit.
ROWS = (
    ("WRITE, 64 KiB", "ib_write_bw -s 65536 -n 1000", 3, "MiB/s"),
    ("WRITE, 1 MiB", "ib_write_bw -s 1048576 -n 100", 3, "MiB/s"),
    ("SEND, 64 KiB", "ib_send_bw -s 65536 -n 1000", 3, "MiB/s"),
    ("READ, 64 KiB", "ib_read_bw -s 65536 -n 1000", 3, "MiB/s"),
    ("SEND, 64 B, half round trip", "ib_send_lat -s 64 -n 1000", 4, "us"),
    ("WRITE, 64 B, half round trip", "ib_write_lat -s 64 -n 1000", 4, "us"),
)
# The server waits in whichever connection manager is meant.
LISTENS = (f"rdma resource show cm_id | grep -q LISTEN || grep -q @airdma/cmo/ /proc/net/unix || "
           f"cat /proc/net/tcp /proc/net/tcp6 | grep -q ':{PORT:04X} 0*:0000 0A'")


def run(guest, device, command, column):
    """One figure; nothing when the device could not do it."""
    make, launcher, name = DEVICES[device]
    program = f"timeout {RUN_S} {launcher} {command} -R -F -d {name} -p {PORT}"
    script = (f"for link in rxe0 siw0; do rdma link del $link 2>/dev/null; done; {make}\n"
              f"{program} >/tmp/server 2>&1 & server=$!\n"
              f"until {{ {LISTENS}; }}; do kill -0 $server || exit 1; usleep 20000; done\n"
              f"{program} {guests.ADDRESS[4]}; wait $server || cat /tmp/server")
    answer = guest.run(script, 2 * RUN_S)
    size = re.search(r"-s (\d+)", command).group(1)
    for line in answer.text.splitlines():
        words = line.split()
        if len(words) > column and words[0] == size:
            figure = float(words[column])
            # 0 or infinite when perftest could not find out how fast the processor counts.
            return figure if 0 < figure < math.inf else None
    print(f"{device}: {command}: no figure\n{answer.text[-1500:]}", flush=True)
    return None


def summary(figures):
    """Median, least and greatest."""
    return f"{statistics.median(figures):.4g} ({min(figures):.4g}-{max(figures):.4g})"


def cell(rounds, device):
    figures = [figure[device] for figure in rounds if figure[device]]
    return summary(figures) if figures else "-"


def ratio(rounds, other):
    ours = "airdma, RoCEv2"
    ratios = [figure[ours] / figure[other] for figure in rounds if figure[ours] and figure[other]]
    return summary(ratios) if ratios else "-"


def measure(guest, words):
    """The rows whose names hold all words."""
    devices = [device for device in DEVICES
               if device != "siw" or guest.run("grep -q '^siw ' /proc/modules").status == 0]
    if guest.run("test -x /airdma/bin/airdma").status != 0:
        raise Failure("the guest's image is without airdma")
    others = [device for device in devices if not device.startswith("airdma")]
    titles = ["", *devices, *[f"airdma, RoCEv2 / {other}" for other in others]]
    print("| " + " | ".join(titles) + " |\n" + "|---" * len(titles) + "|")
    for name, command, column, unit in ROWS:
        if not all(word in name for word in words):
            continue
        rounds = [{device: run(guest, device, command, column) for device in devices}
                  for _ in range(ROUNDS)]
        cells = [f"{name}, {unit}", *[cell(rounds, device) for device in devices],
                 *[ratio(rounds, other) for other in others]]
        print("| " + " | ".join(cells) + " |", flush=True)
    return 0
