// SPDX-License-Identifier: MIT
// A peer that does anything, against an operational endpoint with memory, receives and READs.
// Input: a byte of options, then commands of one byte each, some with a length and bytes behind it:
//   0 n bytes   feed them as they are            1 n bytes   feed them as one good FPDU
//   2           post a receive                   3           post a READ
//   4           post a SEND                      5           poll and report as transmitted
//   6           let time pass                    7           the memory is deregistered
//   8           FIN                              9           reset
//   10          disconnect                       11          fail
//   12          post a FETCH_ADD                 13          post a COMPARE_SWAP
//   14          post a SEND_WITH_IMM             15          post a WRITE_WITH_IMM
// Commands are taken modulo their number; n is two bytes.
#include <utility>
#include <vector>

#include "engine/iwarp/endpoint.h"
#include "fuzz/check.h"
#include "fuzz/subject.h"
#include "model/work.h"
#include "tests/sim/wire_peer.h"

namespace {

using namespace airdma;
using fuzz::Commands;
using fuzz::GuardedMemory;

constexpr std::uint64_t kBase = GuardedMemory::kBase;
constexpr Stag kKey = GuardedMemory::kKey;

class Subject {
 public:
  explicit Subject(std::uint8_t options)
      : sends_(8, 2, 16),
        receives_(8, 2, 0),
        memory_(table_, 256),
        endpoint_({.qpn = Qpn{1}, .pd = GuardedMemory::kPd}, table_, sends_, receives_) {
    iwarp::StreamParams params;
    params.initiator = (options & 1) != 0;
    params.crc = (options & 2) != 0;
    params.receive_markers = (options & 4) != 0;
    params.send_markers = (options & 8) != 0;
    params.ird = params.ord = 2;
    params.max_ulpdu = (options & 16) != 0 ? 128 : 65535;
    params.rtr = static_cast<iwarp::Rtr>(options >> 6);
    endpoint_.start(params, now_);
  }

  void feed(Bytes bytes) {
    if (!ended_ && endpoint_.wants_input()) endpoint_.on_bytes(bytes, now_);
  }
  void feed_framed(Bytes ulpdu) { feed(sim::fpdu_of(ulpdu)); }
  void post_receive() {
    if (receives_.free_slots() == 0) return;
    model::ReceiveWqe& wqe = receives_.slot(0);
    wqe.wr_id = posted_++;
    wqe.sge_count = 2;
    wqe.sges[0] = {.addr = kBase, .length = 3, .lkey = kKey};
    wqe.sges[1] = {.addr = kBase + 100, .length = 60, .lkey = kKey};
    wqe.length = 63;
    receives_.publish(1);
    endpoint_.on_receives_posted(now_);
  }
  void post_send(model::SendOpcode opcode, std::uint32_t length = 40) {
    if (sends_.free_slots() == 0) return;
    model::SendWqe& wqe = sends_.slot(0);
    wqe.wr_id = posted_++;
    wqe.opcode = opcode;
    wqe.signaled = true;
    wqe.sge_count = 1;
    wqe.sges[0] = {.addr = kBase + 10, .length = length, .lkey = kKey};
    wqe.length = length;
    wqe.rkey = Stag{0x99};
    sends_.publish(1);
  }
  void poll() {
    std::vector<std::byte> out(2048);
    for (int i = 0; i < 8; ++i) {
      const std::size_t bytes = endpoint_.poll_transmit(out, now_);
      FUZZ_CHECK(bytes <= out.size());
      if (bytes == 0) break;
      endpoint_.on_transmitted(bytes, now_);
    }
  }
  void pass_time() {
    now_ += std::chrono::milliseconds(20);
    endpoint_.on_deadline(now_);
  }
  void withdraw() { memory_.withdraw(); }
  void end(iwarp::StreamEnd how) {
    if (!std::exchange(ended_, true)) endpoint_.on_stream_end(how, now_);
  }
  void disconnect() { endpoint_.disconnect(now_); }
  void fail() { endpoint_.fail(now_); }

  void check() {
    completed_ += endpoint_.completions().size();
    endpoint_.clear_completions();
    while (endpoint_.poll_event()) {
    }
    memory_.check();
    const std::size_t left =
        (sends_.tail() - sends_.head()) + (receives_.tail() - receives_.head());
    FUZZ_CHECK(completed_ + left == posted_);
    FUZZ_CHECK(endpoint_.wants_input() || endpoint_.wants_receives());
    if (endpoint_.state() == iwarp::EndpointState::kError) FUZZ_CHECK(left == 0);
  }

 private:
  model::MemoryTable table_;
  model::SendQueue sends_;
  model::ReceiveQueue receives_;
  GuardedMemory memory_;
  iwarp::Endpoint endpoint_;
  Time now_{};
  std::uint64_t posted_ = 0;
  std::uint64_t completed_ = 0;
  bool ended_ = false;
};

void command(Subject& subject, unsigned code, Commands& input) {
  switch (code % 16) {
    case 0:
      return subject.feed(input.counted_bytes());
    case 1:
      return subject.feed_framed(input.counted_bytes());
    case 2:
      return subject.post_receive();
    case 3:
      return subject.post_send(model::SendOpcode::kRead);
    case 4:
      return subject.post_send(model::SendOpcode::kSend);
    case 5:
      return subject.poll();
    case 6:
      return subject.pass_time();
    case 7:
      return subject.withdraw();
    case 8:
      return subject.end(iwarp::StreamEnd::kFin);
    case 9:
      return subject.end(iwarp::StreamEnd::kReset);
    case 10:
      return subject.disconnect();
    case 11:
      return subject.fail();
    case 12:
      return subject.post_send(model::SendOpcode::kFetchAdd, 8);
    case 13:
      return subject.post_send(model::SendOpcode::kCompareSwap, 8);
    case 14:
      return subject.post_send(model::SendOpcode::kSendWithImm);
    default:
      return subject.post_send(model::SendOpcode::kWriteWithImm);
  }
}

}  // namespace

int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  airdma::fuzz::run_commands<Subject>(airdma::fuzz::input(data, size), command);
  return 0;
}
