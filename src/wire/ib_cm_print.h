// SPDX-License-Identifier: MIT
// One line for people per message of the communication manager, as print.h has them for iWARP.
#pragma once

#include <span>
#include <string_view>

#include "base/bytes.h"
#include "wire/ib_cm.h"
#include "wire/print.h"

namespace airdma::wire {

/// "REQ id=0x8c3c1479 service=0x1061c06 qpn=0x11 psn=0x33dd1a RC mtu=3 ... tid=0x1079143c8c".
/// Private data is a count of the bytes up to the last that is not zero.
std::string_view print(std::span<char> out, const CmMad& mad);
/// "10.77.0.11:54163 > 10.77.0.12"
std::string_view print(std::span<char> out, const CmaHeader& header);

/// Names for messages to people; "unknown" for values without one.
[[nodiscard]] std::string_view name_of(CmRejectReason reason);
[[nodiscard]] std::string_view name_of(CmSidrStatus status);

/// A whole datagram, or why it is none of the communication manager's.
std::string_view print_cm(std::span<char> out, Bytes mad);

}  // namespace airdma::wire
