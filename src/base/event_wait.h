// SPDX-License-Identifier: MIT
// How a program's thread sleeps in one of our calls (ibv_get_cq_event and its like).
//
// Such a thread may be cancelled. The C library then unwinds its stack with an unwinder of its own,
// and that aborts in any frame that has something to clean up, because this library carries another
// copy of it. So nothing sleeps below such frames: io::EventCounter::consume() asks for the wait
// instead, the call returns up to the C function, that one sleeps in read(2) in a frame compiled
// without exceptions (abi/waiting.cc), and the call is made again with what came of it.
#pragma once

namespace airdma {

struct EventWait {
  enum class State : unsigned char {
    kFresh,   // nothing waited for yet
    kWanted,  // read one byte of `fd`, then call again
    kDone,    // that was done: `error` is 0 or the errno of read(2)
  };

  /// In place of a descriptor: nothing will come.
  static constexpr int kForEver = -1;

  State state = State::kFresh;
  int fd = -1;
  int error = 0;

  /// The wait of the call that this thread is in; null where a call may simply block.
  [[gnu::tls_model("initial-exec")]] inline static thread_local EventWait* current = nullptr;
};

}  // namespace airdma
