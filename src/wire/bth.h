// SPDX-License-Identifier: MIT
// Headers of a RoCEv2 packet as they lie behind UDP: the base transport header and the extended
// ones that its opcode announces (IBTA vol. 1, 9.2 to 9.3; annexes A14 for XRC, A17 for RoCEv2).
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include "base/be.h"

namespace airdma::wire {

/// UDP destination port of every RoCEv2 packet.
inline constexpr std::uint16_t kRoceUdpPort = 4791;
/// The only transport version there is; others are dropped (IBTA vol. 1, 9.6.1.2).
inline constexpr std::uint8_t kTransportVersion = 0;

/// Base transport header, in every packet.
struct Bth {
  be8 opcode;
  be8 flags;
  be16 pkey;
  be32 qpn_word;
  be32 psn_word;

  using Solicited = Field<&Bth::flags, 0, 1>;
  using Migrated = Field<&Bth::flags, 1, 1>;  // MigReq: the sender's path state is "migrated"
  using Pad = Field<&Bth::flags, 2, 2>;       // bytes that round the payload up to a multiple of 4
  using Version = Field<&Bth::flags, 4, 4>;
  using Fecn = Field<&Bth::qpn_word, 0, 1>;
  using Becn = Field<&Bth::qpn_word, 1, 1>;
  using DestinationQpn = Field<&Bth::qpn_word, 8, 24>;
  using AckRequest = Field<&Bth::psn_word, 0, 1>;
  using PacketNumber = Field<&Bth::psn_word, 8, 24>;
};
static_assert(sizeof(Bth) == 12 && alignof(Bth) == 1);

/// XRC: the shared receive queue of a request.
struct XrcEth {
  be32 srqn_word;
  using SharedQueue = Field<&XrcEth::srqn_word, 8, 24>;
};
static_assert(sizeof(XrcEth) == 4);

/// Datagrams: their key and their sender.
struct Deth {
  be32 qkey;
  be32 qpn_word;
  using SourceQpn = Field<&Deth::qpn_word, 8, 24>;
};
static_assert(sizeof(Deth) == 8);

/// RDMA: the range of remote memory, of the whole message.
struct Reth {
  be64 address;
  be32 rkey;
  be32 bytes;
};
static_assert(sizeof(Reth) == 16);

struct AtomicEth {
  be64 address;
  be32 rkey;
  be64 swap_or_add;
  be64 compare;
};
static_assert(sizeof(AtomicEth) == 28);

/// Acknowledgement: what became of the requests up to the packet's PSN.
struct Aeth {
  be32 word;
  using Kind = Field<&Aeth::word, 1, 2>;
  using Value = Field<&Aeth::word, 3, 5>;
  using MessageNumber = Field<&Aeth::word, 8, 24>;
};
static_assert(sizeof(Aeth) == 4);

struct AtomicAckEth {
  be64 original;
};
static_assert(sizeof(AtomicAckEth) == 8);

/// Immediate data.
struct ImmDt {
  be32 data;
};
static_assert(sizeof(ImmDt) == 4);

/// The key that a SEND with invalidate revokes at its receiver.
struct Ieth {
  be32 rkey;
};
static_assert(sizeof(Ieth) == 4);

/// What follows the BTH of a congestion notification packet (IBTA A17.9.3).
struct CnpReserved {
  std::array<be64, 2> reserved;
};
static_assert(sizeof(CnpReserved) == 16);

}  // namespace airdma::wire
