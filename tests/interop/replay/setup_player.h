// SPDX-License-Identifier: MIT
// MPA setup of one side, with engine/cm: the policies are what the captured frames show.
#pragma once

#include <optional>
#include <string>

#include "engine/cm/mpa_connection.h"
#include "engine/iwarp/endpoint.h"
#include "tests/interop/replay/compare.h"

namespace airdma::interop {

class SetupPlayer {
 public:
  SetupPlayer(const Conversation& conversation, const Script& script, Deviations& used);

  /// Why the engine cannot be told to do as the captured side did, else "".
  [[nodiscard]] const std::string& unsupported() const { return unsupported_; }
  /// Feeds events until setup is over; the index of the event that ended it (whose bytes after
  /// used_of_event() belong to the FPDU stream), or the number of events.
  [[nodiscard]] std::size_t run();
  [[nodiscard]] std::uint64_t used_of_event() const { return used_of_event_; }
  [[nodiscard]] bool established() const { return established_ && !difference_; }
  [[nodiscard]] const std::optional<Difference>& difference() const { return difference_; }
  [[nodiscard]] std::string compared() const;
  [[nodiscard]] iwarp::StreamParams params() const;

 private:
  [[nodiscard]] mpa::Offer initiator_offer() const;
  [[nodiscard]] mpa::Offer responder_offer() const;
  [[nodiscard]] std::size_t run_initiator();
  [[nodiscard]] std::size_t run_responder();
  void judge_reply(const mpa::Initiator& initiator);
  void answer(mpa::Responder& responder);
  void differ(std::string what, std::string expected, std::string ours);
  [[nodiscard]] Bytes peer_bytes(const Event& event) const;

  const Conversation& conversation_;
  const Script& script_;
  Deviations& used_;
  std::string unsupported_;
  std::optional<Difference> difference_;
  mpa::Agreement agreement_;
  bool established_ = false;
  bool identical_ = false;
  std::uint64_t used_of_event_ = 0;
};

}  // namespace airdma::interop
