// SPDX-License-Identifier: MIT
// Communication managers of several hosts whose datagrams get lost, doubled, overtaken and late,
// and whose programs connect, accept, refuse, dawdle, disconnect and leave. Virtual time.
#include <gtest/gtest.h>

#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "engine/cm/ib_manager.h"
#include "tests/sim/random.h"
#include "tests/sim/seeds.h"

namespace airdma::sim {
namespace {

using namespace airdma::ibcm;
using std::chrono::microseconds;
using std::chrono::milliseconds;
using std::chrono::minutes;
using std::chrono::seconds;

constexpr ServiceId kConnections = wire::service_of(0x0106, 1);
constexpr ServiceId kDatagrams = wire::service_of(0x0111, 1);
constexpr std::size_t kHosts = 3;
constexpr std::size_t kAttempts = 12;

/// What a program has seen of one of its ids.
struct Seen {
  bool active = false;
  bool lookup = false;
  bool accepted = false;  // or ready
  bool up = false;
  bool ended = false;  // rejected, unreachable or disconnected
  bool over = false;   // nothing may follow
  bool released = false;
};

struct SimHost {
  model::Gid gid;
  Manager manager;
  std::map<std::uint32_t, Seen> ids;
  SimHost(std::uint32_t number, std::uint64_t seed)
      : gid(model::Gid::from_v4({10, 0, 0, static_cast<std::uint8_t>(number)})),
        manager({.id_block = number, .seed = seed}) {}
};

class CmWorld {
 public:
  explicit CmWorld(std::uint64_t seed) : random_(seed) {
    loss_percent_ = random_.pick({0u, 0u, 5u, 30u});
    for (std::uint32_t i = 1; i <= kHosts; ++i) {
      hosts_.push_back(std::make_unique<SimHost>(i, random_.next()));
      hosts_.back()->manager.listen(kConnections, {}, random_.between(1, 8));
      hosts_.back()->manager.listen(kDatagrams, {}, random_.between(1, 8));
    }
  }

  /// What was wrong; empty for nothing.
  std::string run() {
    for (std::size_t i = 0; i < kAttempts; ++i) {
      at(milliseconds(random_.below(3000)), [this] { begin(); });
    }
    while (failure_.empty() && step()) {
    }
    if (failure_.empty()) check_end();
    return failure_;
  }
  [[nodiscard]] std::size_t established() const { return established_; }

 private:
  void at(Duration in, std::function<void()> what) { agenda_.emplace(now_ + in, std::move(what)); }
  void wrong(const std::string& what) {
    if (failure_.empty()) failure_ = what;
  }
  Duration moment() { return milliseconds(random_.pick({0, 0, 1, 30, 120, 900, 6000})); }

  void begin() {
    SimHost& from = *hosts_[random_.below(kHosts)];
    SimHost& to = *hosts_[random_.below(kHosts)];
    model::AddressVector path;
    path.source = from.gid;
    path.destination = to.gid;
    const bool lookup = random_.one_in(4);
    std::optional<CommunicationId> id;
    if (lookup) {
      id = from.manager.look_up({.service = kDatagrams, .path = path}, now_);
    } else {
      ConnectParams params;
      params.service = random_.one_in(10) ? wire::service_of(0x0106, 9) : kConnections;
      params.path = path;
      params.ca_guid = from.gid.bytes[15];
      // Few numbers, so that old connections' are used again.
      params.qpn = Qpn{static_cast<std::uint32_t>(16 + (++qpns_ % 8))};
      params.starting_psn = Psn{static_cast<std::uint32_t>(random_.next())};
      params.ack_timeout = 17;
      id = from.manager.connect(params, now_);
    }
    if (!id) return wrong("no id");
    from.ids[id->value()] = {.active = true, .lookup = lookup};
    if (random_.one_in(5)) later_release(from, *id);
    drain(from);
  }

  void later_release(SimHost& host, CommunicationId id) {
    at(moment(), [this, &host, id] { release(host, id); });
  }
  void release(SimHost& host, CommunicationId id) {
    host.ids[id.value()].released = true;
    host.manager.release(id, now_);
    drain(host);
  }

  // One thing happens.
  bool step() {
    std::optional<Time> next;
    if (!agenda_.empty()) next = agenda_.begin()->first;
    for (const auto& host : hosts_) {
      const auto deadline = host->manager.next_deadline();
      if (deadline && (!next || *deadline < *next)) next = deadline;
    }
    if (!next) return false;
    if (*next > Time{minutes(60)}) {
      wrong("it never ends");
      return false;
    }
    now_ = std::max(now_, *next);
    for (const auto& host : hosts_) {
      host->manager.on_deadline(now_);
      drain(*host);
    }
    while (!agenda_.empty() && agenda_.begin()->first <= now_) {
      const auto what = std::move(agenda_.begin()->second);
      agenda_.erase(agenda_.begin());
      what();
    }
    return true;
  }

  void drain(SimHost& host) {
    while (const auto event = host.manager.poll_event()) on_event(host, *event);
    while (const auto mad = host.manager.poll_transmit()) transmit(*mad);
  }

