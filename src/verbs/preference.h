// SPDX-License-Identifier: MIT
// What the user of an interface that has an iWARP and a RoCEv2 device wants of them.
#pragma once

namespace airdma::verbs {

/// AIRDMA_CM=roce: the RoCEv2 devices come first in lists, and rdma_cm takes them for addresses.
bool prefers_roce();

}  // namespace airdma::verbs
