// SPDX-License-Identifier: MIT
// What became of packets that were to be sent.
#pragma once

#include <cstddef>
#include <cstdint>

namespace airdma::runtime {

enum class SendStatus : std::uint8_t {
  kSent,         // all of it
  kBusy,         // the way is full now: send the rest after on_writable(), or drop it
  kUnreadable,   // the payload of the next packet is not there to be read: go on behind that one
  kUnreachable,  // dropped: no route, no such address, no process with that queue pair
  kTooLong,      // dropped: a packet is longer than the path carries
};

struct SendOutcome {
  SendStatus status = SendStatus::kSent;
  std::size_t packets = 0;  // how many are done with: sent or dropped
};

}  // namespace airdma::runtime
