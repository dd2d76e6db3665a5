// SPDX-License-Identifier: MIT
// Asynchronous events of ports: an address of an interface that comes or goes is a GID_CHANGE of
// its RoCEv2 device, and an interface that starts or stops running is PORT_ACTIVE or PORT_ERR.
#pragma once

#include "base/result.h"

namespace airdma::verbs {

/// Watches the host's interfaces for the contexts of this process from now on. Twice is once.
Status watch_ports();

}  // namespace airdma::verbs
