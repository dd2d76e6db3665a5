// SPDX-License-Identifier: MIT
// Registered memory that the program takes away: the work that needs it fails, the process lives.
#include <sys/mman.h>
#include <unistd.h>

#include <functional>
#include <thread>

#include "tests/support/lone_pages.h"
#include "tests/unit/verbs/cm_fixture.h"
#include "verbs/api.h"

namespace airdma::cm {
namespace {

constexpr std::size_t kPage = 4096;
constexpr int kAccess = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_WRITE;

/// Registered pages.
struct Memory {
  Memory(ibv_pd* pd, std::size_t bytes_wanted, int fd = -1)
      : bytes(bytes_wanted),
        start(test::map_lone_pages(bytes, PROT_READ | PROT_WRITE,
                                   fd < 0 ? MAP_PRIVATE | MAP_ANONYMOUS : MAP_SHARED, fd)),
        mr(verbs::reg_mr(pd, start, bytes, kAccess).value()) {}
  ~Memory() {
    EXPECT_TRUE(verbs::dereg_mr(mr));
    ::munmap(start, mapped);
  }
  [[nodiscard]] std::uint64_t address() const { return reinterpret_cast<std::uint64_t>(start); }

  std::size_t bytes;
  std::size_t mapped = bytes;  // the rest is no longer ours to unmap
  std::byte* start;
  ibv_mr* mr;
};

/// Puts other memory in the place of what is there.
bool map_over(std::byte* start, std::size_t bytes, int protection) {
  return ::mmap(start, bytes, protection, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0) !=
         MAP_FAILED;
}

/// Ways to lose the second half of a range.
struct Loss {
  const char* name;
  std::function<void(Memory&)> take;
};

void unmap(Memory& memory) {
  memory.mapped = memory.bytes / 2;
  ::munmap(memory.start + memory.mapped, memory.bytes - memory.mapped);
}
void forbid(Memory& memory) {
  ::mprotect(memory.start + memory.bytes / 2, memory.bytes / 2, PROT_NONE);
}
void replace(Memory& memory) {
  map_over(memory.start + memory.bytes / 2, memory.bytes / 2, PROT_NONE);
}

std::ostream& operator<<(std::ostream& out, const Loss& loss) { return out << loss.name; }

class LostMemory : public CmTest, public testing::WithParamInterface<Loss> {
 protected:
  void SetUp() override {
#ifdef __SANITIZE_THREAD__
    GTEST_SKIP() << "these tests and the library race for the memory, on purpose";
#endif
    establish_connection();
  }

