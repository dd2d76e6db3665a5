# SPDX-License-Identifier: MIT
"""ibv_devices and ibv_devinfo: what programs see of the devices."""
import pathlib
import re

from framework import Failure, case, contains


def interfaces_up():
    """Interfaces of this machine that are up, loopback included (IFF_UP is bit 0)."""
    return [path.name for path in sorted(pathlib.Path("/sys/class/net").iterdir())
            if (path / "flags").exists() and int((path / "flags").read_text(), 16) & 1]


@case("devices.list", needs=["ibv_devices"], sanitized=True)
def device_list(run):
    output = run.succeeds(run.start(["ibv_devices"]))
    names = [line.split()[0] for line in output.splitlines() if re.search(r"\t[0-9a-f]{16}$", line)]
    for interface in interfaces_up():
        for kind in ("iwarp", "roce"):
            if f"{kind}_{interface}" not in names:
                raise Failure(f"no {kind} device for {interface} among {names}")
    half = len(names) // 2
    if names[half - 1] != "iwarp_lo" or names[-1] != "roce_lo":
        raise Failure(f"loopback is not the last device: {names}")


@case("devices.info", needs=["ibv_devinfo"], sanitized=True)
def device_info(run):
    output = run.succeeds(run.start(["ibv_devinfo", "-v"]))
    contains(output, "iwarp_lo", "transport:", "iWARP", "PORT_ACTIVE", "max_qp_rd_atom",
             "link_layer:", "Ethernet", "roce_lo", "RoCE v2")


@case("devices.unknown", needs=["ibv_devinfo"])
def unknown_device(run):
    program = run.start(["ibv_devinfo", "-d", "nonesuch"])
    if program.wait(20) == 0:
        raise Failure("ibv_devinfo found a device that does not exist")
