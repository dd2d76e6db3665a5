// SPDX-License-Identifier: MIT
#include "wire/ib_cm.h"

#include <algorithm>
#include <cstring>
#include <type_traits>

#include "wire/ib_cm_layout.h"
#include "wire/layout.h"

namespace airdma::wire {
namespace {

static_assert(cm_layout::kPrivateBytes<cm_layout::Req> == kReqPrivateBytes);
static_assert(cm_layout::kPrivateBytes<cm_layout::Mra> == kMraPrivateBytes);
static_assert(cm_layout::kPrivateBytes<cm_layout::Rej> == kRejPrivateBytes);
static_assert(cm_layout::kPrivateBytes<cm_layout::Rep> == kRepPrivateBytes);
static_assert(cm_layout::kPrivateBytes<cm_layout::Ids> == kRtuPrivateBytes);
static_assert(cm_layout::kPrivateBytes<cm_layout::Dreq> == kDreqPrivateBytes);
static_assert(cm_layout::kPrivateBytes<cm_layout::Ids> == kDrepPrivateBytes);
static_assert(cm_layout::kPrivateBytes<cm_layout::SidrReq> == kSidrReqPrivateBytes);
static_assert(cm_layout::kPrivateBytes<cm_layout::SidrRep> == kSidrRepPrivateBytes);
static_assert(cm_layout::kPrivateBytes<cm_layout::Lap> == kLapPrivateBytes);
static_assert(cm_layout::kPrivateBytes<cm_layout::Apr> == kAprPrivateBytes);
static_assert(sizeof(cm_layout::AdditionalInfo) == kAdditionalInfoBytes);
static_assert(sizeof(cm_layout::Cma) == kCmaHeaderBytes);

constexpr CmAttribute kFirstAttribute = CmAttribute::kReq;

// How many bits of a transport are the service type; the rest is its extension.
constexpr unsigned kTransportTypeBits = 2;

/// The layout at the start of a payload of the right length.
template <class Layout>
Layout layout_in(Bytes payload) {
  return load<Layout>(payload).value_or(Layout{});
}

GidBytes bytes_of(const cm_layout::Gid& gid) {
  GidBytes bytes;
  std::ranges::transform(gid, bytes.begin(), &be8::get);
  return bytes;
}

cm_layout::Gid layout_of(const GidBytes& bytes) {
  cm_layout::Gid gid;
  std::ranges::copy(bytes, gid.begin());
  return gid;
}

/// Additional information is the end of its layout.
Bytes additional_in(Bytes payload, std::size_t layout_bytes, std::size_t length) {
  return payload.subspan(layout_bytes - kAdditionalInfoBytes, length);
}

bool put_additional(cm_layout::AdditionalInfo& out, Bytes additional) {
  if (additional.size() > out.size()) return false;
  std::ranges::transform(additional, out.begin(), std::to_integer<std::uint8_t>);
  return true;
}

/// The layout and the private data behind it; false when that is too long.
template <class Layout>
bool put_payload(MutableBytes payload, const Layout& layout, Bytes private_data) {
  const std::size_t at = store(payload, layout);
  if (private_data.size() > payload.size() - at) return false;
  std::ranges::copy(private_data, payload.subspan(at).begin());
  return true;
}

// Paths.

CmPath path_of(const cm_layout::Path& path) {
  using Layout = cm_layout::Path;
  return {
      .local_lid = path.local_lid.get(),
      .remote_lid = path.remote_lid.get(),
      .local_gid = bytes_of(path.local_gid),
      .remote_gid = bytes_of(path.remote_gid),
      .flow_label = Layout::FlowLabel::get(path),
      .packet_rate = static_cast<std::uint8_t>(Layout::PacketRate::get(path)),
      .traffic_class = path.traffic_class.get(),
      .hop_limit = path.hop_limit.get(),
      .service_level = Layout::ServiceLevel::get(path),
      .subnet_local = Layout::SubnetLocal::get(path) != 0,
      .ack_timeout = Layout::AckTimeout::get(path),
  };
}

cm_layout::Path layout_of(const CmPath& path) {
  using Layout = cm_layout::Path;
  Layout out{};
  out.local_lid = path.local_lid;
  out.remote_lid = path.remote_lid;
  out.local_gid = layout_of(path.local_gid);
  out.remote_gid = layout_of(path.remote_gid);
  Layout::FlowLabel::set(out, path.flow_label);
  Layout::PacketRate::set(out, path.packet_rate);
  out.traffic_class = path.traffic_class;
  out.hop_limit = path.hop_limit;
  Layout::ServiceLevel::set(out, path.service_level);
  Layout::SubnetLocal::set(out, path.subnet_local);
  Layout::AckTimeout::set(out, path.ack_timeout);
  return out;
}

// Parsing: the payload has kMadPayloadBytes.

using Parsed = std::expected<CmMessage, CmError>;

CmTransport transport_of(const cm_layout::Req& req) {
  using Layout = cm_layout::Req;
  return static_cast<CmTransport>(Layout::TransportType::get(req) |
                                  Layout::ExtendedTransport::get(req) << kTransportTypeBits);
}

Parsed parse_req(Bytes payload) {
  using Layout = cm_layout::Req;
  const auto in = layout_in<Layout>(payload);
  CmReq req;
  req.local_id = CommunicationId{in.local_id.get()};
  req.service_id = ServiceId{in.service_id.get()};
  req.local_ca_guid = in.local_ca_guid.get();
  req.local_qkey = Qkey{in.local_qkey.get()};
  req.local_qpn = Qpn{Layout::LocalQpn::get(in)};
  req.responder_resources = static_cast<std::uint8_t>(Layout::ResponderResources::get(in));
  req.initiator_depth = static_cast<std::uint8_t>(Layout::InitiatorDepth::get(in));
  req.local_eecn = Layout::LocalEecn::get(in);
  req.remote_eecn = Layout::RemoteEecn::get(in);
  req.remote_response_timeout = static_cast<std::uint8_t>(Layout::RemoteResponseTimeout::get(in));
  req.local_response_timeout = static_cast<std::uint8_t>(Layout::LocalResponseTimeout::get(in));
  req.transport = transport_of(in);
  req.flow_control = Layout::FlowControl::get(in) != 0;
  req.starting_psn = Psn{Layout::StartingPsn::get(in)};
  req.retry_count = static_cast<std::uint8_t>(Layout::RetryCount::get(in));
  req.pkey = Pkey{in.pkey.get()};
  req.path_mtu = Layout::PathMtu::get(in);
  req.rdc_exists = Layout::RdcExists::get(in) != 0;
  req.rnr_retry_count = Layout::RnrRetryCount::get(in);
  req.max_cm_retries = Layout::MaxCmRetries::get(in);
  req.srq = Layout::Srq::get(in) != 0;
  req.primary = path_of(in.primary);
  req.alternate = path_of(in.alternate);
  req.private_data = skip(payload, sizeof in);
  return req;
}

Parsed parse_mra(Bytes payload) {
  using Layout = cm_layout::Mra;
  const auto in = layout_in<Layout>(payload);
  return CmMra{.local_id = CommunicationId{in.local_id.get()},
               .remote_id = CommunicationId{in.remote_id.get()},
               .answered = static_cast<CmAnswered>(Layout::Message::get(in)),
               .service_timeout = Layout::ServiceTimeout::get(in),
               .private_data = skip(payload, sizeof in)};
}

Parsed parse_rej(Bytes payload) {
  using Layout = cm_layout::Rej;
  const auto in = layout_in<Layout>(payload);
  const std::size_t info_bytes = Layout::InfoLength::get(in);
  if (info_bytes > kAdditionalInfoBytes) return std::unexpected(CmError::kInfoTooLong);
  return CmRej{.local_id = CommunicationId{in.local_id.get()},
               .remote_id = CommunicationId{in.remote_id.get()},
               .answered = static_cast<CmAnswered>(Layout::Message::get(in)),
               .reason = static_cast<CmRejectReason>(in.reason.get()),
               .additional = additional_in(payload, sizeof in, info_bytes),
               .private_data = skip(payload, sizeof in)};
}

Parsed parse_rep(Bytes payload) {
  using Layout = cm_layout::Rep;
  const auto in = layout_in<Layout>(payload);
  CmRep rep;
  rep.local_id = CommunicationId{in.local_id.get()};
  rep.remote_id = CommunicationId{in.remote_id.get()};
  rep.local_qkey = Qkey{in.local_qkey.get()};
  rep.local_qpn = Qpn{Layout::LocalQpn::get(in)};
  rep.local_eecn = Layout::LocalEecn::get(in);
  rep.starting_psn = Psn{Layout::StartingPsn::get(in)};
  rep.responder_resources = in.responder_resources.get();
  rep.initiator_depth = in.initiator_depth.get();
  rep.target_ack_delay = Layout::TargetAckDelay::get(in);
  rep.failover_accepted = Layout::FailoverAccepted::get(in);
  rep.flow_control = Layout::FlowControl::get(in) != 0;
  rep.rnr_retry_count = Layout::RnrRetryCount::get(in);
  rep.srq = Layout::Srq::get(in) != 0;
  rep.local_ca_guid = in.local_ca_guid.get();
  rep.private_data = skip(payload, sizeof in);
  return rep;
}

/// RTU or DREP.
template <class Message>
Message parse_ids(Bytes payload) {
  const auto in = layout_in<cm_layout::Ids>(payload);
  return Message{.local_id = CommunicationId{in.local_id.get()},
                 .remote_id = CommunicationId{in.remote_id.get()},
                 .private_data = skip(payload, sizeof in)};
}

Parsed parse_dreq(Bytes payload) {
  const auto in = layout_in<cm_layout::Dreq>(payload);
  return CmDreq{.local_id = CommunicationId{in.local_id.get()},
                .remote_id = CommunicationId{in.remote_id.get()},
                .remote_qpn = Qpn{cm_layout::Dreq::RemoteQpn::get(in)},
                .private_data = skip(payload, sizeof in)};
}

Parsed parse_sidr_req(Bytes payload) {
  const auto in = layout_in<cm_layout::SidrReq>(payload);
  return CmSidrReq{.request_id = CommunicationId{in.request_id.get()},
                   .pkey = Pkey{in.pkey.get()},
                   .service_id = ServiceId{in.service_id.get()},
                   .private_data = skip(payload, sizeof in)};
}

Parsed parse_sidr_rep(Bytes payload) {
  using Layout = cm_layout::SidrRep;
  const auto in = layout_in<Layout>(payload);
  const std::size_t info_bytes = in.info_length.get();
  if (info_bytes > kAdditionalInfoBytes) return std::unexpected(CmError::kInfoTooLong);
  return CmSidrRep{.request_id = CommunicationId{in.request_id.get()},
                   .status = static_cast<CmSidrStatus>(in.status.get()),
                   .qpn = Qpn{Layout::RemoteQpn::get(in)},
                   .service_id = ServiceId{in.service_id.get()},
                   .qkey = Qkey{in.qkey.get()},
                   .additional = additional_in(payload, sizeof in, info_bytes),
                   .private_data = skip(payload, sizeof in)};
}

Parsed parse_lap(Bytes payload) {
  using Layout = cm_layout::Lap;
  const auto in = layout_in<Layout>(payload);
  return CmLap{
      .local_id = CommunicationId{in.local_id.get()},
      .remote_id = CommunicationId{in.remote_id.get()},
      .remote_qpn = Qpn{Layout::RemoteQpn::get(in)},
      .remote_response_timeout = static_cast<std::uint8_t>(Layout::RemoteResponseTimeout::get(in)),
      .private_data = skip(payload, sizeof in)};
}

Parsed parse_apr(Bytes payload) {
  const auto in = layout_in<cm_layout::Apr>(payload);
  const std::size_t info_bytes = in.info_length.get();
  if (info_bytes > kAdditionalInfoBytes) return std::unexpected(CmError::kInfoTooLong);
  return CmApr{.local_id = CommunicationId{in.local_id.get()},
               .remote_id = CommunicationId{in.remote_id.get()},
               .status = static_cast<CmAprStatus>(in.status.get()),
               .additional = additional_in(payload, sizeof in, info_bytes),
               .private_data = skip(payload, sizeof in)};
}

Parsed parse_message(CmAttribute attribute, Bytes payload) {
  switch (attribute) {
    case CmAttribute::kReq:
      return parse_req(payload);
    case CmAttribute::kMra:
      return parse_mra(payload);
    case CmAttribute::kRej:
      return parse_rej(payload);
    case CmAttribute::kRep:
      return parse_rep(payload);
    case CmAttribute::kRtu:
      return parse_ids<CmRtu>(payload);
    case CmAttribute::kDreq:
      return parse_dreq(payload);
    case CmAttribute::kDrep:
      return parse_ids<CmDrep>(payload);
    case CmAttribute::kSidrReq:
      return parse_sidr_req(payload);
    case CmAttribute::kSidrRep:
      return parse_sidr_rep(payload);
    case CmAttribute::kLap:
      return parse_lap(payload);
    case CmAttribute::kApr:
      return parse_apr(payload);
  }
  return std::unexpected(CmError::kUnknownAttribute);
}

// Emission: the payload has kMadPayloadBytes, all zeroes.

bool put(MutableBytes payload, const CmReq& req) {
  using Layout = cm_layout::Req;
  Layout out{};
  out.local_id = req.local_id.value();
  out.service_id = req.service_id.value();
  out.local_ca_guid = req.local_ca_guid;
  out.local_qkey = req.local_qkey.value();
  Layout::LocalQpn::set(out, req.local_qpn.value());
  Layout::ResponderResources::set(out, req.responder_resources);
  Layout::LocalEecn::set(out, req.local_eecn);
  Layout::InitiatorDepth::set(out, req.initiator_depth);
  Layout::RemoteEecn::set(out, req.remote_eecn);
  Layout::RemoteResponseTimeout::set(out, req.remote_response_timeout);
  const auto transport = static_cast<std::uint8_t>(req.transport);
  Layout::TransportType::set(out, transport);
  Layout::ExtendedTransport::set(out, static_cast<std::uint8_t>(transport >> kTransportTypeBits));
  Layout::FlowControl::set(out, req.flow_control);
  Layout::StartingPsn::set(out, req.starting_psn.value());
  Layout::LocalResponseTimeout::set(out, req.local_response_timeout);
  Layout::RetryCount::set(out, req.retry_count);
  out.pkey = req.pkey.value();
  Layout::PathMtu::set(out, req.path_mtu);
  Layout::RdcExists::set(out, req.rdc_exists);
  Layout::RnrRetryCount::set(out, req.rnr_retry_count);
  Layout::MaxCmRetries::set(out, req.max_cm_retries);
  Layout::Srq::set(out, req.srq);
  out.primary = layout_of(req.primary);
  out.alternate = layout_of(req.alternate);
  return put_payload(payload, out, req.private_data);
}

bool put(MutableBytes payload, const CmMra& mra) {
  cm_layout::Mra out{};
  out.local_id = mra.local_id.value();
  out.remote_id = mra.remote_id.value();
  cm_layout::Mra::Message::set(out, static_cast<std::uint8_t>(mra.answered));
  cm_layout::Mra::ServiceTimeout::set(out, mra.service_timeout);
  return put_payload(payload, out, mra.private_data);
}

bool put(MutableBytes payload, const CmRej& rej) {
  cm_layout::Rej out{};
  out.local_id = rej.local_id.value();
  out.remote_id = rej.remote_id.value();
  cm_layout::Rej::Message::set(out, static_cast<std::uint8_t>(rej.answered));
  cm_layout::Rej::InfoLength::set(out, static_cast<std::uint8_t>(rej.additional.size()));
  out.reason = static_cast<std::uint16_t>(rej.reason);
  return put_additional(out.additional, rej.additional) &&
         put_payload(payload, out, rej.private_data);
}

bool put(MutableBytes payload, const CmRep& rep) {
  using Layout = cm_layout::Rep;
  Layout out{};
  out.local_id = rep.local_id.value();
  out.remote_id = rep.remote_id.value();
  out.local_qkey = rep.local_qkey.value();
  Layout::LocalQpn::set(out, rep.local_qpn.value());
  Layout::LocalEecn::set(out, rep.local_eecn);
  Layout::StartingPsn::set(out, rep.starting_psn.value());
  out.responder_resources = rep.responder_resources;
  out.initiator_depth = rep.initiator_depth;
  Layout::TargetAckDelay::set(out, rep.target_ack_delay);
  Layout::FailoverAccepted::set(out, rep.failover_accepted);
  Layout::FlowControl::set(out, rep.flow_control);
  Layout::RnrRetryCount::set(out, rep.rnr_retry_count);
  Layout::Srq::set(out, rep.srq);
  out.local_ca_guid = rep.local_ca_guid;
  return put_payload(payload, out, rep.private_data);
}

bool put_ids(MutableBytes payload, CommunicationId local, CommunicationId remote,
             Bytes private_data) {
  cm_layout::Ids out{};
  out.local_id = local.value();
  out.remote_id = remote.value();
  return put_payload(payload, out, private_data);
}

bool put(MutableBytes payload, const CmRtu& rtu) {
  return put_ids(payload, rtu.local_id, rtu.remote_id, rtu.private_data);
}

bool put(MutableBytes payload, const CmDrep& drep) {
  return put_ids(payload, drep.local_id, drep.remote_id, drep.private_data);
}

bool put(MutableBytes payload, const CmDreq& dreq) {
  cm_layout::Dreq out{};
  out.local_id = dreq.local_id.value();
  out.remote_id = dreq.remote_id.value();
  cm_layout::Dreq::RemoteQpn::set(out, dreq.remote_qpn.value());
  return put_payload(payload, out, dreq.private_data);
}

bool put(MutableBytes payload, const CmSidrReq& req) {
  cm_layout::SidrReq out{};
  out.request_id = req.request_id.value();
  out.pkey = req.pkey.value();
  out.service_id = req.service_id.value();
  return put_payload(payload, out, req.private_data);
}

bool put(MutableBytes payload, const CmSidrRep& rep) {
  cm_layout::SidrRep out{};
  out.request_id = rep.request_id.value();
  out.status = static_cast<std::uint8_t>(rep.status);
  out.info_length = static_cast<std::uint8_t>(rep.additional.size());
  cm_layout::SidrRep::RemoteQpn::set(out, rep.qpn.value());
  out.service_id = rep.service_id.value();
  out.qkey = rep.qkey.value();
  return put_additional(out.additional, rep.additional) &&
         put_payload(payload, out, rep.private_data);
}

bool put(MutableBytes payload, const CmLap& lap) {
  cm_layout::Lap out{};
  out.local_id = lap.local_id.value();
  out.remote_id = lap.remote_id.value();
  cm_layout::Lap::RemoteQpn::set(out, lap.remote_qpn.value());
  cm_layout::Lap::RemoteResponseTimeout::set(out, lap.remote_response_timeout);
  return put_payload(payload, out, lap.private_data);
}

bool put(MutableBytes payload, const CmApr& apr) {
  cm_layout::Apr out{};
  out.local_id = apr.local_id.value();
  out.remote_id = apr.remote_id.value();
  out.info_length = static_cast<std::uint8_t>(apr.additional.size());
  out.status = static_cast<std::uint8_t>(apr.status);
  return put_additional(out.additional, apr.additional) &&
         put_payload(payload, out, apr.private_data);
}

bool is_v4(const GidBytes& address) {
  constexpr std::uint8_t kMapped[12] = {0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff};
  return std::memcmp(address.data(), kMapped, sizeof kMapped) == 0;
}

/// The kernel leaves what is before an IPv4 address undefined; only its four bytes count.
GidBytes address_of(const cm_layout::Gid& gid, bool v4) {
  GidBytes bytes = bytes_of(gid);
  if (!v4) return bytes;
  std::fill_n(bytes.begin(), 12, std::uint8_t{0});
  bytes[10] = bytes[11] = 0xff;
  return bytes;
}

cm_layout::Gid address_layout(GidBytes bytes, bool v4) {
  if (v4) std::fill_n(bytes.begin(), 12, std::uint8_t{0});
  return layout_of(bytes);
}

constexpr std::uint8_t kIpv4 = 4;
constexpr std::uint8_t kIpv6 = 6;

}  // namespace

bool operator==(const CmMad& a, const CmMad& b) {
  MadBuffer first;
  MadBuffer second;
  return emit_cm(first, a) && emit_cm(second, b) && first == second;
}

std::expected<CmMad, CmError> parse_cm(Bytes mad) {
  if (mad.size() != kMadBytes) return std::unexpected(CmError::kWrongLength);
  const auto header = layout_in<MadHeader>(mad);
  if (header.base_version.get() != kMadBaseVersion ||
      header.management_class.get() != kMadClassCm || header.method.get() != kMadMethodSend) {
    return std::unexpected(CmError::kNotCm);
  }
  if (header.class_version.get() != kMadCmClassVersion) {
    return std::unexpected(CmError::kWrongClassVersion);
  }
  auto message = parse_message(static_cast<CmAttribute>(header.attribute_id.get()),
                               mad.subspan(sizeof header));
  if (!message) return std::unexpected(message.error());
  return CmMad{.transaction_id = header.transaction_id.get(), .message = *message};
}

bool emit_cm(MadBuffer& out, const CmMad& mad) {
  MadHeader header{};
  header.base_version = kMadBaseVersion;
  header.management_class = kMadClassCm;
  header.class_version = kMadCmClassVersion;
  header.method = kMadMethodSend;
  header.transaction_id = mad.transaction_id;
  header.attribute_id =
      static_cast<std::uint16_t>(static_cast<std::size_t>(kFirstAttribute) + mad.message.index());
  out.fill(std::byte{0});
  const MutableBytes bytes(out);
  const MutableBytes payload = bytes.subspan(store(bytes, header));
  return std::visit([&](const auto& message) { return put(payload, message); }, mad.message);
}

std::optional<CmaHeader> parse_cma(Bytes private_data) {
  using Layout = cm_layout::Cma;
  const auto in = load<Layout>(private_data);
  if (!in || in->version.get() != 0) return std::nullopt;
  const std::uint8_t ip_version = Layout::IpVersion::get(*in);
  if (ip_version != kIpv4 && ip_version != kIpv6) return std::nullopt;
  const bool v4 = ip_version == kIpv4;
  return CmaHeader{.source_port = in->port.get(),
                   .source = address_of(in->source, v4),
                   .destination = address_of(in->destination, v4)};
}

void emit_cma(std::array<std::byte, kCmaHeaderBytes>& out, const CmaHeader& header) {
  const bool v4 = is_v4(header.source);
  cm_layout::Cma layout{};
  cm_layout::Cma::IpVersion::set(layout, v4 ? kIpv4 : kIpv6);
  layout.port = header.source_port;
  layout.source = address_layout(header.source, v4);
  layout.destination = address_layout(header.destination, v4);
  std::memcpy(out.data(), &layout, sizeof layout);
}

}  // namespace airdma::wire
