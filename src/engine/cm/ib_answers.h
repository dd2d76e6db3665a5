// SPDX-License-Identifier: MIT
// Answers to requests whose sender may not have heard them and asks again.
#pragma once

#include <cstdint>
#include <deque>
#include <map>

#include "base/time.h"
#include "engine/cm/ib_types.h"

namespace airdma::ibcm {

/// Who asked: a connection or a lookup of a peer, by its own name for it.
struct RemoteName {
  model::Gid gid;
  std::uint64_t ca_guid = 0;  // 0 for lookups, which do not tell
  CommunicationId id;
  friend auto operator<=>(const RemoteName&, const RemoteName&) = default;
};

class Answers {
 public:
  /// Limit: what is forgotten early is asked anew, and its program once more.
  static constexpr std::size_t kMost = 1024;
  static constexpr Duration kKept = std::chrono::seconds(10);

  void remember(const RemoteName& name, std::uint64_t transaction_id, const wire::MadBuffer& answer,
                Time now) {
    forget_old(now);
    if (order_.size() == kMost) forget_oldest();
    answers_[name] = {transaction_id, answer, ++serial_};
    order_.push_back({name, serial_, now + kKept});
  }
  /// Null when the request is not the one that was answered.
  [[nodiscard]] const wire::MadBuffer* find(const RemoteName& name, std::uint64_t transaction_id,
                                            Time now) {
    forget_old(now);
    const auto found = answers_.find(name);
    if (found == answers_.end() || found->second.transaction_id != transaction_id) return nullptr;
    return &found->second.bytes;
  }
  [[nodiscard]] std::size_t size() const { return answers_.size(); }

 private:
  struct Answer {
    std::uint64_t transaction_id = 0;
    wire::MadBuffer bytes{};
    std::uint64_t serial = 0;
  };
  struct Entry {
    RemoteName name;
    std::uint64_t serial = 0;
    Time until{};
  };

  void forget_old(Time now) {
    while (!order_.empty() && order_.front().until <= now) forget_oldest();
  }
  void forget_oldest() {
    const auto found = answers_.find(order_.front().name);
    // It may have been replaced by a later answer.
    if (found != answers_.end() && found->second.serial == order_.front().serial) {
      answers_.erase(found);
    }
    order_.pop_front();
  }

  std::map<RemoteName, Answer> answers_;
  std::deque<Entry> order_;
  std::uint64_t serial_ = 0;
};

}  // namespace airdma::ibcm
