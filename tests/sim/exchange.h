// SPDX-License-Identifier: MIT
// Two programs that give each other random work, and what each may expect of its completions and
// its memory, whatever lies between them. The worlds of the transports add what does
// (iwarp_world.h, roce_world.h). The first thing that does not hold is kept as text.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "base/time.h"
#include "model/completion.h"
#include "tests/sim/posting.h"
#include "tests/sim/random.h"

namespace airdma::sim {

/// What the programs of one run do.
struct Scale {
  std::uint32_t max_message = 0;  // bytes
  std::size_t source_bytes = 0;   // of each program
  std::size_t sink_bytes = 0;
  std::size_t long_one_in = 8;   // so many messages may be long
  bool write_is_placed = false;  // when it completes
};

/// What a program has posted.
struct SendRecord {
  Post post;
  std::size_t source = 0;  // offsets into the arenas
  std::size_t target = 0;
  std::uint32_t length = 0;
  bool consumes_receive = false;
};
struct ReceiveRecord {
  std::size_t offset = 0;
  std::uint32_t capacity = 0;
};

/// One program: its memory, its work, and how far it has come. Its counter, which the peer's
/// atomics work on, is at the end of the sink.
struct Program {
  static constexpr std::uint32_t kDepth = 16;
  static constexpr std::size_t kMaxSge = 3;

  Program(model::MemoryTable& table, model::SendQueue& its_sq, model::ReceiveQueue& its_rq,
          const Scale& scale, Random& random);

  model::SendQueue& sq;
  model::ReceiveQueue& rq;
  Buffer source;                 // what is sent and read from: never changes
  Buffer sink;                   // what is received, read and written into
  std::vector<std::byte> image;  // of sink: what must be there where nothing is on its way
  std::vector<bool> busy;        // per byte of sink: something is
  std::size_t sink_used = 0;
  std::uint64_t counter = 0;  // what ours is, by those atomics of the peer that are complete
  std::vector<SendRecord> sends;
  std::vector<ReceiveRecord> receives;
  std::size_t messages = 0;   // sends that meet a receive
  std::size_t next_send = 0;  // first that has not completed
  std::size_t next_receive = 0;
  std::size_t next_message = 0;  // first of our sends that met no receive at the peer
  bool blamed = false;           // a work request failed for a reason of its own
};

class Exchange {
 public:
  Exchange(const Exchange&) = delete;
  Exchange& operator=(const Exchange&) = delete;

  /// Runs to the end. Empty, or what went wrong.
  std::string run();

 protected:
  Exchange(std::uint64_t seed, Scale (*choose)(Random&));
  ~Exchange() = default;

  // What a transport adds.
  /// One thing happens.
  virtual void step() = 0;
  /// Trouble, if there is to be any; sets disturbed_ when work may fail from now on.
  virtual void disturb() = 0;
  /// Runs on without new sends until nothing moves.
  virtual void settle() = 0;
  virtual void check_end() = 0;
  [[nodiscard]] virtual Program& program(std::size_t i) = 0;
  /// What the endpoints say of themselves, for a failure's text.
  [[nodiscard]] virtual std::string endpoints() const = 0;
  /// Whether a send may end like this, once disturbed.
  [[nodiscard]] virtual bool may_fail_with(model::WcStatus) const { return true; }
  /// Whether all that arrives must be what was sent.
  [[nodiscard]] virtual bool payload_is_safe() const { return true; }

  /// Whether one was posted. The endpoint is not told of receives.
  bool post_send(Program& one, Program& peer);
  bool post_receive(Program& one, const Program& peer);
  void take(Program& one, Program& peer, const model::Completion& wc);
  /// What is left is complete, too, as nobody was to be told of it.
  void check_rest(Program& one, Program& peer);
  void check_memory(Program& one);
  /// A part of some program's memory, at every step: all of it at the end.
  void look_at_memory();
  void check_counter(Program& one);
  void fail(const std::string& what);
  [[nodiscard]] bool failed() const { return !failure_.empty(); }
  [[nodiscard]] bool may_post() { return posts_left_ != 0 && posts_left_-- != 0; }

  Random random_;
  const Scale scale_;
  Time now_{};
  bool disturbed_ = false;

 private:
  void check_memory(Program& one, std::size_t begin, std::size_t end);
  [[nodiscard]] bool has_room(const Program& one, std::size_t bytes) const;
  [[nodiscard]] std::vector<model::Sge> pieces(std::uint64_t base, std::uint32_t length, Stag key);
  void choose_memory(Program& one, Program& peer, SendRecord& record);
  void choose_counter(Program& one, SendRecord& record);
  void take_send(Program& one, Program& peer, const model::Completion& wc);
  void take_receive(Program& one, Program& peer, const model::Completion& wc);
  void sent(Program& one, Program& peer, const SendRecord& record);
  void atomic_done(Program& one, Program& peer, const SendRecord& record);
  void check_message(Program& one, Program& peer, const ReceiveRecord& receive,
                     const SendRecord& message, const model::Completion& wc);
  [[nodiscard]] static bool same(Program& to, std::size_t sink_at, Program& from,
                                 std::size_t source_at, std::uint32_t length);
  static void reserve(Program& owner, std::size_t offset, std::size_t length);
  void hand_over(Program& owner, std::size_t offset, std::size_t length) const;

  std::size_t posts_left_;
  std::string failure_;
};

}  // namespace airdma::sim
