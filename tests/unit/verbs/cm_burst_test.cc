// SPDX-License-Identifier: MIT
// Many connections at once, and channels that several threads share.
#include <dirent.h>
#include <fcntl.h>
#include <malloc.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "tests/unit/verbs/cm_fixture.h"
#include "verbs/api.h"
#include "verbs/cm_state.h"

namespace airdma::cm {
namespace {

#if defined(__SANITIZE_THREAD__) || defined(__SANITIZE_ADDRESS__)
constexpr int kBurst = 100;
#else
constexpr int kBurst = 1000;
#endif

/// An address of loopback that no other test uses at the same time. On a shared one somebody who
/// connects to a port that he believes to be closed may meet a listener here, and be one too many.
const char* own_host() {
  static const std::string host = [] {
    const auto pid = static_cast<unsigned>(::getpid());
    return "127." + std::to_string(1 + (pid >> 16 & 0x7f)) + "." + std::to_string(pid >> 8 & 0xff) +
           "." + std::to_string(pid & 0xff);
  }();
  return host.c_str();
}

std::size_t open_descriptors() {
  DIR* folder = ::opendir("/proc/self/fd");
  std::size_t count = 0;
  while (::readdir(folder) != nullptr) ++count;
  ::closedir(folder);
  return count;
}

/// The progress thread closes sockets when their peers have, so that takes a moment.
bool closes_down_to(std::size_t descriptors) {
  const auto give_up = std::chrono::steady_clock::now() + std::chrono::seconds(20);
  while (open_descriptors() > descriptors) {
    if (std::chrono::steady_clock::now() > give_up) return false;
    std::this_thread::yield();
  }
  return true;
}

/// Of the allocator; nothing under sanitizers, which have their own.
std::size_t bytes_in_use() {
  const struct mallinfo2 info = ::mallinfo2();
  return info.uordblks + info.hblkhd;
}

/// As many as the process may have descriptors for: two sockets each.
int burst_size() {
  rlimit descriptors{};
  ::getrlimit(RLIMIT_NOFILE, &descriptors);
  return static_cast<int>(std::min<rlim_t>(descriptors.rlim_cur / 3, kBurst));
}

class CmBurstTest : public CmTest {
 protected:
  /// All queue pairs of a side share a completion queue, so that a connection costs two sockets.
  static void give_qp_on(rdma_cm_id* id, ibv_cq*& cq) {
    if (cq == nullptr) cq = verbs::create_cq(id->verbs, 16, nullptr, nullptr, 0).value();
    auto attr = small_qp();
    attr.send_cq = attr.recv_cq = cq;
    ASSERT_EQ(code_of(create_qp(id, nullptr, &attr)), 0);
  }
  /// Accepts `count` requests; returns the new ids once all are established.
  std::vector<rdma_cm_id*> serve(int count) {
    std::vector<rdma_cm_id*> ids;
    for (int established = 0; established < count;) {
      const Seen seen = server_.next();
      if (seen.type == RDMA_CM_EVENT_CONNECT_REQUEST) {
        ids.push_back(seen.id);
        give_qp_on(seen.id, passive_cq_);
        EXPECT_TRUE(accept(seen.id, nullptr));
      } else if (seen.type == RDMA_CM_EVENT_ESTABLISHED) {
        ++established;
      } else {
        ADD_FAILURE() << "event " << seen.type << " status " << seen.status;
        break;
      }
    }
    return ids;
  }
  /// Resolves and connects `count` ids without waiting for an answer.
  std::vector<rdma_cm_id*> connect_all(int count) {
    std::vector<rdma_cm_id*> ids;
    auto peer = address(own_host(), port_);
    for (int i = 0; i < count; ++i) {
      rdma_cm_id* id = new_id(client_channel_);
      EXPECT_EQ(code_of(resolve_addr(id, nullptr, raw(peer), 1000)), 0);
      EXPECT_EQ(client_channel_.next().type, RDMA_CM_EVENT_ADDR_RESOLVED);
      EXPECT_EQ(code_of(resolve_route(id, 1000)), 0);
      EXPECT_EQ(client_channel_.next().type, RDMA_CM_EVENT_ROUTE_RESOLVED);
      give_qp_on(id, active_cq_);
      ids.push_back(id);
    }
    for (rdma_cm_id* id : ids) EXPECT_EQ(code_of(connect(id, nullptr)), 0);
    return ids;
  }
  void run_burst(int count) {
    std::vector<rdma_cm_id*> accepted;
    std::thread server([&] { accepted = serve(count); });
    const auto ids = connect_all(count);
    int established = 0;
    for (int i = 0; i < count; ++i) {
      const Seen seen = client_channel_.next();
      if (seen.type == RDMA_CM_EVENT_ESTABLISHED) ++established;
    }
    server.join();
    EXPECT_EQ(established, count);
    EXPECT_EQ(accepted.size(), static_cast<std::size_t>(count));
    for (rdma_cm_id* id : ids) drop(id);
    for (rdma_cm_id* id : accepted) drop(id);
  }
  void TearDown() override {
    CmTest::TearDown();
    for (ibv_cq* cq : {active_cq_, passive_cq_}) {
      if (cq != nullptr) {
        EXPECT_EQ(code_of(verbs::destroy_cq(cq)), 0);
      }
    }
  }

