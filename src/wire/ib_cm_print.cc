// SPDX-License-Identifier: MIT
#include "wire/ib_cm_print.h"

#include <algorithm>
#include <cstring>
#include <iterator>

#include "wire/text.h"

namespace airdma::wire {
namespace {

bool is_v4(const GidBytes& gid) {
  constexpr std::uint8_t kMapped[12] = {0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff};
  return std::memcmp(gid.data(), kMapped, sizeof kMapped) == 0;
}

void put_gid(Text& text, const GidBytes& gid) {
  if (is_v4(gid)) {
    for (std::size_t i = 12; i < 16; ++i) (i == 12 ? text : text << ".").dec(gid[i]);
    return;
  }
  for (std::size_t i = 0; i < 16; i += 2) {
    (i == 0 ? text : text << ":").bare_hex(static_cast<unsigned>(gid[i] << 8 | gid[i + 1]));
  }
}

void put_ids(Text& text, CommunicationId local, CommunicationId remote) {
  (text << " id=").hex(local.value(), 8);
  (text << " peer=").hex(remote.value(), 8);
}

void put_private(Text& text, Bytes data) {
  while (!data.empty() && data.back() == std::byte{0}) data = data.first(data.size() - 1);
  (text << " private=").dec(data.size());
}

void put_info(Text& text, Bytes info) {
  if (!info.empty()) (text << " info=").dec(info.size());
}

std::string_view name_of(CmTransport transport) {
  switch (transport) {
    case CmTransport::kRc:
      return "RC";
    case CmTransport::kUc:
      return "UC";
    case CmTransport::kRd:
      return "RD";
    case CmTransport::kXrc:
      return "XRC";
  }
  return "unknown transport";
}

std::string_view name_of(CmAnswered answered) {
  switch (answered) {
    case CmAnswered::kReq:
      return "REQ";
    case CmAnswered::kRep:
      return "REP";
    case CmAnswered::kOther:
      return "OTHER";
  }
  return "UNKNOWN";
}

void put_path(Text& text, const CmPath& path) {
  put_gid(text << " path=", path.local_gid);
  put_gid(text << ">", path.remote_gid);
  (text << " flow=").hex(path.flow_label);
  (text << " tc=").dec(path.traffic_class);
  (text << " hops=").dec(path.hop_limit);
  (text << " sl=").dec(path.service_level);
  (text << " ack_timeout=").dec(path.ack_timeout);
}

void put(Text& text, const CmReq& req) {
  (text << "REQ id=").hex(req.local_id.value(), 8);
  (text << " service=").hex(req.service_id.value());
  (text << " qpn=").hex(req.local_qpn.value());
  (text << " psn=").hex(req.starting_psn.value());
  text << " " << name_of(req.transport);
  (text << " mtu=").dec(req.path_mtu);
  (text << " resources=").dec(req.responder_resources);
  (text << " depth=").dec(req.initiator_depth);
  (text << " retry=").dec(req.retry_count);
  (text << " rnr_retry=").dec(req.rnr_retry_count);
  text.flag(" srq=", req.srq);
  (text << " timeouts=").dec(req.local_response_timeout);
  (text << "/").dec(req.remote_response_timeout);
  (text << " cm_retries=").dec(req.max_cm_retries);
  (text << " pkey=").hex(req.pkey.value(), 4);
  put_path(text, req.primary);
  put_private(text, req.private_data);
}

void put(Text& text, const CmMra& mra) {
  put_ids(text << "MRA", mra.local_id, mra.remote_id);
  text << " of=" << name_of(mra.answered);
  (text << " timeout=").dec(mra.service_timeout);
  put_private(text, mra.private_data);
}

void put(Text& text, const CmRej& rej) {
  put_ids(text << "REJ", rej.local_id, rej.remote_id);
  text << " of=" << name_of(rej.answered);
  (text << " reason=").dec(static_cast<std::uint16_t>(rej.reason));
  text << " (" << name_of(rej.reason) << ")";
  put_info(text, rej.additional);
  put_private(text, rej.private_data);
}

void put(Text& text, const CmRep& rep) {
  put_ids(text << "REP", rep.local_id, rep.remote_id);
  (text << " qpn=").hex(rep.local_qpn.value());
  (text << " psn=").hex(rep.starting_psn.value());
  (text << " resources=").dec(rep.responder_resources);
  (text << " depth=").dec(rep.initiator_depth);
  (text << " rnr_retry=").dec(rep.rnr_retry_count);
  text.flag(" srq=", rep.srq);
  (text << " ack_delay=").dec(rep.target_ack_delay);
  put_private(text, rep.private_data);
}

void put(Text& text, const CmRtu& rtu) {
  put_ids(text << "RTU", rtu.local_id, rtu.remote_id);
  put_private(text, rtu.private_data);
}

void put(Text& text, const CmDreq& dreq) {
  put_ids(text << "DREQ", dreq.local_id, dreq.remote_id);
  (text << " qpn=").hex(dreq.remote_qpn.value());
  put_private(text, dreq.private_data);
}

void put(Text& text, const CmDrep& drep) {
  put_ids(text << "DREP", drep.local_id, drep.remote_id);
  put_private(text, drep.private_data);
}

void put(Text& text, const CmSidrReq& req) {
  (text << "SIDR_REQ id=").hex(req.request_id.value(), 8);
  (text << " service=").hex(req.service_id.value());
  (text << " pkey=").hex(req.pkey.value(), 4);
  put_private(text, req.private_data);
}

void put(Text& text, const CmSidrRep& rep) {
  (text << "SIDR_REP id=").hex(rep.request_id.value(), 8);
  (text << " status=").dec(static_cast<std::uint8_t>(rep.status));
  text << " (" << name_of(rep.status) << ")";
  (text << " qpn=").hex(rep.qpn.value());
  (text << " service=").hex(rep.service_id.value());
  (text << " qkey=").hex(rep.qkey.value());
  put_info(text, rep.additional);
  put_private(text, rep.private_data);
}

void put(Text& text, const CmLap& lap) {
  put_ids(text << "LAP", lap.local_id, lap.remote_id);
  (text << " qpn=").hex(lap.remote_qpn.value());
  put_private(text, lap.private_data);
}

void put(Text& text, const CmApr& apr) {
  put_ids(text << "APR", apr.local_id, apr.remote_id);
  (text << " status=").dec(static_cast<std::uint8_t>(apr.status));
  put_info(text, apr.additional);
  put_private(text, apr.private_data);
}

std::string_view name_of(CmError error) {
  switch (error) {
    case CmError::kWrongLength:
      return "not the length of a management datagram";
    case CmError::kNotCm:
      return "a management datagram of another class";
    case CmError::kWrongClassVersion:
      return "a communication management datagram of another version";
    case CmError::kUnknownAttribute:
      return "a communication management datagram of unknown kind";
    case CmError::kInfoTooLong:
      return "additional information longer than its field";
  }
  return "unknown";
}

struct ReasonName {
  CmRejectReason reason;
  std::string_view name;
};

constexpr ReasonName kReasonNames[] = {
    {CmRejectReason::kNoQp, "no QP available"},
    {CmRejectReason::kNoEec, "no EEC available"},
    {CmRejectReason::kNoResources, "no resources available"},
    {CmRejectReason::kTimeout, "timeout"},
    {CmRejectReason::kUnsupportedRequest, "unsupported request"},
    {CmRejectReason::kInvalidCommunicationId, "invalid communication id"},
    {CmRejectReason::kInvalidCommunicationInstance, "invalid communication instance"},
    {CmRejectReason::kInvalidServiceId, "invalid service id"},
    {CmRejectReason::kInvalidTransportType, "invalid transport service type"},
    {CmRejectReason::kStaleConnection, "stale connection"},
    {CmRejectReason::kNoRdc, "RDC does not exist"},
    {CmRejectReason::kPrimaryGid, "primary GID refused"},
    {CmRejectReason::kPrimaryLid, "primary LID refused"},
    {CmRejectReason::kPrimaryServiceLevel, "invalid primary service level"},
    {CmRejectReason::kPrimaryTrafficClass, "invalid primary traffic class"},
    {CmRejectReason::kPrimaryHopLimit, "invalid primary hop limit"},
    {CmRejectReason::kPrimaryPacketRate, "invalid primary packet rate"},
    {CmRejectReason::kAlternateGid, "alternate GID refused"},
    {CmRejectReason::kAlternateLid, "alternate LID refused"},
    {CmRejectReason::kAlternateServiceLevel, "invalid alternate service level"},
    {CmRejectReason::kAlternateTrafficClass, "invalid alternate traffic class"},
    {CmRejectReason::kAlternateHopLimit, "invalid alternate hop limit"},
    {CmRejectReason::kAlternatePacketRate, "invalid alternate packet rate"},
    {CmRejectReason::kPortAndCmRedirection, "port and CM redirection"},
    {CmRejectReason::kPortRedirection, "port redirection"},
    {CmRejectReason::kInvalidMtu, "invalid path MTU"},
    {CmRejectReason::kInsufficientResources, "insufficient responder resources"},
    {CmRejectReason::kConsumer, "refused by the program"},
    {CmRejectReason::kRnrRetryCount, "RNR retry count refused"},
    {CmRejectReason::kDuplicateCommunicationId, "duplicate communication id"},
    {CmRejectReason::kInvalidClassVersion, "invalid class version"},
    {CmRejectReason::kPrimaryFlowLabel, "invalid primary flow label"},
    {CmRejectReason::kAlternateFlowLabel, "invalid alternate flow label"},
    {CmRejectReason::kVendorOption, "vendor option not supported"},
};

}  // namespace

std::string_view name_of(CmRejectReason reason) {
  const auto* found = std::ranges::find(kReasonNames, reason, &ReasonName::reason);
  return found != std::end(kReasonNames) ? found->name : "unknown";
}

std::string_view name_of(CmSidrStatus status) {
  switch (status) {
    case CmSidrStatus::kValid:
      return "valid";
    case CmSidrStatus::kUnsupportedService:
      return "service not supported";
    case CmSidrStatus::kRejected:
      return "refused by the program";
    case CmSidrStatus::kNoQp:
      return "no QP available";
    case CmSidrStatus::kRedirect:
      return "redirected";
    case CmSidrStatus::kUnsupportedVersion:
      return "version not supported";
  }
  return "unknown";
}

std::string_view print(std::span<char> out, const CmMad& mad) {
  Text text(out);
  std::visit([&](const auto& message) { put(text, message); }, mad.message);
  (text << " tid=").hex(mad.transaction_id);
  return text.view();
}

std::string_view print(std::span<char> out, const CmaHeader& header) {
  Text text(out);
  put_gid(text, header.source);
  (text << (is_v4(header.source) ? ":" : " port ")).dec(header.source_port);
  put_gid(text << " > ", header.destination);
  return text.view();
}

std::string_view print_cm(std::span<char> out, Bytes mad) {
  const auto parsed = parse_cm(mad);
  if (parsed) return print(out, *parsed);
  Text text(out);
  text << name_of(parsed.error());
  return text.view();
}

}  // namespace airdma::wire
