// SPDX-License-Identifier: MIT
// The devices of this host: a RoCEv2 and an iWARP device per network interface that is or was up. A
// device is made when its interface is first seen and then stays, at the same address, for the life
// of the process and in the children it forks: programs keep device pointers beyond every list.
// Thread-safe, lock-free (a lock could be held at the moment of a fork()).
#pragma once

#include <infiniband/verbs.h>

#include <atomic>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/result.h"
#include "io/address.h"

namespace airdma::verbs {

/// What a device speaks on its network.
enum class Transport : std::uint8_t { kIwarp, kRoce };

struct Device {
  ibv_device pub{};
  Transport transport = Transport::kIwarp;
  std::string interface;  // its name, without the device's prefix
  __be64 guid = 0;
  int index = 0;  // from 1, in the order in which interfaces were seen
  std::atomic<Device*> next{nullptr};

  [[nodiscard]] bool roce() const { return transport == Transport::kRoce; }
  /// The interface as it is now; nothing when it is down or gone.
  [[nodiscard]] std::optional<io::Interface> look() const;
};

/// The devices whose interface is up now, real interfaces before loopback: of each interface its
/// RoCEv2 and its iWARP device, the preferred one first (docs/decisions/0016).
Result<std::vector<Device*>> list_devices();
/// The device behind a handle; null for anything else.
Device* find_device(const ibv_device* handle);

}  // namespace airdma::verbs
