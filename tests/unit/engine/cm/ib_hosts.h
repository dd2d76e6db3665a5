// SPDX-License-Identifier: MIT
// Two communication managers and the datagrams between them.
#pragma once

#include <gtest/gtest.h>

#include <chrono>
#include <optional>
#include <string>
#include <vector>

#include "engine/cm/ib_manager.h"
#include "tests/support/bytes.h"
#include "wire/ib_cm_print.h"

namespace airdma::ibcm::test {

using airdma::test::ByteVector;
using airdma::test::pattern;
using std::chrono::milliseconds;
using std::chrono::seconds;
using State = Connection::State;
using Log = std::vector<std::string>;

inline model::Gid gid_of(std::uint8_t last) { return model::Gid::from_v4({10, 0, 0, last}); }

inline model::AddressVector path_between(std::uint8_t from, std::uint8_t to) {
  model::AddressVector path;
  path.source = gid_of(from);
  path.destination = gid_of(to);
  return path;
}

inline constexpr ServiceId kService = wire::service_of(0x0106, 7174);
inline constexpr std::uint64_t kGuidA = 0xa;
inline constexpr std::uint64_t kGuidB = 0xb;

/// A manager at one address, with what it has reported.
struct Host {
  std::uint8_t address;
  Manager manager;
  std::vector<Event> events;

  Host(std::uint8_t at, std::uint64_t seed)
      : address(at), manager({.id_block = at, .seed = seed}) {}

  void drain_events() {
    while (auto event = manager.poll_event()) events.push_back(*event);
  }
  /// The oldest event, which has to be of this kind.
  Event take(EventKind kind) {
    drain_events();
    if (events.empty()) {
      ADD_FAILURE() << "no event, wanted " << static_cast<int>(kind);
      return {};
    }
    const Event event = events.front();
    events.erase(events.begin());
    EXPECT_EQ(static_cast<int>(event.kind), static_cast<int>(kind));
    return event;
  }
  bool quiet() {
    drain_events();
    return events.empty();
  }
};

inline wire::CmMessage message_of(const Event& event) {
  return wire::parse_cm(event.mad).value_or(wire::CmMad{}).message;
}

/// Two hosts, A the active one.
struct Hosts {
  Time now{std::chrono::hours(1)};
  Host a{1, 0x0000000700000005};
  Host b{2, 0x0000000900000011};
  ListenerId listener = b.manager.listen(kService, {}, 8);
  /// What went over the wire, newest last.
  std::vector<std::string> log;

  static ConnectParams params(Qpn qpn = Qpn{0x11}) {
    ConnectParams out;
    out.service = kService;
    out.path = path_between(1, 2);
    out.ca_guid = kGuidA;
    out.qpn = qpn;
    out.starting_psn = Psn{100};
    out.responder_resources = 3;
    out.initiator_depth = 4;
    out.path_mtu = 3;
    out.ack_timeout = 17;
    return out;
  }
  static AcceptParams answer() {
    AcceptParams out;
    out.ca_guid = kGuidB;
    out.qpn = Qpn{0x22};
    out.starting_psn = Psn{200};
    out.responder_resources = 4;
    out.initiator_depth = 3;
    return out;
  }

  /// What `from` wants to send, off its queue.
  std::vector<OutMad> taken(Host& from) {
    std::vector<OutMad> mads;
    while (auto mad = from.manager.poll_transmit()) {
      mads.push_back(*mad);
      char room[wire::kPrintBytes];
      const std::string line(wire::print_cm(room, mad->bytes));
      log.push_back(line.substr(0, line.find(' ')));
    }
    return mads;
  }
  void arrive(Host& to, const OutMad& mad) {
    model::AddressVector way_back = mad.destination;
    std::swap(way_back.source, way_back.destination);
    to.manager.on_mad(mad.bytes, way_back, now);
  }
  std::size_t deliver(Host& from, Host& to) {
    const auto mads = taken(from);
    for (const auto& mad : mads) arrive(to, mad);
    return mads.size();
  }
  std::size_t lose(Host& from) { return taken(from).size(); }
  /// Until nobody has anything to say.
  void settle() {
    while (deliver(a, b) + deliver(b, a) > 0) {
    }
  }
  void pass(Duration time) {
    const Time end = now + time;
    for (auto next = earliest(); next && *next <= end; next = earliest()) {
      now = std::max(now, *next);
      a.manager.on_deadline(now);
      b.manager.on_deadline(now);
      settle();
    }
    now = end;
  }
  /// The same without anybody hearing anything.
  std::size_t pass_in_silence(Duration time) {
    const Time end = now + time;
    std::size_t lost = 0;
    for (auto next = earliest(); next && *next <= end; next = earliest()) {
      now = std::max(now, *next);
      a.manager.on_deadline(now);
      b.manager.on_deadline(now);
      lost += lose(a) + lose(b);
    }
    now = end;
    return lost;
  }
  [[nodiscard]] std::optional<Time> earliest() const {
    const auto one = a.manager.next_deadline();
    const auto other = b.manager.next_deadline();
    if (!one || !other) return one ? one : other;
    return std::min(*one, *other);
  }

  CommunicationId active{};
  CommunicationId passive{};

  void ask() {
    active = a.manager.connect(params(), now).value_or(CommunicationId{});
    deliver(a, b);
    passive = b.take(EventKind::kRequest).id;
  }
  void ask_and_accept() {
    ask();
    EXPECT_TRUE(b.manager.accept(passive, answer(), now));
  }
  void establish() {
    ask_and_accept();
    deliver(b, a);
    a.take(EventKind::kReply);
    EXPECT_TRUE(a.manager.ready(active, {}));
    deliver(a, b);
    b.take(EventKind::kEstablished);
  }
  [[nodiscard]] Connection::State state(const Host& host, CommunicationId id) const {
    const Connection* connection = host.manager.find(id);
    return connection != nullptr ? connection->state() : Connection::State::kOver;
  }
};

}  // namespace airdma::ibcm::test
