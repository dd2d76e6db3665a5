// SPDX-License-Identifier: MIT
// Requests for a service whose listener has just ended. Programs connect, exchange a message, and
// connect again while the other side still closes its first listener and opens the next (perftest
// does). Our own active side asks again (ib_resend.h), others take the refusal for the last word:
// so it is given a moment later. Only where there was a listener; nobody else waits to be refused.
#pragma once

#include <algorithm>
#include <cstddef>
#include <deque>
#include <optional>
#include <utility>
#include <vector>

#include "base/time.h"
#include "engine/cm/ib_answers.h"
#include "engine/cm/ib_types.h"

namespace airdma::ibcm {

/// A REQ as it came, and where its answer goes.
struct EarlyRequest {
  RemoteName name;
  ServiceId service;
  wire::MadBuffer mad{};
  model::AddressVector way_back;
  Time until{};
};

class EndedServices {
 public:
  /// From the end of a listener to the last refusal that waits for the next one.
  static constexpr Duration kWait = std::chrono::seconds(1);
  /// Limits: what is beyond them is refused at once.
  static constexpr std::size_t kMostServices = 64;
  static constexpr std::size_t kMostRequests = 64;

  void ended(ServiceId service, Time now) {
    if (services_.size() == kMostServices) services_.pop_front();
    services_.push_back({service, now + kWait});
  }
  /// Keeps a request that nobody listens for, or one that is kept already. False: refuse it.
  [[nodiscard]] bool keep(EarlyRequest request, Time now) {
    const auto until = awaited_until(request.service, now);
    if (!until) return false;
    request.until = *until;
    const auto same = std::ranges::find(requests_, request.name, &EarlyRequest::name);
    if (same != requests_.end()) {
      *same = std::move(request);
      return true;
    }
    if (requests_.size() == kMostRequests) return false;
    requests_.push_back(std::move(request));
    return true;
  }
  /// Those that somebody came for, or nobody.
  template <class Which>
  [[nodiscard]] std::vector<EarlyRequest> take_if(Which which) {
    std::vector<EarlyRequest> taken;
    std::erase_if(requests_, [&](const EarlyRequest& one) {
      if (!which(one)) return false;
      taken.push_back(one);
      return true;
    });
    return taken;
  }
  [[nodiscard]] std::optional<Time> next_deadline() const {
    const auto first = std::ranges::min_element(requests_, {}, &EarlyRequest::until);
    return first != requests_.end() ? std::optional(first->until) : std::nullopt;
  }

 private:
  struct Ended {
    ServiceId service;
    Time until{};
  };

  [[nodiscard]] std::optional<Time> awaited_until(ServiceId service, Time now) const {
    std::optional<Time> until;
    for (const Ended& one : services_) {
      if (one.service == service && one.until > now) until = one.until;
    }
    return until;
  }

  std::deque<Ended> services_;
  std::vector<EarlyRequest> requests_;
};

}  // namespace airdma::ibcm
