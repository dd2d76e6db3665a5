// SPDX-License-Identifier: MIT
#include "runtime/mad_route.h"

#include <cstring>

#include "engine/cm/ib_types.h"
#include "wire/ib_cm.h"
#include "wire/ib_cm_layout.h"
#include "wire/mad.h"

namespace airdma::runtime {
namespace {

using wire::CmAttribute;

// Annex A11: the service ids of connections over IP begin with these bytes.
constexpr std::uint64_t kServicePrefix = 0x0000000001;

template <class Layout>
Layout read(Bytes mad) {
  Layout layout;
  std::memcpy(&layout, mad.data() + sizeof(wire::MadHeader), sizeof layout);
  return layout;
}

std::optional<MadRoute> to_service(std::uint64_t service_id) {
  if (service_id >> 24 != kServicePrefix) return std::nullopt;
  return MadRoute{.service = static_cast<std::uint32_t>(service_id), .nameless = false, .block = 0};
}

MadRoute to_connection(std::uint32_t id) {
  const std::uint32_t block = ibcm::block_of(wire::CommunicationId(id));
  return {.service = std::nullopt, .nameless = false, .block = block};
}

}  // namespace

std::optional<MadRoute> route_mad(Bytes mad) {
  if (mad.size() < wire::kMadBytes) return std::nullopt;
  wire::MadHeader header;
  std::memcpy(&header, mad.data(), sizeof header);
  if (header.management_class.get() != wire::kMadClassCm) return std::nullopt;
  switch (static_cast<CmAttribute>(header.attribute_id.get())) {
    case CmAttribute::kReq:
      return to_service(read<wire::cm_layout::Req>(mad).service_id.get());
    case CmAttribute::kSidrReq:
      return to_service(read<wire::cm_layout::SidrReq>(mad).service_id.get());
    case CmAttribute::kSidrRep:
      return to_connection(read<wire::cm_layout::SidrRep>(mad).request_id.get());
    case CmAttribute::kRej: {
      const auto id = read<wire::cm_layout::Ids>(mad).remote_id.get();
      if (id == 0) return MadRoute{.service = std::nullopt, .nameless = true, .block = 0};
      return to_connection(id);
    }
    default:
      // All others begin with two ids: the sender's and the receiver's.
      return to_connection(read<wire::cm_layout::Ids>(mad).remote_id.get());
  }
}

}  // namespace airdma::runtime
