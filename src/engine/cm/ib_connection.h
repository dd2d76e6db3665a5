// SPDX-License-Identifier: MIT
// One connection of the InfiniBand connection manager (IBTA vol. 1, 12.9): what its messages and
// its program's calls do to it. Which connection a message is for, and what is no connection's, is
// the manager's to say (ib_manager.h). No clock, no socket; not thread-safe.
#pragma once

#include <cstdint>
#include <optional>

#include "engine/cm/ib_resend.h"
#include "engine/cm/ib_types.h"

namespace airdma::ibcm {

/// Takes what connections and lookups send and report.
class Outbox {
 public:
  virtual void send(const OutMad& mad) = 0;
  virtual void report(const Event& event) = 0;

 protected:
  ~Outbox() = default;
};

//   active                                    passive
//
//   connect()                                 (a REQ came: kRequest)
//      | REQ                                     |
//   kReqSent --(REJ: kRejected)--> kOver      kReqReceived --reject(): REJ----------> kOver
//      |  `---(silence: kUnreachable)--> kOver   |      `----(REJ: kRequestLost)----> kOver
//      | (REP: kReply)                           | accept(): REP
//   kRepReceived --reject(): REJ----> kOver   kRepSent --(REJ: kRejected)-----------> kOver
//      |     `-(REJ: kRejected)-----> kOver      |    `--(silence: kUnreachable)----> kOver
//      | ready(): RTU                            | (RTU, traffic, DREQ: kEstablished)
//      `-----------------> kEstablished <--------'
//                           |          |
//        disconnect(): DREQ |          | (DREQ: kDisconnected)
//                           |          |
//                       kDreqSent   kDreqReceived
//                           |          |
//   (DREP, DREQ, silence:   |          | disconnect(): DREP
//    kDisconnected)         `----> kTimewait --(time: kTimewaitOver)--> kOver
//
// A DREQ is answered when the program has done with the connection: until then its queue pair
// works, and the peer's name stays taken. A REJ ends an established connection at once. release()
// ends any state by itself, with the message that the peer has to hear of, and reports nothing
// more.
class Connection {
 public:
  enum class State : std::uint8_t {
    kReqSent,
    kRepReceived,
    kReqReceived,
    kRepSent,
    kEstablished,
    kDreqSent,
    kDreqReceived,
    kTimewait,
    kOver,
  };

  /// Active: sends the REQ. Its private data has to fit.
  Connection(Outbox& outbox, CommunicationId id, std::uint64_t transaction_id,
             const ConnectParams& params, Time now);
  /// Passive: reports the request, a REQ.
  Connection(Outbox& outbox, CommunicationId id, const wire::CmMad& parsed,
             const model::AddressVector& way_back, ListenerId listener);

  // Calls of the program. False, and nothing changes, in a state that does not allow it or when
  // private data is too long.
  bool ready(Bytes private_data);
  bool accept(const AcceptParams& params, Time now);
  bool reject(wire::CmRejectReason reason, Bytes additional, Bytes private_data);
  bool disconnect(Bytes private_data, std::uint64_t transaction_id, Time now);
  /// A message arrived on the queue pair, so that the peer must have got the REP.
  bool traffic_seen();
  void release(std::uint64_t transaction_id, Time now);

  // What the network brings.
  void on_message(const wire::CmMad& mad, Time now);
  /// The REQ that made this connection, once more.
  void on_duplicate_request();
  /// The peer asks for a connection by a name or a queue pair that is this one's: it has forgotten
  /// this one.
  void on_peer_restarted();
  /// The process that the peer was has ended without a word.
  void on_peer_gone(Time now);
  /// The host itself says that nobody is there for the last message.
  void on_refused(Time now);
  void on_deadline(Time now);
  [[nodiscard]] std::optional<Time> next_deadline() const;

  [[nodiscard]] State state() const { return state_; }
  [[nodiscard]] CommunicationId id() const { return id_; }
  [[nodiscard]] CommunicationId remote_id() const { return remote_id_; }
  [[nodiscard]] bool knows_remote_id() const { return remote_id_ != CommunicationId{}; }
  /// Where its messages come from and go to.
  [[nodiscard]] const model::AddressVector& path() const { return path_; }
  [[nodiscard]] std::uint64_t remote_ca_guid() const { return remote_ca_guid_; }
  [[nodiscard]] Qpn remote_qpn() const { return remote_qpn_; }
  [[nodiscard]] Psn remote_psn() const { return remote_psn_; }
  [[nodiscard]] std::uint64_t transaction_id() const { return transaction_id_; }
  [[nodiscard]] ListenerId listener() const { return listener_; }
  [[nodiscard]] bool active() const { return active_; }
  /// The last REP or REJ of a passive side, for a peer that asks again.
  [[nodiscard]] const wire::MadBuffer& last_sent() const { return sent_.bytes; }

 private:
  void on(const wire::CmRep& rep, const wire::CmMad& mad);
  void on(const wire::CmRtu& rtu);
  void on(const wire::CmMra& mra, Time now);
  void on(const wire::CmRej& rej, const wire::CmMad& mad, Time now);
  void on(const wire::CmDreq& dreq, const wire::CmMad& mad, Time now);
  void on(const wire::CmDrep& drep, Time now);

  /// Remembers it as the message to send again.
  bool send(const wire::CmMessage& message, std::uint64_t transaction_id);
  bool send(const wire::CmMessage& message) { return send(message, transaction_id_); }
  /// Leaves the remembered one alone.
  void send_once(const wire::CmMessage& message, std::uint64_t transaction_id);
  void send_again();
  void send_dreq(Bytes private_data, std::uint64_t transaction_id, Time now);
  void send_rej(wire::CmAnswered answered, wire::CmRejectReason reason, Bytes additional,
                Bytes private_data);
  void send_cancel();
  void report(EventKind kind);
  void report(EventKind kind, const wire::CmMad& mad);
  bool try_later(wire::CmRejectReason reason, Time now);
  void give_up(Time now);
  void answer_dreq(Bytes private_data, Time now);
  void wait_out(Time now);
  void end();

  Outbox& outbox_;
  State state_;
  CommunicationId id_;
  CommunicationId remote_id_{};
  CommunicationId mra_id_{};          // what the peer calls a request that it has not answered
  std::uint64_t transaction_id_ = 0;  // of the REQ
  std::uint64_t dreq_id_ = 0;         // transaction of the peer's DREQ
  model::AddressVector path_;
  std::uint64_t ca_guid_ = 0;
  std::uint64_t remote_ca_guid_ = 0;
  Qpn qpn_{};
  Qpn remote_qpn_{};
  Psn remote_psn_{};
  wire::CmTransport transport_ = wire::CmTransport::kRc;
  ListenerId listener_{};
  bool active_ = false;
  bool released_ = false;
  unsigned refusals_ = 0;
  Duration response_timeout_{};
  unsigned max_cm_retries_ = 0;
  Duration timewait_{};
  Resend resend_;
  std::optional<Time> timewait_end_;
  OutMad sent_;
};

}  // namespace airdma::ibcm
