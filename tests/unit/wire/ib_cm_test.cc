// SPDX-License-Identifier: MIT
#include "wire/ib_cm.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "tests/support/bytes.h"
#include "wire/ib_cm_print.h"

namespace airdma::wire {
namespace {

using test::ByteVector;
using test::from_hex;
using test::to_hex;

// Datagrams of the kernel's rxe, without the zeroes at their ends: rxe-rping-v4.pcap,
// rxe-rping-v6.pcap, rxe-reject-app.pcap, rxe-reject-nolistener.pcap, rxe-udaddy.pcap.
constexpr const char* kReq =
    "01070203 00000000 000000 1079143c8c 0010 0000 00000000"
    "8c3c1479 00000000 0000000001061c06 505400fffe770011 00000000 00000000"
    "00001101 00000001 000000a0 33dd1aa7 ffff 37 f0"
    "ffff ffff 00000000000000000000ffff0a4d000b 00000000000000000000ffff0a4d000c 9bad3000 00 40 00 "
    "98"
    "0000 0000 00000000000000000000000000000000 00000000000000000000000000000000 00000000 00 00 00 "
    "00"
    "00 40 d393 0000000000000000000000000a4d000b 0000000000000000000000000a4d000c";
constexpr const char* kReqV6 =
    "01070203 00000000 000000 1079143c8d 0010 0000 00000000"
    "8d3c1479 00000000 0000000001061c06 505400fffe770011 00000000 00000000"
    "00001201 00000001 000000a0 2d01d8a7 ffff 37 f0"
    "ffff ffff fd770000000000000000000000000011 fd770000000000000000000000000012 62036000 00 40 00 "
    "98"
    "0000 0000 00000000000000000000000000000000 00000000000000000000000000000000 00000000 00 00 00 "
    "00"
    "00 60 b5d0 fd770000000000000000000000000011 fd770000000000000000000000000012";
constexpr const char* kRep =
    "01070203 00000000 000000 1079143c8c 0013 0000 00000000"
    "97ffe39b 8c3c1479 00000000 00001100 00000000 7546c100 01 01 78 e0 505400fffe770012";
constexpr const char* kRtu =
    "01070203 00000000 000000 1079143c8c 0014 0000 00000000 8c3c1479 97ffe39b";
constexpr const char* kDreq =
    "01070203 00000000 000000 1079143c8c 0015 0000 00000000 8c3c1479 97ffe39b 00001100";
constexpr const char* kDrep =
    "01070203 00000000 000000 1079143c8c 0016 0000 00000000 97ffe39b 8c3c1479";
constexpr const char* kRejOfProgram =
    "01070203 00000000 000000 1079143c83 0012 0000 00000000 bbffe39b 833c1479 00 00 001c";
constexpr const char* kRejOfOther =
    "01070203 00000000 000000 1079143c82 0012 0000 00000000 baffe39b 823c1479 80 00 001c";
constexpr const char* kRejOfService =
    "01070203 00000000 000000 1079143c85 0012 0000 00000000 00000000 853c1479 00 00 0008";
constexpr const char* kSidrReq =
    "01070203 00000000 000000 1079143c89 0017 0000 00000000"
    "893c1479 ffff 0000 0000000001111c06"
    "00 40 80fb 0000000000000000000000000a4d000b 0000000000000000000000000a4d000c";
constexpr const char* kSidrRep =
    "01070203 00000000 000000 1079143c89 0018 0000 00000000"
    "893c1479 00 00 0000 00002300 0000000001111c06 01234567";
constexpr const char* kAll[] = {kReq,          kReqV6,      kRep,          kRtu,     kDreq,   kDrep,
                                kRejOfProgram, kRejOfOther, kRejOfService, kSidrReq, kSidrRep};

ByteVector datagram(const char* hex) {
  ByteVector bytes = from_hex(hex);
  bytes.resize(kMadBytes);
  return bytes;
}

/// The message that the datagram must hold.
template <class Message>
Message message_in(const ByteVector& bytes) {
  const auto mad = parse_cm(bytes);
  EXPECT_TRUE(mad.has_value()) << to_hex(bytes);
  return mad ? std::get<Message>(mad->message) : Message{};
}

std::string line(const CmMad& mad) { return to_text(mad); }

GidBytes v4(std::uint8_t last) {
  return {0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 10, 77, 0, last};
}

TEST(IbCm, ReadsTheKernelsRequest) {
  const ByteVector bytes = datagram(kReq);
  const auto req = message_in<CmReq>(bytes);
  EXPECT_EQ(parse_cm(bytes)->transaction_id, 0x1079143c8cu);
  EXPECT_EQ(req.local_id, CommunicationId{0x8c3c1479});
  EXPECT_EQ(req.service_id, service_of(0x0106, 0x1c06));
  EXPECT_EQ(req.local_ca_guid, 0x505400fffe770011u);
  EXPECT_EQ(req.local_qpn, Qpn{0x11});
  EXPECT_EQ(req.responder_resources, 1);
  EXPECT_EQ(req.initiator_depth, 1);
  EXPECT_EQ(req.remote_response_timeout, 20);
  EXPECT_EQ(req.local_response_timeout, 20);
  EXPECT_EQ(req.transport, CmTransport::kRc);
  EXPECT_FALSE(req.flow_control);
  EXPECT_EQ(req.starting_psn, Psn{0x33dd1a});
  EXPECT_EQ(req.retry_count, 7);
  EXPECT_EQ(req.pkey, Pkey{0xffff});
  EXPECT_EQ(req.path_mtu, 3);
  EXPECT_EQ(req.rnr_retry_count, 7);
  EXPECT_EQ(req.max_cm_retries, 15);
  EXPECT_FALSE(req.srq);
  EXPECT_EQ(req.private_data.size(), kReqPrivateBytes);
}

TEST(IbCm, ReadsTheKernelsPath) {
  const ByteVector bytes = datagram(kReq);
  const auto req = message_in<CmReq>(bytes);
  EXPECT_EQ(req.primary, (CmPath{.local_lid = 0xffff,
                                 .remote_lid = 0xffff,
                                 .local_gid = v4(11),
                                 .remote_gid = v4(12),
                                 .flow_label = 0x9bad3,
                                 .hop_limit = 64,
                                 .ack_timeout = 19}));
  EXPECT_EQ(req.alternate, CmPath{});
}

TEST(IbCm, ReadsWhoAsksWhom) {
  const ByteVector bytes = datagram(kReq);
  const auto header = parse_cma(message_in<CmReq>(bytes).private_data);
  EXPECT_EQ(header, (CmaHeader{.source_port = 0xd393, .source = v4(11), .destination = v4(12)}));
  const ByteVector bytes_v6 = datagram(kReqV6);
  const auto req_v6 = message_in<CmReq>(bytes_v6);
  EXPECT_EQ(parse_cma(req_v6.private_data), (CmaHeader{.source_port = 0xb5d0,
                                                       .source = req_v6.primary.local_gid,
                                                       .destination = req_v6.primary.remote_gid}));
  const ByteVector sidr = datagram(kSidrReq);
  EXPECT_EQ(parse_cma(message_in<CmSidrReq>(sidr).private_data),
            (CmaHeader{.source_port = 0x80fb, .source = v4(11), .destination = v4(12)}));
}

TEST(IbCm, ReadsTheKernelsReply) {
  const ByteVector bytes = datagram(kRep);
  const auto rep = message_in<CmRep>(bytes);
  EXPECT_EQ(rep.local_id, CommunicationId{0x97ffe39b});
  EXPECT_EQ(rep.remote_id, CommunicationId{0x8c3c1479});
  EXPECT_EQ(rep.local_qpn, Qpn{0x11});
  EXPECT_EQ(rep.starting_psn, Psn{0x7546c1});
  EXPECT_EQ(rep.responder_resources, 1);
  EXPECT_EQ(rep.initiator_depth, 1);
  EXPECT_EQ(rep.target_ack_delay, 15);
  EXPECT_EQ(rep.failover_accepted, 0);
  EXPECT_FALSE(rep.flow_control);
  EXPECT_EQ(rep.rnr_retry_count, 7);
  EXPECT_FALSE(rep.srq);
  EXPECT_EQ(rep.local_ca_guid, 0x505400fffe770012u);
  EXPECT_EQ(rep.private_data.size(), kRepPrivateBytes);
}

TEST(IbCm, ReadsTheKernelsRefusals) {
  const ByteVector program = datagram(kRejOfProgram);
  EXPECT_EQ(message_in<CmRej>(program).reason, CmRejectReason::kConsumer);
  EXPECT_EQ(message_in<CmRej>(program).answered, CmAnswered::kReq);
  const ByteVector other = datagram(kRejOfOther);
  EXPECT_EQ(message_in<CmRej>(other).answered, CmAnswered::kOther);
  const ByteVector service = datagram(kRejOfService);
  EXPECT_EQ(message_in<CmRej>(service).reason, CmRejectReason::kInvalidServiceId);
  EXPECT_EQ(message_in<CmRej>(service).local_id, CommunicationId{0});
}

TEST(IbCm, ReadsTheKernelsServiceLookup) {
  const ByteVector req = datagram(kSidrReq);
  EXPECT_EQ(message_in<CmSidrReq>(req).service_id, service_of(0x0111, 0x1c06));
  EXPECT_EQ(message_in<CmSidrReq>(req).pkey, Pkey{0xffff});
  const ByteVector bytes = datagram(kSidrRep);
  const auto rep = message_in<CmSidrRep>(bytes);
  EXPECT_EQ(rep.request_id, CommunicationId{0x893c1479});
  EXPECT_EQ(rep.status, CmSidrStatus::kValid);
  EXPECT_EQ(rep.qpn, Qpn{0x23});
  EXPECT_EQ(rep.qkey, Qkey{0x01234567});
  EXPECT_EQ(rep.service_id, service_of(0x0111, 0x1c06));
}

TEST(IbCm, EmitsWhatTheKernelSent) {
  for (const char* hex : kAll) {
    const ByteVector bytes = datagram(hex);
    const auto mad = parse_cm(bytes);
    ASSERT_TRUE(mad.has_value()) << hex;
    MadBuffer out;
    ASSERT_TRUE(emit_cm(out, *mad));
    EXPECT_EQ(to_hex(out), to_hex(bytes));
  }
}

TEST(IbCm, PrintsOneLine) {
  const auto print_hex = [](const char* hex) {
    const ByteVector bytes = datagram(hex);
    return line(*parse_cm(bytes));
  };
  EXPECT_EQ(
      print_hex(kReq),
      "REQ id=0x8c3c1479 service=0x1061c06 qpn=0x11 psn=0x33dd1a RC mtu=3 resources=1 depth=1 "
      "retry=7 rnr_retry=7 srq=0 timeouts=20/20 cm_retries=15 pkey=0xffff "
      "path=10.77.0.11>10.77.0.12 flow=0x9bad3 tc=0 hops=64 sl=0 ack_timeout=19 private=36 "
      "tid=0x1079143c8c");
  EXPECT_EQ(print_hex(kRejOfService),
            "REJ id=0x00000000 peer=0x853c1479 of=REQ reason=8 (invalid service id) private=0 "
            "tid=0x1079143c85");
  EXPECT_EQ(print_hex(kSidrRep),
            "SIDR_REP id=0x893c1479 status=0 (valid) qpn=0x23 service=0x1111c06 qkey=0x1234567 "
            "private=0 tid=0x1079143c89");
}

// One of each, with every field set to something of its own.

constexpr CommunicationId kOurs{0x01020304};
constexpr CommunicationId kTheirs{0xa0b0c0d0};

CmReq full_request(Bytes data) {
  CmPath path{.local_lid = 1,
              .remote_lid = 2,
              .local_gid = v4(1),
              .remote_gid = v4(2),
              .flow_label = 0xabcde,
              .packet_rate = 0x2a,
              .traffic_class = 0x55,
              .hop_limit = 63,
              .service_level = 9,
              .subnet_local = true,
              .ack_timeout = 0x15};
  CmReq req;
  req.local_id = kOurs;
  req.service_id = ServiceId{0x1122334455667788};
  req.local_ca_guid = 0x99aabbccddeeff00;
  req.local_qkey = Qkey{0x80000001};
  req.local_qpn = Qpn{0xfffffe};
  req.responder_resources = 0xa5;
  req.initiator_depth = 0x5a;
  req.local_eecn = 0x123456;
  req.remote_eecn = 0x654321;
  req.remote_response_timeout = 0x1f;
  req.local_response_timeout = 0x11;
  req.transport = CmTransport::kXrc;
  req.flow_control = true;
  req.starting_psn = Psn{0xabcdef};
  req.retry_count = 5;
  req.pkey = Pkey{0x8001};
  req.path_mtu = 5;
  req.rdc_exists = true;
  req.rnr_retry_count = 6;
  req.max_cm_retries = 9;
  req.srq = true;
  req.primary = path;
  path.packet_rate = 1;
  req.alternate = path;
  req.private_data = data.first(kReqPrivateBytes);
  return req;
}

CmRep full_reply(Bytes data) {
  CmRep rep;
  rep.local_id = kOurs;
  rep.remote_id = kTheirs;
  rep.local_qkey = Qkey{7};
  rep.local_qpn = Qpn{0x800000};
  rep.local_eecn = 0x400000;
  rep.starting_psn = Psn{1};
  rep.responder_resources = 16;
  rep.initiator_depth = 4;
  rep.target_ack_delay = 0x1e;
  rep.failover_accepted = 2;
  rep.flow_control = true;
  rep.rnr_retry_count = 3;
  rep.srq = true;
  rep.local_ca_guid = 1;
  rep.private_data = data.first(kRepPrivateBytes);
  return rep;
}

std::vector<CmMad> one_of_each(Bytes data) {
  return {
      {1, full_request(data)},
      {2, CmMra{kOurs, kTheirs, CmAnswered::kRep, 0x16, data.first(kMraPrivateBytes)}},
      {3, CmRej{kOurs, kTheirs, CmAnswered::kOther, CmRejectReason::kVendorOption, data.first(72),
                data.first(kRejPrivateBytes)}},
      {4, full_reply(data)},
      {5, CmRtu{kOurs, kTheirs, data.first(kRtuPrivateBytes)}},
      {6, CmDreq{kOurs, kTheirs, Qpn{0x99}, data.first(kDreqPrivateBytes)}},
      {7, CmDrep{kOurs, kTheirs, data.first(kDrepPrivateBytes)}},
      {8, CmSidrReq{kOurs, Pkey{0x7fff}, ServiceId{5}, data.first(kSidrReqPrivateBytes)}},
      {9, CmSidrRep{kOurs, CmSidrStatus::kRedirect, Qpn{3}, ServiceId{6}, Qkey{8}, data.first(5),
                    data.first(kSidrRepPrivateBytes)}},
      {10, CmLap{kOurs, kTheirs, Qpn{0x42}, 0x12, data.first(kLapPrivateBytes)}},
      {11, CmApr{kOurs, kTheirs, CmAprStatus::kUnsupported, data.first(1),
                 data.first(kAprPrivateBytes)}},
  };
}

TEST(IbCm, ParsesWhatItEmits) {
  const ByteVector data = test::pattern(kMadBytes);
  for (const CmMad& mad : one_of_each(data)) {
    MadBuffer out;
    ASSERT_TRUE(emit_cm(out, mad)) << line(mad);
    const auto again = parse_cm(out);
    ASSERT_TRUE(again.has_value()) << line(mad);
    EXPECT_EQ(*again, mad) << line(mad);
    EXPECT_EQ(line(*again), line(mad));
    EXPECT_EQ(again->message.index(), mad.message.index());
  }
}

TEST(IbCm, KeepsEveryFieldOfARequest) {
  const ByteVector data = test::pattern(kMadBytes);
  const CmMad mad = one_of_each(data).front();
  const auto& req = std::get<CmReq>(mad.message);
  MadBuffer out;
  ASSERT_TRUE(emit_cm(out, mad));
  const auto again = parse_cm(out);
  const auto& back = std::get<CmReq>(again->message);
  EXPECT_EQ(back.transport, req.transport);
  EXPECT_EQ(back.primary, req.primary);
  EXPECT_EQ(back.alternate, req.alternate);
  EXPECT_EQ(back.local_eecn, req.local_eecn);
  EXPECT_EQ(back.remote_eecn, req.remote_eecn);
  EXPECT_EQ(back.starting_psn, req.starting_psn);
  EXPECT_EQ(back.local_response_timeout, req.local_response_timeout);
  EXPECT_EQ(back.remote_response_timeout, req.remote_response_timeout);
  EXPECT_EQ(back.max_cm_retries, req.max_cm_retries);
  EXPECT_TRUE(back.srq && back.flow_control && back.rdc_exists);
}

TEST(IbCm, FillsPrivateDataUpWithZeroes) {
  const ByteVector data = test::pattern(3);
  MadBuffer out;
  ASSERT_TRUE(emit_cm(out, {1, CmRtu{.private_data = data}}));
  const auto again = parse_cm(out);
  const Bytes back = std::get<CmRtu>(again->message).private_data;
  ASSERT_EQ(back.size(), kRtuPrivateBytes);
  EXPECT_TRUE(std::ranges::equal(back.first(3), data));
  EXPECT_TRUE(std::ranges::all_of(back.subspan(3), [](std::byte b) { return b == std::byte{0}; }));
}

TEST(IbCm, RefusesToEmitWhatDoesNotFit) {
  const ByteVector data = test::pattern(kMadBytes);
  MadBuffer out;
  CmReq req;
  req.private_data = Bytes(data).first(kReqPrivateBytes + 1);
  EXPECT_FALSE(emit_cm(out, {1, req}));
  EXPECT_FALSE(emit_cm(out, {1, CmRej{.additional = Bytes(data).first(73)}}));
  EXPECT_FALSE(emit_cm(out, {1, CmSidrRep{.additional = Bytes(data).first(73)}}));
  EXPECT_FALSE(emit_cm(out, {1, CmApr{.additional = Bytes(data).first(73)}}));
  EXPECT_FALSE(emit_cm(out, {1, CmDrep{.private_data = Bytes(data).first(225)}}));
}

TEST(IbCm, SaysWhatIsNoMessage) {
  ByteVector bytes = datagram(kReq);
  EXPECT_EQ(parse_cm(Bytes(bytes).first(255)).error(), CmError::kWrongLength);
  bytes.push_back(std::byte{0});
  EXPECT_EQ(parse_cm(bytes).error(), CmError::kWrongLength);
  const auto with = [](std::size_t at, int value) {
    ByteVector changed = datagram(kReq);
    changed[at] = static_cast<std::byte>(value);
    return changed;
  };
  EXPECT_EQ(parse_cm(with(0, 2)).error(), CmError::kNotCm);
  EXPECT_EQ(parse_cm(with(1, 3)).error(), CmError::kNotCm);
  EXPECT_EQ(parse_cm(with(2, 1)).error(), CmError::kWrongClassVersion);
  EXPECT_EQ(parse_cm(with(3, 0x81)).error(), CmError::kNotCm);
  EXPECT_EQ(parse_cm(with(17, 0x1b)).error(), CmError::kUnknownAttribute);
  EXPECT_EQ(parse_cm(with(16, 1)).error(), CmError::kUnknownAttribute);
}

TEST(IbCm, BoundsAdditionalInformation) {
  ByteVector bytes = datagram(kRejOfProgram);
  bytes[24 + 9] = std::byte{72 << 1};
  EXPECT_EQ(message_in<CmRej>(bytes).additional.size(), 72u);
  bytes[24 + 9] = std::byte{73 << 1};
  EXPECT_EQ(parse_cm(bytes).error(), CmError::kInfoTooLong);
  ByteVector sidr = datagram(kSidrRep);
  sidr[24 + 5] = std::byte{73};
  EXPECT_EQ(parse_cm(sidr).error(), CmError::kInfoTooLong);
}

TEST(IbCm, ChecksTheHeaderInPrivateData) {
  std::array<std::byte, kCmaHeaderBytes> out;
  emit_cma(out, {.source_port = 5, .source = v4(1), .destination = v4(2)});
  EXPECT_EQ(to_hex(Bytes(out).first(8)), "0040000500000000");
  EXPECT_EQ(parse_cma(Bytes(out).first(35)), std::nullopt);
  EXPECT_TRUE(parse_cma(out).has_value());
  out[4] = std::byte{0xff};  // what is in front of an IPv4 address says nothing
  EXPECT_EQ(parse_cma(out)->source, v4(1));
  out[1] = std::byte{0x50};
  EXPECT_EQ(parse_cma(out), std::nullopt);
  out[1] = std::byte{0x60};
  EXPECT_EQ(parse_cma(out)->source[0], 0xff);
  out[0] = std::byte{0x10};
  EXPECT_EQ(parse_cma(out), std::nullopt);
}

TEST(IbCm, NamesServicesOfPorts) {
  EXPECT_EQ(service_of(0x0106, 7174), ServiceId{0x0000000001061c06});
  EXPECT_EQ(port_of(ServiceId{0x013f0001}), (ServicePort{0x013f, 1}));
  EXPECT_EQ(port_of(ServiceId{0x100000000}), std::nullopt);
}

TEST(IbCm, PrintsAnyDatagram) {
  char room[kPrintBytes];
  EXPECT_EQ(print_cm(room, datagram(kRtu)),
            "RTU id=0x8c3c1479 peer=0x97ffe39b private=0 tid=0x1079143c8c");
  EXPECT_EQ(print_cm(room, Bytes{}), "not the length of a management datagram");
  EXPECT_EQ(to_text(CmaHeader{.source_port = 7, .source = v4(1), .destination = v4(2)}),
            "10.77.0.1:7 > 10.77.0.2");
}

}  // namespace
}  // namespace airdma::wire
