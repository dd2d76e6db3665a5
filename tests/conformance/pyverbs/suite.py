# SPDX-License-Identifier: MIT
"""suite.py FOLDER [ARGUMENTS]: runs rdma-core's tests (unpacked in FOLDER/tests) on an iWARP device.

Four things of the suite are answered here, because an iWARP device without a kernel cannot:
- the network interface of the device, which the suite looks up in sysfs;
- connecting two queue pairs by their numbers and GIDs. iWARP has no such thing, its connections are
  rdma_cm's. Both queue pairs are in this process, so they are connected through rdma_cm, each named
  by its number, and the test then runs its traffic over them.
- a WRITE that has completed may still be on its way (docs/decisions/0004), so memory that the suite
  is about to compare is first looked at until it holds what the other side sent;
- datagrams through rdma_cm, and a refusal in the sender's completion: skipped.
Everything else is the suite's own; lines.py says how outcomes are printed.
"""
import json
import socket
import subprocess
import sys
import time
import unittest

from lines import Lines

folder = sys.argv.pop(1)
sys.path[:0] = [folder, f"{folder}/tests"]

from args_parser import parser  # noqa: E402

parser.parse_args()

import pyverbs.cm_enums as ce  # noqa: E402
from pyverbs.cmid import CMID, AddrInfo, CMEvent, CMEventChannel, ConnParam  # noqa: E402
import tests  # noqa: E402
import tests.base as base  # noqa: E402

PREFIX = "iwarp_"
DEPTH = 8
PATIENCE_S = 0.2


def interface_address(interface):
    """Its first address, IPv4 where there is one, and its MAC address."""
    shown = json.loads(subprocess.check_output(["ip", "-j", "addr", "show", interface]))[0]
    return shown["addr_info"][0]["local"], shown["address"]


def get_ip_mac(self, dev, port, idx):
    self.args.append([dev, port, idx, *interface_address(dev[len(PREFIX):])])


base.RDMATestCase._get_ip_mac = get_ip_mac


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return str(probe.getsockname()[1])


class Link:
    """A connection of two queue pairs of this process. The ids live as long as their owner."""

    def __init__(self, address, first, second):
        port = free_port()
        self.passive_events, self.active_events = CMEventChannel(), CMEventChannel()
        self.listener = CMID(creator=self.passive_events, port_space=ce.RDMA_PS_TCP)
        self.listener.bind_addr(AddrInfo(src=address, src_service=port,
                                         port_space=ce.RDMA_PS_TCP, flags=ce.RAI_PASSIVE))
        self.listener.listen()
        self.active = CMID(creator=self.active_events, port_space=ce.RDMA_PS_TCP)
        self.active.resolve_addr(AddrInfo(src=address, dst=address, dst_service=port,
                                          port_space=ce.RDMA_PS_TCP))
        self.expect(self.active_events, ce.RDMA_CM_EVENT_ADDR_RESOLVED)
        self.active.resolve_route()
        self.expect(self.active_events, ce.RDMA_CM_EVENT_ROUTE_RESOLVED)
        self.active.connect(self.parameters(first))
        request = CMEvent(self.passive_events)
        self.accepted = CMID(creator=request, listen_id=self.listener)
        request.ack_cm_event()
        self.accepted.accept(self.parameters(second))
        if self.expect(self.active_events, ce.RDMA_CM_EVENT_CONNECT_RESPONSE,
                       ce.RDMA_CM_EVENT_ESTABLISHED) == ce.RDMA_CM_EVENT_CONNECT_RESPONSE:
            self.active.establish()
        self.expect(self.passive_events, ce.RDMA_CM_EVENT_ESTABLISHED)

    @staticmethod
    def parameters(number):
        return ConnParam(resources=DEPTH, depth=DEPTH, qp_num=number)

    @staticmethod
    def expect(channel, *types):
        event = CMEvent(channel)
        kind, text = event.event_type, event.event_str()
        event.ack_cm_event()
        if kind not in types:
            raise AssertionError(f"connecting the queue pairs: {text}")
        return kind


# Queue pairs whose owner has asked for the connection and whose peer has not yet: number -> peer's.
waiting = {}


def to_rts(self):
    address = interface_address(self.dev_name[len(PREFIX):])[0]
    self.links = getattr(self, "links", [])
    for own, peer in zip(self.qps_num, self.rqps_num):
        if waiting.pop(peer, None) == own:
            self.links.append(Link(address, peer, own))
        else:
            waiting[own] = peer


base.RCResources.to_rts = to_rts


mem_write, mem_read = base.BaseResources.mem_write, base.BaseResources.mem_read
written = {}  # who wrote last into its own memory, and what


def remember_written(self, data, size, offset=0):
    written.clear()
    written[self] = data[:size]
    return mem_write(self, data, size, offset)


def read_when_arrived(self, size=None, offset=0):
    """What the other one wrote into its memory last is what it has sent."""
    deadline = time.monotonic() + PATIENCE_S
    while True:
        data = mem_read(self, size, offset)
        sent = next((text for owner, text in written.items() if owner is not self), None)
        if sent is None or data.decode("latin-1") == sent or time.monotonic() > deadline:
            return data


base.BaseResources.mem_write = remember_written
base.BaseResources.mem_read = read_when_arrived

# Tests that wait, in the sender's completion, for what became of a WRITE or a SEND at the target.
UNTOLD = {"test_mr_rereg_access_bad_flow", "test_mr_rereg_addr", "test_mr_rereg_pd",
          "test_invalidate_mw_type1", "test_mw_type2_invalidate_local",
          "test_mw_type2_invalidate_remote", "test_mw_type2_invalidate_dealloc",
          "test_qp_ex_rc_bind_mw"}
set_up = base.RDMATestCase.setUp


def set_up_unless_untold(self):
    if self._testMethodName in UNTOLD:
        raise unittest.SkipTest("iWARP does not tell a sender what happens at the target")
    set_up(self)


base.RDMATestCase.setUp = set_up_unless_untold

two_nodes_rdmacm_traffic = base.RDMACMBaseTest.two_nodes_rdmacm_traffic


def without_datagrams(self, *arguments, **options):
    if options.get("port_space") == ce.RDMA_PS_UDP:
        raise unittest.SkipTest("iWARP has no datagrams")
    return two_nodes_rdmacm_traffic(self, *arguments, **options)


base.RDMACMBaseTest.two_nodes_rdmacm_traffic = without_datagrams


unittest.main(module=tests, testRunner=unittest.TextTestRunner(resultclass=Lines, verbosity=0))