  void transmit(const OutMad& mad) {
    const unsigned copies = random_.below(100) < loss_percent_ ? 0 : random_.one_in(20) ? 2 : 1;
    for (unsigned copy = 0; copy < copies; ++copy) {
      Duration delay = microseconds(random_.between(1, 500));
      if (random_.one_in(20)) delay = milliseconds(random_.between(1, 400));  // is overtaken
      at(delay, [this, mad] { arrive(mad); });
    }
  }

  void arrive(const OutMad& mad) {
    model::AddressVector way_back = mad.destination;
    std::swap(way_back.source, way_back.destination);
    SimHost& host = *hosts_.at(way_back.source.bytes[15] - 1u);
    host.manager.on_mad(mad.bytes, way_back, now_);
    drain(host);
  }

  // The programs.

  void on_event(SimHost& host, const Event& event) {
    const bool fresh = event.kind == EventKind::kRequest || event.kind == EventKind::kLookup;
    Seen& seen = host.ids[event.id.value()];
    if (fresh) seen = {.lookup = event.kind == EventKind::kLookup};
    if (seen.released) return wrong("an event after release");
    if (seen.over) return wrong("an event after the last");
    switch (event.kind) {
      case EventKind::kRequest:
        return on_request(host, event.id);
      case EventKind::kLookup:
        return on_lookup(host, event.id);
      case EventKind::kRequestLost:
        if (seen.active || seen.accepted) wrong("lost what was no request");
        seen.over = true;
        return;
      case EventKind::kReply:
        return on_reply(host, event.id, seen);
      case EventKind::kEstablished:
        if (seen.active || !seen.accepted || seen.up) wrong("established out of turn");
        seen.up = true;
        ++established_;
        return use(host, event.id);
      case EventKind::kRejected:
      case EventKind::kUnreachable:
        if (seen.up) wrong("refused although established");
        seen.over = true;
        return;
      case EventKind::kDisconnected:
        if (seen.ended || (!seen.active && !seen.accepted)) wrong("disconnected out of turn");
        seen.ended = true;
        return use(host, event.id);  // its program answers, some time
      case EventKind::kTimewaitOver:
        if (!seen.ended) wrong("time is over before the end");
        seen.over = true;
        return;
      case EventKind::kLookupAnswered:
      case EventKind::kLookupUnreachable:
        if (!seen.lookup || !seen.active) wrong("an answer to no lookup");
        seen.over = true;
        return;
    }
  }

  void on_request(SimHost& host, CommunicationId id) {
    const bool accepts = !random_.one_in(5);
    at(moment(), [this, &host, id, accepts] {
      Seen& seen = host.ids[id.value()];
      if (accepts) {
        AcceptParams params;
        params.ca_guid = host.gid.bytes[15];
        params.qpn = Qpn{static_cast<std::uint32_t>(1000 + ++qpns_)};
        seen.accepted = host.manager.accept(id, params, now_);
      } else {
        const bool done = host.manager.reject(id, wire::CmRejectReason::kConsumer, {}, {}, now_);
        seen.over |= done;
      }
      if (accepts && random_.one_in(8)) later_release(host, id);
      drain(host);
    });
  }

  void on_lookup(SimHost& host, CommunicationId id) {
    const auto status =
        random_.one_in(4) ? wire::CmSidrStatus::kRejected : wire::CmSidrStatus::kValid;
    at(moment(), [this, &host, id, status] {
      if (!host.manager.answer(id, {.status = status, .qpn = Qpn{5}}, now_)) wrong("no answer");
      drain(host);
    });
  }

  void on_reply(SimHost& host, CommunicationId id, const Seen& seen) {
    if (!seen.active || seen.accepted) wrong("a reply out of turn");
    at(moment(), [this, &host, id] {
      Seen& known = host.ids[id.value()];
      known.accepted = known.up = host.manager.ready(id, {});
      if (known.up) use(host, id);
      drain(host);
    });
  }

  /// Both ends disconnect sometime; whoever is first ends it.
  void use(SimHost& host, CommunicationId id) {
    at(moment() + milliseconds(random_.below(200)), [this, &host, id] {
      if (host.ids[id.value()].released) return;
      host.manager.disconnect(id, {}, now_);
      drain(host);
    });
  }

  void check_end() {
    for (const auto& host : hosts_) {
      for (const auto& [id, seen] : host->ids) {
        const bool passive_lookup = seen.lookup && !seen.active;
        // Timewait ends without a word when the peer uses the name or the queue pair anew.
        if (!seen.released && !seen.over && !seen.ended && !passive_lookup) {
          return wrong("nothing was heard of " + std::to_string(id));
        }
      }
      if (host->manager.size() != 0) return wrong("something is left");
    }
  }

  Random random_;
  Time now_{};
  unsigned loss_percent_ = 0;
  std::uint32_t qpns_ = 0;
  std::size_t established_ = 0;
  std::vector<std::unique_ptr<SimHost>> hosts_;
  std::multimap<Time, std::function<void()>> agenda_;
  std::string failure_;
};

TEST(IbCmWorld, EveryConnectionEnds) {
  std::size_t established = 0;
  const std::uint64_t count = for_each_seed(500, [&](std::uint64_t seed) {
    CmWorld world(seed);
    const std::string failure = world.run();
    established += world.established();
    return failure;
  });
  if (count > 1) {
    EXPECT_GT(established, 2 * count);  // otherwise little of this was tested
  }
}

}  // namespace
}  // namespace airdma::sim
