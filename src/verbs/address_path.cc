// SPDX-License-Identifier: MIT
#include "verbs/address_path.h"

#include <algorithm>
#include <cerrno>

#include "runtime/roce_port.h"
#include "verbs/gid_table.h"

namespace airdma::verbs {
namespace {

constexpr std::uint32_t kFlowLabelMask = 0xfffff;

}  // namespace

model::Gid gid_of(const ibv_gid& gid) {
  model::Gid result;
  std::copy(std::begin(gid.raw), std::end(gid.raw), result.bytes.begin());
  return result;
}

model::Gid group_of(const ibv_gid& gid) {
  model::Gid result = gid_of(gid);
  const auto zero = [](std::uint8_t byte) { return byte == 0; };
  const auto& bytes = result.bytes;
  if (bytes[0] == 0xff && std::all_of(bytes.begin() + 2, bytes.begin() + 10, zero) &&
      bytes[10] == 0xff && bytes[11] == 0xff) {
    result.bytes[0] = result.bytes[1] = 0;
  }
  return result;
}

Result<model::AddressVector> resolve_path(const Device& device, const ibv_ah_attr& path) {
  if (path.port_num != 1 || path.is_global == 0) return fail(EINVAL);
  const auto source = source_gid(device, path.grh.sgid_index);
  if (!source) return std::unexpected(source.error());
  model::AddressVector vector{
      .source = source->gid,
      .destination = source->gid.is_v4() ? group_of(path.grh.dgid) : gid_of(path.grh.dgid),
      .interface_index = source->interface_index,
      .flow_label = path.grh.flow_label & kFlowLabelMask,
      .traffic_class = path.grh.traffic_class,
      .hop_limit = path.grh.hop_limit,
      .service_level = static_cast<std::uint8_t>(path.sl & 7)};
  if (vector.destination == model::Gid{}) return fail(EINVAL);
  if (vector.destination.is_v4() != vector.source.is_v4()) return fail(EINVAL);
  if (Status way = runtime::RocePort::get().reachable(vector); !way) {
    return std::unexpected(way.error());
  }
  return vector;
}

}  // namespace airdma::verbs