  static void receive(ibv_qp* qp, const Memory& memory) {
    ibv_sge sge{memory.address(), static_cast<std::uint32_t>(memory.bytes), memory.mr->lkey};
    ibv_recv_wr wr{};
    wr.sg_list = &sge;
    wr.num_sge = 1;
    ibv_recv_wr* bad = nullptr;
    ASSERT_EQ(verbs::post_recv(qp, &wr, &bad), 0);
  }
  static void post(ibv_qp* qp, ibv_wr_opcode opcode, const Memory& local, const Memory& remote) {
    ibv_sge sge{local.address(), static_cast<std::uint32_t>(local.bytes), local.mr->lkey};
    ibv_send_wr wr{};
    wr.opcode = opcode;
    wr.send_flags = IBV_SEND_SIGNALED;
    wr.sg_list = &sge;
    wr.num_sge = 1;
    wr.wr.rdma.remote_addr = remote.address();
    wr.wr.rdma.rkey = remote.mr->rkey;
    ibv_send_wr* bad = nullptr;
    ASSERT_EQ(verbs::post_send(qp, &wr, &bad), 0);
  }
  static ibv_wc_status take(ibv_cq* cq) {
    ibv_wc wc{};
    while (verbs::poll_cq(cq, 1, &wc) == 0) std::this_thread::yield();
    return wc.status;
  }
  /// The connection ended at both sides.
  void expect_end() {
    EXPECT_EQ(client_channel_.next().type, RDMA_CM_EVENT_DISCONNECTED);
    EXPECT_EQ(server_.next().type, RDMA_CM_EVENT_DISCONNECTED);
  }
};

TEST_P(LostMemory, OfASend) {
  Memory from(client_->pd, 16 * kPage);
  Memory to(passive_->pd, 16 * kPage);
  receive(passive_->qp, to);
  GetParam().take(from);
  post(client_->qp, IBV_WR_SEND, from, to);
  EXPECT_EQ(take(client_->send_cq), IBV_WC_LOC_PROT_ERR);
  EXPECT_EQ(take(passive_->recv_cq), IBV_WC_WR_FLUSH_ERR);
  expect_end();
}

TEST_P(LostMemory, OfAReceive) {
  Memory from(client_->pd, 16 * kPage);
  Memory to(passive_->pd, 16 * kPage);
  receive(passive_->qp, to);
  GetParam().take(to);
  post(client_->qp, IBV_WR_SEND, from, to);
  EXPECT_EQ(take(passive_->recv_cq), IBV_WC_LOC_PROT_ERR);
  expect_end();
}

TEST_P(LostMemory, OfAWriteAtItsSource) {
  Memory from(client_->pd, 16 * kPage);
  Memory to(passive_->pd, 16 * kPage);
  GetParam().take(from);
  post(client_->qp, IBV_WR_RDMA_WRITE, from, to);
  EXPECT_EQ(take(client_->send_cq), IBV_WC_LOC_PROT_ERR);
  expect_end();
}

TEST_P(LostMemory, OfAWriteAtItsTarget) {
  Memory from(client_->pd, 16 * kPage);
  Memory to(passive_->pd, 16 * kPage);
  GetParam().take(to);
  post(client_->qp, IBV_WR_RDMA_WRITE, from, to);
  expect_end();
  ibv_async_event event{};
  ASSERT_TRUE(verbs::get_async_event(passive_->verbs, &event));
  EXPECT_EQ(event.event_type, IBV_EVENT_QP_ACCESS_ERR);
  verbs::ack_async_event(&event);
}

TEST_P(LostMemory, OfAReadAtItsSource) {
  Memory sink(client_->pd, 16 * kPage);
  Memory source(passive_->pd, 16 * kPage);
  GetParam().take(source);
  post(client_->qp, IBV_WR_RDMA_READ, sink, source);
  EXPECT_EQ(take(client_->send_cq), IBV_WC_REM_ACCESS_ERR);
  expect_end();
}

TEST_P(LostMemory, OfAReadAtItsSink) {
  Memory sink(client_->pd, 16 * kPage);
  Memory source(passive_->pd, 16 * kPage);
  GetParam().take(sink);
  post(client_->qp, IBV_WR_RDMA_READ, sink, source);
  EXPECT_EQ(take(client_->send_cq), IBV_WC_LOC_PROT_ERR);
  expect_end();
}

INSTANTIATE_TEST_SUITE_P(Ways, LostMemory,
                         testing::Values(Loss{"munmap", unmap}, Loss{"mprotect", forbid},
                                         Loss{"replaced", replace}),
                         [](const auto& instance) { return std::string(instance.param.name); });

using StillThere = LostMemory;

TEST_F(StillThere, AFileThatBecameShorterIsNoMemory) {
  const int fd = ::memfd_create("shrinks", MFD_CLOEXEC);
  ASSERT_EQ(::ftruncate(fd, 16 * kPage), 0);
  Memory from(client_->pd, 16 * kPage, fd);
  Memory to(passive_->pd, 16 * kPage);
  ASSERT_EQ(::ftruncate(fd, kPage), 0);
  post(client_->qp, IBV_WR_RDMA_WRITE, from, to);
  EXPECT_EQ(take(client_->send_cq), IBV_WC_LOC_PROT_ERR);
  expect_end();
  ::close(fd);
}

// Memory without pages is not memory that is gone: it reads as zero and takes what is written.
TEST_F(StillThere, DroppedPages) {
  Memory from(client_->pd, 16 * kPage);
  Memory to(passive_->pd, 16 * kPage);
  std::memset(from.start, 5, from.bytes);
  std::memset(to.start, 6, to.bytes);
  ASSERT_EQ(::madvise(from.start, from.bytes / 2, MADV_DONTNEED), 0);
  ASSERT_EQ(::madvise(to.start, to.bytes, MADV_DONTNEED), 0);
  post(client_->qp, IBV_WR_RDMA_READ, from, to);
  EXPECT_EQ(take(client_->send_cq), IBV_WC_SUCCESS);
  EXPECT_EQ(from.start[from.bytes - 1], std::byte{0});
  std::memset(to.start, 6, to.bytes);
  ASSERT_EQ(::madvise(to.start, to.bytes, MADV_DONTNEED), 0);
  post(client_->qp, IBV_WR_RDMA_READ, from, to);
  EXPECT_EQ(take(client_->send_cq), IBV_WC_SUCCESS);
  EXPECT_EQ(from.start[0], std::byte{0});
}

// What a program maps in the place of registered memory is what its peers reach.
TEST_F(StillThere, AnotherMappingInTheSamePlace) {
  Memory from(client_->pd, 16 * kPage);
  Memory to(passive_->pd, 16 * kPage);
  std::memset(from.start, 5, from.bytes);
  ASSERT_TRUE(map_over(to.start, to.bytes, PROT_READ | PROT_WRITE));
  receive(passive_->qp, to);
  post(client_->qp, IBV_WR_SEND, from, to);
  EXPECT_EQ(take(client_->send_cq), IBV_WC_SUCCESS);
  EXPECT_EQ(take(passive_->recv_cq), IBV_WC_SUCCESS);
  EXPECT_EQ(to.start[to.bytes - 1], std::byte{5});
}

/// Both sides of a large transfer while another thread takes one side's memory away.
class LostOnTheWay : public LostMemory {
 protected:
  static constexpr std::size_t kBytes = std::size_t{256} << 20;

