# SPDX-License-Identifier: MIT
"""ibv_devices and ibv_devinfo: what programs see of the devices."""
import pathlib
import re
import subprocess

from framework import Failure, Skip, case, contains


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
    if names[-2:] != ["roce_lo", "iwarp_lo"]:
        raise Failure(f"loopback is not last, or RoCEv2 not first: {names}")
    preferring = run.succeeds(run.start(["ibv_devices"], AIRDMA_CM="iwarp"))
    if not 0 < preferring.index("iwarp_lo") < preferring.index("roce_lo"):
        raise Failure(f"AIRDMA_CM=iwarp does not bring iWARP first: {preferring}")


@case("devices.info", needs=["ibv_devinfo"], sanitized=True)
def device_info(run):
    output = run.succeeds(run.start(["ibv_devinfo", "-v"]))
    contains(output, "iwarp_lo", "transport:", "iWARP", "PORT_ACTIVE", "max_qp_rd_atom",
             "link_layer:", "Ethernet", "roce_lo", "RoCE v2")


@case("devices.nonsense", needs=["ibv_devices"])
def nonsense(run):
    """Values of variables that are none: counted as unset, and told of once."""
    def lines(**environment):
        program = run.start(["ibv_devices"], **environment)
        contains(run.succeeds(program), "roce_lo")
        return program.errors().splitlines()
    for variable in ("AIRDMA_CM", "AIRDMA_FAULT_GUARD"):
        if lines(**{variable: "maybe"}):
            raise Failure(f"something was printed unasked about {variable}")
    told = lines(AIRDMA_CM="maybe", AIRDMA_LOG="error")
    if len(told) != 1 or "AIRDMA_CM=maybe" not in told[0]:
        raise Failure(f"AIRDMA_CM=maybe: {told}")
    for value in ("verbose", "debug:/nonexistent/file"):
        told = lines(AIRDMA_LOG=value)
        if len(told) != 1 or f"AIRDMA_LOG={value}" not in told[0]:
            raise Failure(f"AIRDMA_LOG={value}: {told}")


@case("devices.unknown", needs=["ibv_devinfo"])
def unknown_device(run):
    program = run.start(["ibv_devinfo", "-d", "nonesuch"])
    if program.wait(20) == 0:
        raise Failure("ibv_devinfo found a device that does not exist")


# In a network namespace of its own: an address comes, the event is printed, and by the next one the
# program finds its pipe closed.
WATCH = """
ip link set lo up
stdbuf -oL ibv_asyncwatch -d roce_lo | {
  read -r descriptor
  ip addr add 10.77.7.7/32 dev lo
  read -r event
  echo "$event"
  exec <&-
  ip addr del 10.77.7.7/32 dev lo
}
"""


@case("devices.addresses_change", needs=["ibv_asyncwatch", "unshare", "ip", "stdbuf"])
def addresses_change(run):
    unshare = ["unshare", "--map-root-user", "--net", "sh", "-c"]
    if subprocess.run([*unshare, ":"], capture_output=True, check=False).returncode != 0:
        raise Skip("no network namespaces for this user")
    contains(run.succeeds(run.start([*unshare, WATCH])), "IBV_EVENT_GID_CHANGE")
