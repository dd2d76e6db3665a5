// SPDX-License-Identifier: MIT
// Management datagrams (IBTA vol. 1, 13.4): 256 bytes, carried over RoCEv2 as the payload of one UD
// SEND only packet to queue pair 1.
#pragma once

#include <cstddef>
#include <cstdint>

#include "base/be.h"
#include "base/ids.h"

namespace airdma::wire {

inline constexpr std::size_t kMadBytes = 256;

/// The common header (IBTA vol. 1, 13.4.2).
struct MadHeader {
  be8 base_version;
  be8 management_class;
  be8 class_version;
  be8 method;
  be16 status;
  be16 class_specific;
  be64 transaction_id;
  be16 attribute_id;
  be16 reserved;
  be32 attribute_modifier;
};
static_assert(sizeof(MadHeader) == 24 && alignof(MadHeader) == 1);

inline constexpr std::size_t kMadPayloadBytes = kMadBytes - sizeof(MadHeader);

inline constexpr std::uint8_t kMadBaseVersion = 1;
inline constexpr std::uint8_t kMadClassCm = 7;
inline constexpr std::uint8_t kMadCmClassVersion = 2;
inline constexpr std::uint8_t kMadMethodSend = 3;

/// The queue pair that management datagrams go to and come from, and the Q_Key that everyone uses
/// with it (IBTA vol. 1, 13.3.1, 10.2.5).
inline constexpr Qpn kManagementQpn{1};
inline constexpr Qkey kManagementQkey{0x80010000};

}  // namespace airdma::wire
