// SPDX-License-Identifier: MIT
// The communication manager's messages as they lie in a management datagram, behind its header
// (IBTA vol. 1, 12.6 to 12.11). What a message has after its layout is private data of a fixed
// length. Reserved bits are sent as zeroes and not looked at.
#pragma once

#include <array>
#include <cstddef>

#include "base/be.h"
#include "wire/mad.h"

namespace airdma::wire::cm_layout {

using Gid = std::array<be8, 16>;
using AdditionalInfo = std::array<be8, 72>;

/// A path in REQ.
struct Path {
  be16 local_lid;
  be16 remote_lid;
  Gid local_gid;
  Gid remote_gid;
  be32 flow;
  be8 traffic_class;
  be8 hop_limit;
  be8 service;
  be8 timeout;

  using FlowLabel = Field<&Path::flow, 0, 20>;
  using PacketRate = Field<&Path::flow, 26, 6>;
  using ServiceLevel = Field<&Path::service, 0, 4>;
  using SubnetLocal = Field<&Path::service, 4, 1>;
  using AckTimeout = Field<&Path::timeout, 0, 5>;
};
static_assert(sizeof(Path) == 44 && alignof(Path) == 1);

struct Req {
  be32 local_id;
  be32 reserved0;
  be64 service_id;
  be64 local_ca_guid;
  be32 reserved1;
  be32 local_qkey;
  be32 qpn;
  be32 eecn;
  be32 remote_eecn;
  be32 psn;
  be16 pkey;
  be8 mtu;
  be8 retries;
  Path primary;
  Path alternate;

  using LocalQpn = Field<&Req::qpn, 0, 24>;
  using ResponderResources = Field<&Req::qpn, 24, 8>;
  using LocalEecn = Field<&Req::eecn, 0, 24>;
  using InitiatorDepth = Field<&Req::eecn, 24, 8>;
  using RemoteEecn = Field<&Req::remote_eecn, 0, 24>;
  using RemoteResponseTimeout = Field<&Req::remote_eecn, 24, 5>;
  using TransportType = Field<&Req::remote_eecn, 29, 2>;
  using FlowControl = Field<&Req::remote_eecn, 31, 1>;
  using StartingPsn = Field<&Req::psn, 0, 24>;
  using LocalResponseTimeout = Field<&Req::psn, 24, 5>;
  using RetryCount = Field<&Req::psn, 29, 3>;
  using PathMtu = Field<&Req::mtu, 0, 4>;
  using RdcExists = Field<&Req::mtu, 4, 1>;
  using RnrRetryCount = Field<&Req::mtu, 5, 3>;
  using MaxCmRetries = Field<&Req::retries, 0, 4>;
  using Srq = Field<&Req::retries, 4, 1>;
  using ExtendedTransport = Field<&Req::retries, 5, 3>;
};
static_assert(sizeof(Req) == 140 && alignof(Req) == 1);

struct Mra {
  be32 local_id;
  be32 remote_id;
  be8 message;
  be8 timeout;

  using Message = Field<&Mra::message, 0, 2>;
  using ServiceTimeout = Field<&Mra::timeout, 0, 5>;
};
static_assert(sizeof(Mra) == 10 && alignof(Mra) == 1);

struct Rej {
  be32 local_id;
  be32 remote_id;
  be8 message;
  be8 info;
  be16 reason;
  AdditionalInfo additional;

  using Message = Field<&Rej::message, 0, 2>;
  using InfoLength = Field<&Rej::info, 0, 7>;
};
static_assert(sizeof(Rej) == 84 && alignof(Rej) == 1);

struct Rep {
  be32 local_id;
  be32 remote_id;
  be32 local_qkey;
  be32 qpn;
  be32 eecn;
  be32 psn;
  be8 responder_resources;
  be8 initiator_depth;
  be8 delay;
  be8 retries;
  be64 local_ca_guid;

  using LocalQpn = Field<&Rep::qpn, 0, 24>;
  using LocalEecn = Field<&Rep::eecn, 0, 24>;
  using StartingPsn = Field<&Rep::psn, 0, 24>;
  using TargetAckDelay = Field<&Rep::delay, 0, 5>;
  using FailoverAccepted = Field<&Rep::delay, 5, 2>;
  using FlowControl = Field<&Rep::delay, 7, 1>;
  using RnrRetryCount = Field<&Rep::retries, 0, 3>;
  using Srq = Field<&Rep::retries, 3, 1>;
};
static_assert(sizeof(Rep) == 36 && alignof(Rep) == 1);

/// RTU and DREP.
struct Ids {
  be32 local_id;
  be32 remote_id;
};
static_assert(sizeof(Ids) == 8 && alignof(Ids) == 1);

struct Dreq {
  be32 local_id;
  be32 remote_id;
  be32 qpn;

  using RemoteQpn = Field<&Dreq::qpn, 0, 24>;
};
static_assert(sizeof(Dreq) == 12 && alignof(Dreq) == 1);

struct SidrReq {
  be32 request_id;
  be16 pkey;
  be16 reserved;
  be64 service_id;
};
static_assert(sizeof(SidrReq) == 16 && alignof(SidrReq) == 1);

struct SidrRep {
  be32 request_id;
  be8 status;
  be8 info_length;
  be16 reserved;
  be32 qpn;
  be64 service_id;
  be32 qkey;
  AdditionalInfo additional;

  using RemoteQpn = Field<&SidrRep::qpn, 0, 24>;
};
static_assert(sizeof(SidrRep) == 96 && alignof(SidrRep) == 1);

/// An alternate path to load; of its fields only what an answer needs has a name.
struct Lap {
  be32 local_id;
  be32 remote_id;
  be32 reserved;
  be32 qpn;
  std::array<be8, 48> path;

  using RemoteQpn = Field<&Lap::qpn, 0, 24>;
  using RemoteResponseTimeout = Field<&Lap::qpn, 24, 5>;
};
static_assert(sizeof(Lap) == 64 && alignof(Lap) == 1);

struct Apr {
  be32 local_id;
  be32 remote_id;
  be8 info_length;
  be8 status;
  be16 reserved;
  AdditionalInfo additional;
};
static_assert(sizeof(Apr) == 84 && alignof(Apr) == 1);

/// What the RDMA CM puts in front of the private data of REQ and SIDR_REQ (annex A11).
struct Cma {
  be8 version;
  be8 ip;
  be16 port;
  Gid source;
  Gid destination;

  using Major = Field<&Cma::version, 0, 4>;
  using Minor = Field<&Cma::version, 4, 4>;
  using IpVersion = Field<&Cma::ip, 0, 4>;
};
static_assert(sizeof(Cma) == 36 && alignof(Cma) == 1);

template <class Layout>
inline constexpr std::size_t kPrivateBytes = kMadPayloadBytes - sizeof(Layout);

}  // namespace airdma::wire::cm_layout