  void transfer(ibv_wr_opcode opcode, bool lose_local) {
    Memory local(client_->pd, kBytes);
    Memory remote(passive_->pd, kBytes);
    Memory& lost = lose_local ? local : remote;
    // The thread waits until bytes have arrived at whichever side stays.
    const std::byte* seen = opcode == IBV_WR_RDMA_READ ? local.start : remote.start;
    std::memset((opcode == IBV_WR_RDMA_READ ? remote : local).start, 1, kBytes);
    post(client_->qp, opcode, local, remote);
    std::thread taker([&] {
      while (reinterpret_cast<const std::atomic<char>*>(seen)->load() == 0) {
        std::this_thread::yield();
      }
      // Not munmap: another thread's allocation could take the place and be written over.
      EXPECT_TRUE(map_over(lost.start, lost.bytes, PROT_NONE));
    });
    const ibv_wc_status status = take(client_->send_cq);
    taker.join();
    // A WRITE can have left before the target noticed, or all of it before the memory went.
    if (status != IBV_WC_SUCCESS) {
      expect_end();
    }
    EXPECT_TRUE(status == IBV_WC_SUCCESS || status == IBV_WC_WR_FLUSH_ERR ||
                status == (lose_local ? IBV_WC_LOC_PROT_ERR : IBV_WC_REM_ACCESS_ERR))
        << status;
  }
};

TEST_F(LostOnTheWay, SourceOfAWrite) { transfer(IBV_WR_RDMA_WRITE, true); }
TEST_F(LostOnTheWay, TargetOfAWrite) { transfer(IBV_WR_RDMA_WRITE, false); }
TEST_F(LostOnTheWay, SinkOfARead) { transfer(IBV_WR_RDMA_READ, true); }
TEST_F(LostOnTheWay, SourceOfARead) { transfer(IBV_WR_RDMA_READ, false); }

}  // namespace
}  // namespace airdma::cm
