// SPDX-License-Identifier: MIT
// What a device grants. Each number is one that works: objects can be made up to it, in each
// process, as long as there is memory. One more is ENOMEM, and for what belongs to one object
// EINVAL.
#pragma once

#include <cstdint>

namespace airdma::verbs {

/// No registered vendor: the second lowest bit of the first octet marks a local assignment.
inline constexpr std::uint32_t kVendorId = 0x02a1d0;

inline constexpr int kMaxQueuePairs = 1 << 14;
inline constexpr int kMaxWorkRequests = 1 << 15;  // per queue of a queue pair
inline constexpr int kMaxSges = 32;               // per work request, READs included
inline constexpr std::uint32_t kMaxInlineBytes = 1024;
inline constexpr int kMaxCompletionQueues = 1 << 15;
inline constexpr int kMaxCompletions = 1 << 20;  // per completion queue
inline constexpr int kMaxSharedQueues = 1 << 14;
inline constexpr int kMaxSharedReceives = 1 << 15;  // per shared receive queue
inline constexpr int kMaxRegions = 1 << 18;
inline constexpr int kMaxWindows = 1 << 16;
inline constexpr int kMaxProtectionDomains = 1 << 15;
/// Device memory of a process, per device, in bytes.
inline constexpr std::uint64_t kMaxDeviceMemory = std::uint64_t{60} << 20;
inline constexpr std::uint32_t kMaxDeviceMemoryAlignment = 12;  // log2: a page
/// READs outstanding per connection and direction (the MPA word has room for far more).
inline constexpr int kMaxReads = 128;
/// Bytes of one message, as verbs have it everywhere.
inline constexpr std::uint64_t kMaxMessageBytes = std::uint64_t{1} << 31;
inline constexpr int kMaxAddressHandles = 1 << 16;
/// Groups: the kernel lets one IPv4 socket be a member of 20. Members: queue pairs of each.
inline constexpr int kMaxMulticastGroups = 20;
inline constexpr int kMaxMulticastMembers = 64;
inline constexpr int kGidTableLength = 32;
inline constexpr int kPkeyTableLength = 1;
inline constexpr std::uint16_t kDefaultPkey = 0xffff;
inline constexpr int kMaxCompletionVectors = 64;

}  // namespace airdma::verbs