  ibv_cq* active_cq_ = nullptr;
  ibv_cq* passive_cq_ = nullptr;
};

TEST_F(CmBurstTest, NoConnectionOfManyIsLost) {
  start_listening(own_host(), 8);
  run_burst(10);  // what is opened once is open
  const std::size_t before = open_descriptors();
  run_burst(burst_size());
  EXPECT_TRUE(closes_down_to(before));
  // What a connection leaks, every burst leaks again, in blocks of 32 bytes at least. What is kept
  // to be used again grows, too, but in some bursts only, and with their peaks: the allocator's
  // blocks for each thread, the buffers of streams, the chunks of the pools of objects.
  const auto slack = static_cast<std::size_t>(burst_size()) * 16;
  bool grew = true;
  for (int bursts = 0; grew && bursts < 8; ++bursts) {
    const std::size_t memory = bytes_in_use();
    run_burst(burst_size());
    EXPECT_TRUE(closes_down_to(before));
    grew = bytes_in_use() > memory + slack;
  }
  EXPECT_FALSE(grew);
}

TEST_F(CmBurstTest, BacklogBoundsWhatIsUnfetched) {
  start_listening(own_host(), 3);
  constexpr int kClients = 20;
  const auto ids = connect_all(kClients);
  std::vector<rdma_cm_id*> requests;
  for (int i = 0; i < kClients; ++i) {
    const Seen seen = server_.next();
    ASSERT_EQ(seen.type, RDMA_CM_EVENT_CONNECT_REQUEST);
    requests.push_back(seen.id);
  }
  EXPECT_FALSE(server_.readable());
  EXPECT_FALSE(client_channel_.readable());  // nobody was turned away
  for (rdma_cm_id* id : requests) drop(id);
  for (rdma_cm_id* id : ids) {
    EXPECT_EQ(client_channel_.next().type, RDMA_CM_EVENT_REJECTED);
    (void)id;
  }
  for (rdma_cm_id* id : ids) drop(id);
}

TEST_F(CmBurstTest, WaitingRequestsEndWithTheirListener) {
  start_listening(own_host(), 1);
  constexpr int kClients = 5;
  const auto ids = connect_all(kClients);
  rdma_cm_id* first = server_.next().id;  // so that at least one more is queued, and others wait
  drop(std::exchange(listener_, nullptr));
  drop(first);
  for (int i = 0; i < kClients; ++i) {
    EXPECT_EQ(client_channel_.next().type, RDMA_CM_EVENT_REJECTED);
  }
  for (rdma_cm_id* id : ids) drop(id);
}

TEST_F(CmBurstTest, WaitingIsBounded) {
  start_listening(own_host(), 1);
  constexpr std::size_t kWaiting = 25;
  {
    std::lock_guard lock(control().mutex);
    Id* listener = find_id(listener_);
    EXPECT_GT(listener->most_waiting, kWaiting);
    listener->most_waiting = kWaiting;
  }
  const auto ids = connect_all(1 + static_cast<int>(kWaiting) + 1);
  EXPECT_EQ(client_channel_.next().type, RDMA_CM_EVENT_REJECTED);  // one too many
  EXPECT_FALSE(client_channel_.readable());
  for (rdma_cm_id* id : ids) drop(id);
}

TEST_F(CmBurstTest, FourThreadsShareAChannelAndOthersAcknowledge) {
  start_listening(own_host(), 64);
  const int count = burst_size() / 5;
  std::mutex mutex;
  std::vector<rdma_cm_event*> handled;
  std::vector<rdma_cm_id*> accepted;
  std::atomic<int> established{0};
  std::atomic<bool> over{false};
  // O_NONBLOCK: a thread that found nothing looks whether all is done.
  const auto handler = [&] {
    while (!over) {
      if (!server_.readable(20)) continue;
      rdma_cm_event* event = nullptr;
      if (!get_cm_event(server_.get(), &event)) continue;
      if (event->event == RDMA_CM_EVENT_CONNECT_REQUEST) {
        std::lock_guard lock(mutex);
        accepted.push_back(event->id);
        give_qp_on(event->id, passive_cq_);
        EXPECT_TRUE(accept(event->id, nullptr));
      }
      if (event->event == RDMA_CM_EVENT_ESTABLISHED) ++established;
      std::lock_guard lock(mutex);
      handled.push_back(event);
    }
  };
  ASSERT_EQ(::fcntl(server_.get()->fd, F_SETFL, O_NONBLOCK), 0);
  std::vector<std::thread> handlers;
  for (int i = 0; i < 4; ++i) handlers.emplace_back(handler);
  std::thread acknowledger([&] {
    while (!over) {
      std::vector<rdma_cm_event*> taken;
      {
        std::lock_guard lock(mutex);
        taken.swap(handled);
      }
      for (rdma_cm_event* event : taken) EXPECT_TRUE(ack_cm_event(event));
      if (taken.empty()) std::this_thread::yield();
    }
  });
  const auto ids = connect_all(count);
  for (int i = 0; i < count; ++i) {
    EXPECT_EQ(client_channel_.next().type, RDMA_CM_EVENT_ESTABLISHED);
  }
  while (established < count) std::this_thread::yield();
  over = true;
  for (std::thread& thread : handlers) thread.join();
  acknowledger.join();
  for (rdma_cm_event* event : handled) EXPECT_TRUE(ack_cm_event(event));
  EXPECT_EQ(accepted.size(), static_cast<std::size_t>(count));
  for (rdma_cm_id* id : ids) drop(id);
  for (rdma_cm_id* id : accepted) drop(id);
}

TEST_F(CmBurstTest, FourThreadsSleepOnAChannel) {
  start_listening(own_host(), 64);
  const int count = burst_size() / 5;
  std::mutex mutex;
  std::vector<rdma_cm_id*> accepted;
  std::atomic<int> established{0};
  // Each takes events until it takes one of an id that resolves an address.
  const auto handler = [&] {
    for (bool over = false; !over;) {
      rdma_cm_event* event = nullptr;
      ASSERT_TRUE(get_cm_event(server_.get(), &event));
      if (event->event == RDMA_CM_EVENT_CONNECT_REQUEST) {
        std::lock_guard lock(mutex);
        accepted.push_back(event->id);
        give_qp_on(event->id, passive_cq_);
        EXPECT_TRUE(accept(event->id, nullptr));
      }
      if (event->event == RDMA_CM_EVENT_ESTABLISHED) ++established;
      over = event->event == RDMA_CM_EVENT_ADDR_RESOLVED;
      EXPECT_TRUE(ack_cm_event(event));
    }
  };
  std::vector<std::thread> handlers;
  for (int i = 0; i < 4; ++i) handlers.emplace_back(handler);
  const auto ids = connect_all(count);
  for (int i = 0; i < count; ++i) {
    EXPECT_EQ(client_channel_.next().type, RDMA_CM_EVENT_ESTABLISHED);
  }
  while (established < count) std::this_thread::yield();
  std::vector<rdma_cm_id*> last;
  auto peer = address(own_host(), port_);
  for (int i = 0; i < 4; ++i) {
    last.push_back(new_id(server_));
    EXPECT_EQ(code_of(resolve_addr(last.back(), nullptr, raw(peer), 1000)), 0);
  }
  for (std::thread& thread : handlers) thread.join();
  EXPECT_EQ(accepted.size(), static_cast<std::size_t>(count));
  for (const auto& group : {ids, accepted, last}) {
    for (rdma_cm_id* id : group) drop(id);
  }
}

TEST_F(CmBurstTest, BothSidesDisconnectAtOnce) {
  start_listening();
  for (int round = 0; round < 20; ++round) {
    request();
    ASSERT_TRUE(accept(passive_, nullptr));
    ASSERT_EQ(client_channel_.next().type, RDMA_CM_EVENT_ESTABLISHED);
    ASSERT_EQ(server_.next().type, RDMA_CM_EVENT_ESTABLISHED);
    std::thread other([&] { EXPECT_TRUE(disconnect(passive_)); });
    EXPECT_TRUE(disconnect(client_));
    other.join();
    EXPECT_EQ(client_channel_.next().type, RDMA_CM_EVENT_DISCONNECTED);
    EXPECT_EQ(server_.next().type, RDMA_CM_EVENT_DISCONNECTED);
    EXPECT_FALSE(client_channel_.readable());
    EXPECT_FALSE(server_.readable());
    drop(std::exchange(passive_, nullptr));
    drop(std::exchange(client_, nullptr));
  }
}

}  // namespace
}  // namespace airdma::cm
