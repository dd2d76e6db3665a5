// SPDX-License-Identifier: MIT
// Address handles: what a datagram needs to reach its receiver, and the way back to a sender.
#include <endian.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <mutex>
#include <optional>
#include <span>

#include "verbs/address_path.h"
#include "verbs/api.h"
#include "verbs/gid_table.h"
#include "verbs/limits.h"
#include "verbs/state.h"

namespace airdma::verbs {
namespace {

/// What a received datagram's first 40 bytes say (annex A17, 17.4.5.2).
struct ReceivedHeader {
  model::Gid source;
  model::Gid destination;
  std::uint32_t flow_label = 0;
  std::uint8_t traffic_class = 0;
  std::uint8_t hop_limit = 0;
};

constexpr std::size_t kGrhBytes = 40;
constexpr std::size_t kIpv4Bytes = 20;
constexpr std::uint8_t kIpv4Start = 0x45;
constexpr std::uint8_t kHeaderIsUdp = 17;

bool good_checksum(std::span<const std::uint8_t> header) {
  std::uint32_t sum = 0;
  for (std::size_t i = 0; i < header.size(); i += 2) sum += header[i] * 256u + header[i + 1];
  while (sum >> 16 != 0) sum = (sum & 0xffff) + (sum >> 16);
  return sum == 0xffff;
}

ReceivedHeader read_ipv4(std::span<const std::uint8_t> ip) {
  const auto address = [&](std::size_t at) {
    return model::Gid::from_v4({ip[at], ip[at + 1], ip[at + 2], ip[at + 3]});
  };
  return {.source = address(12),
          .destination = address(16),
          .flow_label = 0,
          .traffic_class = ip[1],
          .hop_limit = ip[8]};
}

ReceivedHeader read_ipv6(std::span<const std::uint8_t, kGrhBytes> bytes) {
  ibv_grh grh;
  std::memcpy(&grh, bytes.data(), sizeof grh);
  const std::uint32_t word = be32toh(grh.version_tclass_flow);
  return {.source = gid_of(grh.sgid),
          .destination = gid_of(grh.dgid),
          .flow_label = word & 0xfffff,
          .traffic_class = static_cast<std::uint8_t>(word >> 20),
          .hop_limit = grh.hop_limit};
}

/// Read once: the next datagram may come into the same buffer meanwhile. The first 20 bytes of one
/// that IPv4 has filled mean nothing.
std::optional<ReceivedHeader> read_header(const ibv_grh& grh) {
  std::array<std::uint8_t, kGrhBytes> bytes;
  std::memcpy(bytes.data(), &grh, bytes.size());
  const auto ip = std::span(bytes).last<kIpv4Bytes>();
  const bool looks_like_ipv6 = bytes[0] >> 4 == 6;
  const bool ipv4 =
      ip[0] == kIpv4Start && ip[9] == kHeaderIsUdp && (good_checksum(ip) || !looks_like_ipv6);
  if (ipv4) return read_ipv4(ip);
  if (looks_like_ipv6) return read_ipv6(bytes);
  return std::nullopt;
}

/// What came to a group is answered from an address of the group's family.
std::optional<std::uint32_t> index_for_answer(const Device& device, const model::Gid& destination) {
  if (!destination.is_multicast()) return gid_index(device, destination);
  const GidSlots slots = gid_slots(device);
  for (std::uint32_t index = 0; index < slots.size(); ++index) {
    if (slots[index] && slots[index]->is_v4() == destination.is_v4()) return index;
  }
  return std::nullopt;
}

}  // namespace

Result<ibv_ah*> create_ah(ibv_pd* pd_handle, ibv_ah_attr* attr) {
  const Pd* known = find_object(pd_handle);
  if (known == nullptr || attr == nullptr) return fail(EINVAL);
  if (!known->context->device->roce()) return fail(EOPNOTSUPP);
  const auto address = resolve_path(*known->context->device, *attr);
  if (!address) return std::unexpected(address.error());
  State& all = state();
  std::lock_guard lock(all.control);
  Pd* pd = all.pds.find(pd_handle);
  if (pd == nullptr) return fail(EINVAL);
  DeviceUse& use = all.use_of(*pd->context);
  if (use.ahs >= kMaxAddressHandles) return fail(ENOMEM);
  Ah* ah = all.ahs.create();
  if (ah == nullptr) return fail(ENOMEM);
  ++use.ahs;
  ++pd->users;
  ah->pd = pd;
  ah->address = *address;
  ah->pub = {.context = pd->pub.context, .pd = &pd->pub, .handle = ++all.next_handle};
  return &ah->pub;
}

void tear_down(Ah& ah) {
  State& all = state();
  std::lock_guard lock(all.control);
  --ah.pd->users;
  --all.use_of(*ah.pd->context).ahs;
  all.ahs.destroy(&ah);
}

Status destroy_ah(ibv_ah* handle) {
  Ah* ah = find_object(handle);
  if (ah == nullptr) return fail(EINVAL);
  tear_down(*ah);
  return {};
}

Status init_ah_from_wc(ibv_context* handle, uint8_t port_num, ibv_wc* wc, ibv_grh* grh,
                       ibv_ah_attr* attr) {
  const Context* context = find_object(handle);
  if (context == nullptr || wc == nullptr || attr == nullptr || port_num != 1) return fail(EINVAL);
  if (!context->device->roce()) return fail(EOPNOTSUPP);
  if ((wc->wc_flags & IBV_WC_GRH) == 0 || grh == nullptr) return fail(EINVAL);
  const auto header = read_header(*grh);
  if (!header) return fail(EINVAL);
  const auto index = index_for_answer(*context->device, header->destination);
  if (!index) return fail(EINVAL);
  *attr = {};
  std::ranges::copy(header->source.bytes, attr->grh.dgid.raw);
  attr->grh.sgid_index = static_cast<std::uint8_t>(*index);
  attr->grh.flow_label = header->flow_label;
  attr->grh.hop_limit = header->hop_limit;
  attr->grh.traffic_class = header->traffic_class;
  attr->is_global = 1;
  attr->dlid = wc->slid;
  attr->sl = 0;  // the completion's tells IPv4 from IPv6
  attr->src_path_bits = wc->dlid_path_bits;
  attr->port_num = port_num;
  return {};
}

Result<ibv_ah*> create_ah_from_wc(ibv_pd* pd, ibv_wc* wc, ibv_grh* grh, uint8_t port_num) {
  if (find_object(pd) == nullptr) return fail(EINVAL);
  ibv_ah_attr attr{};
  if (Status known = init_ah_from_wc(pd->context, port_num, wc, grh, &attr); !known) {
    return std::unexpected(known.error());
  }
  return create_ah(pd, &attr);
}

}  // namespace airdma::verbs
