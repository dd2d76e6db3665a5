// SPDX-License-Identifier: MIT
// What the user of an interface that has an iWARP and a RoCEv2 device wants of them.
#pragma once

namespace airdma::verbs {

/// AIRDMA_CM=iwarp: each interface's iWARP device comes before its RoCEv2 device in lists, and
/// rdma_cm takes it for the interface's addresses. Otherwise it is the other way round.
bool prefers_iwarp();

}  // namespace airdma::verbs
