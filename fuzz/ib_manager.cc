// SPDX-License-Identifier: MIT
// Peers that send any sequence of datagrams, at any times, to a communication manager whose program
// does anything. Input: commands of one byte each, some with bytes behind them:
//   0 k i j w bytes  feed a message of kind k with the ids of the i-th and j-th known connection,
//                    from host w, its other fields from the bytes
//   1 bytes          feed 256 bytes as they are
//   2 connect   3 look up    4 i ready      5 i accept   6 i reject   7 i disconnect
//   8 i release 9 i refused 10 n time passes 11 i answer a lookup   12 i traffic
// Commands are taken modulo their number, i modulo how many there are.
#include "engine/cm/ib_manager.h"

#include <algorithm>
#include <cstring>
#include <vector>

#include "fuzz/check.h"

namespace {

using namespace airdma;
using namespace airdma::ibcm;

constexpr std::size_t kBacklog = 4;
constexpr std::size_t kMostCalls = 64;  // connections that the program asks for

class Input {
 public:
  explicit Input(Bytes bytes) : bytes_(bytes) {}
  [[nodiscard]] bool empty() const { return bytes_.empty(); }
  std::uint8_t byte() {
    if (bytes_.empty()) return 0;
    const auto value = std::to_integer<std::uint8_t>(bytes_.front());
    bytes_ = bytes_.subspan(1);
    return value;
  }
  void fill(MutableBytes out) {
    for (std::byte& b : out) b = std::byte{byte()};
  }

 private:
  Bytes bytes_;
};

model::AddressVector way_back(std::uint8_t who) {
  model::AddressVector path;
  path.source = model::Gid::from_v4({10, 0, 0, 1});
  path.destination = model::Gid::from_v4({10, 0, 0, static_cast<std::uint8_t>(who % 2 + 1)});
  return path;
}

class Subject {
 public:
  explicit Subject(Bytes bytes) : input_(bytes) { manager_.listen(kService, {}, kBacklog); }

  void run() {
    while (!input_.empty()) {
      step();
      drain();
      FUZZ_CHECK(pending_ok());
    }
    for (const auto id : ids_) manager_.release(id, now_);
    // Whatever happened, everything ends by itself.
    for (int turns = 0; manager_.next_deadline(); ++turns) {
      FUZZ_CHECK(turns < 100000);
      now_ = std::max(now_, *manager_.next_deadline());
      manager_.on_deadline(now_);
      drain();
    }
    FUZZ_CHECK(manager_.size() == 0);
  }

 private:
  static constexpr ServiceId kService = wire::service_of(0x0106, 1);

  CommunicationId known() {
    const std::uint8_t which = input_.byte();
    return ids_.empty() ? CommunicationId{which} : ids_[which % ids_.size()];
  }
  [[nodiscard]] bool pending_ok() const {
    // Nobody else makes any.
    return manager_.size() <= kBacklog + ids_.size();
  }

  void step() {
    switch (input_.byte() % 13) {
      case 0:
        return feed_message();
      case 1: {
        wire::MadBuffer mad;
        input_.fill(mad);
        return manager_.on_mad(mad, way_back(0), now_);
      }
      case 2:
        return connect();
      case 3:
        return look_up();
      case 4:
        manager_.ready(known(), {});
        return;
      case 5:
        manager_.accept(known(), {.qpn = Qpn{input_.byte()}}, now_);
        return;
      case 6:
        manager_.reject(known(), wire::CmRejectReason::kConsumer, {}, {}, now_);
        return;
      case 7:
        manager_.disconnect(known(), {}, now_);
        return;
      case 8:
        return manager_.release(known(), now_);
      case 9:
        return manager_.on_refused(known(), now_);
      case 10:
        now_ += std::chrono::milliseconds(1 << (input_.byte() % 18));
        return manager_.on_deadline(now_);
      case 11:
        manager_.answer(known(), {.qpn = Qpn{1}}, now_);
        return;
      case 12:
        manager_.traffic_seen(known());
        return;
    }
  }

  void connect() {
    if (++calls_ > kMostCalls) return;
    ConnectParams params;
    params.service = kService;
    params.path = way_back(input_.byte());
    params.qpn = Qpn{input_.byte()};
    if (const auto id = manager_.connect(params, now_)) ids_.push_back(*id);
  }
  void look_up() {
    if (++calls_ > kMostCalls) return;
    const auto id = manager_.look_up({.service = kService, .path = way_back(input_.byte())}, now_);
    if (id) ids_.push_back(*id);
  }

  /// A well-formed message, with ids that mean something.
  void feed_message() {
    constexpr std::size_t kIds = 24;
    wire::MadBuffer mad{};
    const std::uint8_t kind = input_.byte();
    const be32 first = known().value();
    const be32 second = known().value();
    const std::uint8_t who = input_.byte();
    const wire::MadHeader header{.base_version = wire::kMadBaseVersion,
                                 .management_class = wire::kMadClassCm,
                                 .class_version = wire::kMadCmClassVersion,
                                 .method = wire::kMadMethodSend,
                                 .status = {},
                                 .class_specific = {},
                                 .transaction_id = std::uint64_t{who},
                                 .attribute_id = static_cast<std::uint16_t>(0x10 + kind % 11),
                                 .reserved = {},
                                 .attribute_modifier = {}};
    std::memcpy(mad.data(), &header, sizeof header);
    input_.fill(MutableBytes(mad).subspan(kIds, 16 + kind % 64));
    std::memcpy(mad.data() + kIds, &first, sizeof first);
    std::memcpy(mad.data() + kIds + 4, &second, sizeof second);
    const be64 service = kService.value();
    if (kind % 11 == 0 || kind % 11 == 7) std::memcpy(mad.data() + kIds + 8, &service, 8);
    manager_.on_mad(mad, way_back(who), now_);
  }

  void drain() {
    while (const auto event = manager_.poll_event()) {
      const bool fresh = event->kind == EventKind::kRequest || event->kind == EventKind::kLookup;
      if (fresh) ids_.push_back(event->id);
    }
    while (manager_.poll_transmit()) {
    }
  }

  Input input_;
  Time now_{};
  Manager manager_{{.id_block = 5, .seed = 7}};
  std::vector<CommunicationId> ids_;
  std::size_t calls_ = 0;
};

}  // namespace

int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  Subject(airdma::fuzz::input(data, size)).run();
  return 0;
}
