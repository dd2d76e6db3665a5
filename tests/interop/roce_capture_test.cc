// SPDX-License-Identifier: MIT
// Every RoCEv2 packet that the kernel's rxe sent in the captures: it parses, comes out of the
// emitter byte for byte, and its ICRC is right, by the identification it had and by the rule of a
// receiver that cannot see it.
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <map>
#include <string>

#include "tests/interop/capture.h"
#include "tests/support/bytes.h"
#include "trace/roce_tap.h"
#include "wire/icrc.h"
#include "wire/print.h"
#include "wire/roce_packet.h"

namespace airdma::interop {
namespace {

using test::to_hex;
using wire::kIcrcBytes;

std::vector<Datagram> packets_of(const std::string& path) {
  const auto frames = read_frames(path);
  EXPECT_TRUE(frames.has_value());
  std::vector<Datagram> packets = udp_datagrams(frames.value_or(std::vector<Frame>{}));
  std::erase_if(packets, [](const Datagram& datagram) {
    return datagram.destination.port != wire::kRoceUdpPort;
  });
  return packets;
}

std::vector<std::string> capture_files() {
  std::vector<std::string> files;
  for (const auto& entry : std::filesystem::directory_iterator(AIRDMA_CAPTURES)) {
    if (!entry.path().filename().string().starts_with("rxe-")) continue;
    files.push_back(entry.path().string());
  }
  std::ranges::sort(files);
  return files;
}

wire::IpAddress address_of(const Endpoint& endpoint) {
  wire::IpAddress address{};
  if (endpoint.address.size() == 4) address[10] = address[11] = std::byte{0xff};
  std::ranges::copy(endpoint.address, address.end() - endpoint.address.size());
  return address;
}

Bytes covered(const Datagram& datagram) {
  return Bytes(datagram.bytes).first(datagram.bytes.size() - kIcrcBytes);
}

void expect_same_bytes(const Datagram& datagram) {
  const auto packet = wire::parse_roce_packet(covered(datagram));
  ASSERT_TRUE(packet.has_value());
  ByteVector again(wire::kMaxRoceHeaderBytes);
  again.resize(wire::emit_roce_headers(again, *packet));
  again.insert(again.end(), packet->payload.begin(), packet->payload.end());
  again.resize(again.size() + packet->pad_bytes);
  EXPECT_EQ(to_hex(again), to_hex(covered(datagram)));
}

void expect_right_icrc(const Datagram& datagram) {
  const std::size_t bytes = datagram.bytes.size();
  const wire::IcrcFlow flow(address_of(datagram.source), address_of(datagram.destination),
                            datagram.source.port, datagram.destination.port);
  const auto computed = [&](std::uint16_t identification) {
    return wire::icrc_headers(flow.start(bytes, identification), covered(datagram));
  };
  const std::uint32_t received = wire::load_icrc(&datagram.bytes[bytes - kIcrcBytes]);
  EXPECT_EQ(computed(datagram.identification), received);
  EXPECT_TRUE(flow.accepts(received, computed(0), bytes));
  if (flow.is_v4()) {
    EXPECT_EQ(wire::find_hidden_v4(received, computed(0), bytes),
              (wire::Ipv4Hidden{datagram.identification, datagram.dont_fragment}));
  }
}

TEST(RoceCaptures, AreReadWrittenAndCheckedToTheLastByte) {
  std::size_t packets = 0;
  std::size_t over_ipv6 = 0;
  const auto files = capture_files();
  EXPECT_EQ(files.size(), 27u);
  for (const std::string& file : files) {
    SCOPED_TRACE(file);
    const std::vector<Datagram> datagrams = packets_of(file);
    EXPECT_FALSE(datagrams.empty());
    for (const Datagram& datagram : datagrams) {
      SCOPED_TRACE("frame " + std::to_string(datagram.frame));
      ASSERT_GE(datagram.bytes.size(), sizeof(wire::Bth) + kIcrcBytes);
      expect_same_bytes(datagram);
      expect_right_icrc(datagram);
      over_ipv6 += datagram.source.address.size() == 16;
    }
    packets += datagrams.size();
  }
  EXPECT_EQ(packets, 762u);  // as another program counted them
  EXPECT_GE(over_ipv6, 30u);
}

std::map<std::string, unsigned> names_in(const std::string& name) {
  std::map<std::string, unsigned> count;
  for (const Datagram& datagram : packets_of(std::string(AIRDMA_CAPTURES) + "/" + name)) {
    const std::string text = wire::roce_to_text(covered(datagram));
    ++count[text.substr(0, text.find(" qp="))];
  }
  return count;
}

using Counts = std::map<std::string, unsigned>;

TEST(RoceCaptures, HoldWhatTheirRecorderCounted) {
  EXPECT_EQ(names_in("rxe-cm-write-5001.pcap"), (Counts{{"RC ACK", 37},
                                                        {"RC SEND_ONLY", 32},
                                                        {"RC WRITE_FIRST", 5},
                                                        {"RC WRITE_LAST", 5},
                                                        {"RC WRITE_MIDDLE", 15},
                                                        {"UD SEND_ONLY", 10}}));
  EXPECT_EQ(names_in("rxe-loss-atomic.pcap"),
            (Counts{{"RC ATOMIC_ACK", 23}, {"RC FETCH_ADD", 24}}));
  EXPECT_EQ(names_in("rxe-privdata-imm.pcap"), (Counts{{"RC ACK", 22},
                                                       {"RC WRITE_FIRST", 16},
                                                       {"RC WRITE_LAST_IMM", 16},
                                                       {"RC WRITE_ONLY_IMM", 6},
                                                       {"UD SEND_ONLY", 5}}));
  EXPECT_EQ(names_in("rxe-mckey.pcap"), (Counts{{"UD SEND_ONLY_IMM", 4}}));
}

/// The path a packet came by, as a tap is told it.
trace::RocePath path_of(const Datagram& datagram) {
  return {.source = address_of(datagram.source),
          .destination = address_of(datagram.destination),
          .source_port = datagram.source.port,
          .traffic_class = datagram.traffic_class,
          .hop_limit = datagram.hop_limit};
}

TEST(RoceTraces, HoldWhatWasRecordedWithARightIcrc) {
  const std::string path = testing::TempDir() + "airdma-roce-trace.pcapng";
  std::filesystem::remove(path);
  std::vector<Datagram> sent;
  {
    auto file = trace::PcapngFile::open(path);
    ASSERT_TRUE(file.has_value());
    trace::RoceTap tap(*file, [] { return 1; });
    for (const std::string& capture : capture_files()) {
      for (const Datagram& datagram : packets_of(capture)) {
        const Bytes bytes = covered(datagram);
        tap.record(1, trace::FrameDirection::kOutbound, path_of(datagram), bytes.first(12),
                   std::array{bytes.subspan(12)});
        sent.push_back(datagram);
      }
    }
  }
  const std::vector<Datagram> recorded = packets_of(path);
  ASSERT_EQ(recorded.size(), sent.size());
  for (std::size_t i = 0; i < sent.size(); ++i) {
    SCOPED_TRACE(i);
    EXPECT_EQ(to_hex(covered(recorded[i])), to_hex(covered(sent[i])));
    EXPECT_EQ(recorded[i].source, sent[i].source);
    EXPECT_EQ(recorded[i].destination, sent[i].destination);
    EXPECT_EQ(recorded[i].hop_limit, sent[i].hop_limit);
    EXPECT_EQ(recorded[i].identification, 0);
    expect_right_icrc(recorded[i]);
  }
  std::filesystem::remove(path);
}

TEST(RoceCaptures, TellTheirNaks) {
  const auto naks = [](const std::string& name, const std::string& text) {
    const auto datagrams = packets_of(std::string(AIRDMA_CAPTURES) + "/" + name);
    return std::ranges::count_if(datagrams, [&](const Datagram& datagram) {
      return wire::roce_to_text(covered(datagram)).find(text) != std::string::npos;
    });
  };
  EXPECT_EQ(naks("rxe-loss-write.pcap", "NAK PSN sequence error"), 2);
  EXPECT_EQ(naks("rxe-nak-write-bounds.pcap", "NAK remote access error"), 1);
  EXPECT_EQ(naks("rxe-nak-send-toolong.pcap", "NAK remote operational error"), 1);
}

}  // namespace
}  // namespace airdma::interop
