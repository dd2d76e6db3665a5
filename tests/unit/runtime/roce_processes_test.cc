// SPDX-License-Identifier: MIT
// Many processes and one UDP port: each child opens the port, tells its queue pair number, and
// reports every packet it gets. The network is a namespace of the test's own; packets come by UDP
// through its loopback interface, as if from elsewhere.
#include <gtest/gtest.h>
#include <net/if.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <cstring>
#include <memory>
#include <semaphore>
#include <thread>
#include <vector>

#include "runtime/roce_port.h"
#include "runtime/udp_sender.h"
#include "tests/unit/runtime/roce_fixture.h"
#include "wire/mad.h"

namespace airdma::runtime {
namespace {

using testing::kLoopbackV4;
using testing::loopback;

bool loopback_up() {
  const int socket = ::socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
  ifreq request{};
  std::strcpy(request.ifr_name, "lo");
  request.ifr_flags = IFF_UP;
  const bool done = ::ioctl(socket, SIOCSIFFLAGS, &request) == 0;
  ::close(socket);
  return done;
}

/// What a child tells: its number first, then a line for each call of its sink.
struct Report {
  enum Kind : std::uint32_t { kReady, kPackets, kMad };
  Kind kind;
  std::uint32_t qpn;
  std::uint32_t count;
  std::uint32_t first_psn;
  std::uint32_t steered;
};

class TellingSink : public PacketSink, public MadSink {
 public:
  TellingSink(int fd, Qpn qpn) : fd_(fd), qpn_(qpn) {}
  void on_packets(std::span<const Bytes> packets, const rocev2::PacketOrigin&) override {
    const auto parsed = wire::parse_roce_packet(packets.front());
    tell({Report::kPackets, parsed->destination.value(), static_cast<std::uint32_t>(packets.size()),
          parsed->psn.value(), 0});
  }
  void on_mad(Bytes mad, const rocev2::PacketOrigin&, Qpn) override {
    tell({Report::kMad, qpn_.value(), 1, std::to_integer<std::uint32_t>(mad[255]), 0});
  }
  void tell(const Report& report) const {
    [[maybe_unused]] const ssize_t written = ::write(fd_, &report, sizeof report);
  }

 private:
  const int fd_;
  const Qpn qpn_;
};

/// The library's thread waits as long as this lives. The allocators of sanitizers are not made for
/// fork(): a lock that another thread holds just then is never given back in the child.
class QuietProgress {
 public:
  QuietProgress() {
    (*Progress::start())->defer([state = state_] {
      state->there.release();
      state->go_on.acquire();
    });
    state_->there.acquire();
  }
  ~QuietProgress() { state_->go_on.release(); }
  QuietProgress(const QuietProgress&) = delete;
  QuietProgress& operator=(const QuietProgress&) = delete;

 private:
  struct State {
    std::binary_semaphore there{0};
    std::binary_semaphore go_on{0};
  };
  const std::shared_ptr<State> state_ = std::make_shared<State>();
};

/// A process of its own with one queue pair, which receives until it is killed.
class Member {
 public:
  explicit Member(std::uint16_t service = 0) {
    int ends[2];
    if (::pipe(ends) != 0) return;
    {
      const QuietProgress quiet;
      pid_ = ::fork();
      if (pid_ == 0) {
        ::close(ends[0]);
        run(ends[1], service);
      }
    }
    ::close(ends[1]);
    reports_ = ends[0];
    ready_ = next();
  }
  ~Member() {
    kill();
    if (reports_ >= 0) ::close(reports_);
  }
  Member(const Member&) = delete;
  Member& operator=(const Member&) = delete;

  [[nodiscard]] Qpn qpn() const { return Qpn(ready_.qpn); }
  [[nodiscard]] bool steered() const { return ready_.steered != 0; }
  void kill() {
    if (pid_ <= 0) return;
    ::kill(pid_, SIGKILL);
    ::waitpid(pid_, nullptr, 0);
    pid_ = 0;
  }
  void stop() {
    ::kill(pid_, SIGSTOP);
    int status = 0;
    ::waitpid(pid_, &status, WUNTRACED);
  }
  void resume() { ::kill(pid_, SIGCONT); }
  /// The next report; the test's time limit ends the wait.
  Report next() {
    Report report{};
    const ssize_t got = ::read(reports_, &report, sizeof report);
    EXPECT_EQ(got, static_cast<ssize_t>(sizeof report));
    return report;
  }
  bool has_report(int wait_ms) const {
    pollfd item{reports_, POLLIN, 0};
    return ::poll(&item, 1, wait_ms) > 0;
  }

 private:
  [[noreturn]] static void run(int fd, std::uint16_t service) {
    RocePort& port = RocePort::get();
    const Qpn qpn = port.allocate_qpn().value();
    const auto sink = std::make_shared<TellingSink>(fd, qpn);
    port.register_sink(qpn, sink);
    port.set_mad_sink(sink);
    ServiceLease lease;
    if (service != 0) lease = port.lease_service(PortSpace::kTcp, service, model::Gid{}).value();
    const bool steered = port.report().ipv4_steered;
    sink->tell({Report::kReady, qpn.value(), 0, 0, steered ? 1u : 0u});
    for (;;) ::pause();
  }

  pid_t pid_ = 0;
  int reports_ = -1;
  Report ready_{};
};

class RoceProcesses : public ::testing::Test {
 protected:
  void SetUp() override {
    static const bool apart = ::unshare(CLONE_NEWUSER | CLONE_NEWNET) == 0 && loopback_up();
    if (!apart) GTEST_SKIP() << "no network namespace to be had";
    ASSERT_TRUE(RocePort::get().first_block());
    sender_ = UdpSender::open(**Progress::start(), AF_INET).value();
  }
  /// By UDP, whatever the address.
  void send(Qpn qpn, std::uint32_t psn) {
    std::array<std::byte, 12> header;
    wire::RocePacket packet;
    packet.info = &wire::kRoceOpcodes[0x07];
    packet.destination = qpn;
    packet.psn = Psn(psn);
    ASSERT_EQ(wire::emit_roce_headers(header, packet), header.size());
    const Frame frame{header, {}, 0, header.size()};
    ASSERT_EQ(sender_->send(loopback(kLoopbackV4), false, {&frame, 1}).status, SendStatus::kSent);
  }
  /// Sends until the member has got a packet that no other process passed on: what it receives
  /// itself it can receive while all others are stopped.
  void expect_direct(Member& member, std::uint32_t psn) {
    send(member.qpn(), psn);
    const Report report = member.next();
    EXPECT_EQ(report.qpn, member.qpn().value());
    EXPECT_EQ(report.first_psn, psn);
  }
  /// Waits until a packet for the member comes to it although all others are stopped.
  static bool steered_past(std::vector<std::unique_ptr<Member>>& others, Member& member,
                           RoceProcesses& test) {
    for (int attempt = 0; attempt < 2000; ++attempt) {
      for (auto& other : others) other->stop();
      test.send(member.qpn(), 7);
      const bool came = member.has_report(5);
      for (auto& other : others) other->resume();
      if (!came && !member.has_report(1000)) return false;
      member.next();
      if (came) return true;
    }
    return false;
  }

  std::shared_ptr<UdpSender> sender_;
};

TEST_F(RoceProcesses, GetTheirOwnPackets) {
  std::vector<std::unique_ptr<Member>> members;
  for (int i = 0; i < 6; ++i) members.push_back(std::make_unique<Member>());
  for (std::uint32_t round = 0; round < 20; ++round) {
    for (auto& member : members) send(member->qpn(), round);
  }
  for (std::uint32_t round = 0; round < 20; ++round) {
    for (auto& member : members) {
      const Report report = member->next();
      EXPECT_EQ(report.qpn, member->qpn().value());
    }
  }
  for (auto& member : members) EXPECT_FALSE(member->has_report(0));
}

TEST_F(RoceProcesses, AreSteeredPastStoppedOnes) {
  std::vector<std::unique_ptr<Member>> members;
  for (int i = 0; i < 5; ++i) members.push_back(std::make_unique<Member>());
  EXPECT_TRUE(members.back()->steered());
  for (std::size_t i = 0; i + 1 < members.size(); ++i) members[i]->stop();
  for (std::uint32_t psn = 0; psn < 50; ++psn) expect_direct(*members.back(), psn);
  for (std::size_t i = 0; i + 1 < members.size(); ++i) members[i]->resume();
  members.back()->stop();
  for (std::uint32_t psn = 0; psn < 50; ++psn) expect_direct(*members[1], psn);
}

TEST_F(RoceProcesses, FindTheirNewPlaceWhenOneIsKilled) {
  std::vector<std::unique_ptr<Member>> members;
  for (int i = 0; i < 5; ++i) members.push_back(std::make_unique<Member>());
  // The last one's socket moves to the place of the second.
  members[1]->kill();
  members.erase(members.begin() + 1);
  const std::unique_ptr<Member> last = std::move(members.back());
  members.pop_back();
  EXPECT_TRUE(steered_past(members, *last, *this));
  // Another one comes, and one that was stopped meanwhile has not lost its place for others.
  members[0]->stop();
  const Member late;
  members[0]->resume();
  EXPECT_TRUE(steered_past(members, *last, *this));
}

TEST_F(RoceProcesses, ComeAndGo) {
  const auto steady = std::make_unique<Member>();
  for (std::uint32_t round = 0; round < 30; ++round) {
    std::vector<std::unique_ptr<Member>> others;
    for (int i = 0; i < 3; ++i) others.push_back(std::make_unique<Member>());
    others[round % 3]->kill();
    // The kernel keeps each packet, wherever it brings it, and who gets it passes it on; but one in
    // the queue of a process that is killed is lost, so these are sent while all live.
    for (std::uint32_t i = 0; i < 10; ++i) expect_direct(*steady, round * 16 + i);
  }
}

Bytes request_for(std::uint16_t service, std::array<std::byte, 256>& mad, std::uint8_t mark) {
  mad.fill(std::byte{0});
  mad[0] = std::byte{1};
  mad[1] = std::byte{7};
  mad[2] = std::byte{2};
  mad[3] = std::byte{3};
  mad[17] = std::byte{0x10};  // REQ
  const std::array<std::uint8_t, 4> id{1, 6, static_cast<std::uint8_t>(service >> 8),
                                       static_cast<std::uint8_t>(service)};
  std::memcpy(mad.data() + 24 + 12, id.data(), id.size());
  mad[255] = std::byte{mark};
  return mad;
}

TEST_F(RoceProcesses, GetRequestsForTheirServices) {
  std::vector<std::unique_ptr<Member>> members;
  for (std::uint16_t i = 0; i < 4; ++i) {
    members.push_back(std::make_unique<Member>(static_cast<std::uint16_t>(7000 + i)));
  }
  std::array<std::byte, 256> mad;
  std::array<std::byte, 20> header;
  wire::RocePacket packet;
  packet.info = &wire::kRoceOpcodes[0x64];
  packet.destination = packet.source = Qpn(1);
  packet.qkey = wire::kManagementQkey;
  ASSERT_EQ(wire::emit_roce_headers(header, packet), header.size());
  for (std::uint8_t i = 0; i < 40; ++i) {
    const std::uint16_t service = static_cast<std::uint16_t>(7000 + i % 4);
    const Bytes payload = request_for(service, mad, i);
    // By UDP, and as a process of this host does.
    if (i % 8 < 4) {
      const Frame frame{header, {&payload, 1}, 0, header.size() + payload.size()};
      ASSERT_EQ(sender_->send(loopback(kLoopbackV4), false, {&frame, 1}).status, SendStatus::kSent);
    } else {
      ASSERT_TRUE(RocePort::get().send_mad(payload, loopback(kLoopbackV4)));
    }
    const Report report = members[i % 4]->next();
    EXPECT_EQ(report.kind, Report::kMad);
    EXPECT_EQ(report.first_psn, i);
  }
  const auto nobody = RocePort::get().send_mad(request_for(6999, mad, 0), loopback(kLoopbackV4));
  EXPECT_EQ(nobody.error().code, ECONNREFUSED);
  EXPECT_EQ(RocePort::get().lease_service(PortSpace::kTcp, 7001, model::Gid{}).error().code,
            EADDRINUSE);
  EXPECT_EQ(RocePort::get().lease_service(PortSpace::kTcp, 7001, kLoopbackV4).error().code,
            EADDRINUSE);
  EXPECT_TRUE(RocePort::get().lease_service(PortSpace::kUdp, 7001, model::Gid{}));
  members[1]->kill();
  EXPECT_TRUE(RocePort::get().lease_service(PortSpace::kTcp, 7001, kLoopbackV4));
}

// The process whose connection it is about knows it by who sent it.
TEST_F(RoceProcesses, AllHearOfAClientThatGivesUpUnnamed) {
  std::vector<std::unique_ptr<Member>> members;
  for (int i = 0; i < 3; ++i) members.push_back(std::make_unique<Member>());
  std::array<std::byte, 256> mad{};
  const Bytes payload = request_for(0, mad, 7);
  mad[17] = std::byte{0x12};  // REJ
  ASSERT_TRUE(RocePort::get().send_mad(payload, loopback(kLoopbackV4)));
  for (const auto& member : members) {
    const Report report = member->next();
    EXPECT_EQ(report.kind, Report::kMad);
    EXPECT_EQ(report.first_psn, 7u);
  }
}

// A process that is stopped takes its own packets only: what does not fit in is refused, and there
// is room again when it goes on.
TEST_F(RoceProcesses, DoNotWaitForAStoppedOne) {
  Member stopped;
  Member other;
  const auto payload = testing::pattern(4096, 1);
  rocev2::PacketBatch batch;
  batch.set_destination(loopback(kLoopbackV4));
  for (int i = 0; i < 40; ++i) testing::add_packet(batch, stopped.qpn(), payload);
  stopped.stop();
  std::size_t sent = 0;
  SendOutcome outcome;
  while ((outcome = RocePort::get().send(batch)).status == SendStatus::kSent) sent += 40;
  EXPECT_EQ(outcome.status, SendStatus::kBusy);
  sent += outcome.packets;
  rocev2::PacketBatch free;
  free.set_destination(loopback(kLoopbackV4));
  testing::add_packet(free, other.qpn(), {}, 3);
  EXPECT_EQ(RocePort::get().send(free).status, SendStatus::kSent);
  EXPECT_EQ(other.next().first_psn, 3u);
  const auto sink = std::make_shared<testing::KeepingSink>();
  RocePort::get().call_when_writable(batch, outcome.packets, sink);
  stopped.resume();
  sink->wait_writable();
  for (std::size_t came = 0; came < sent;) came += stopped.next().count;
}

bool loopback_mtu_is(int bytes) {
  const int socket = ::socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
  ifreq request{};
  std::strcpy(request.ifr_name, "lo");
  request.ifr_mtu = bytes;
  const bool done = ::ioctl(socket, SIOCSIFMTU, &request) == 0;
  ::close(socket);
  return done;
}

// Segments that do not fit in are refused together; sent singly, those that fit in arrive, with an
// ICRC for the identification that they have then.
TEST_F(RoceProcesses, SendSinglyWhatIsRefusedTogether) {
  ASSERT_TRUE(loopback_mtu_is(1500));
  RocePort& port = RocePort::get();
  const Qpn qpn = port.allocate_qpn().value();
  const auto sink = std::make_shared<testing::KeepingSink>();
  port.register_sink(qpn, sink);
  const auto data = testing::pattern(2000, 1);
  std::array<std::byte, 12> header;
  wire::RocePacket packet;
  packet.info = &wire::kRoceOpcodes[0x07];
  packet.destination = qpn;
  ASSERT_EQ(wire::emit_roce_headers(header, packet), header.size());
  const Bytes large(data);
  const Bytes small = large.first(1000);
  const auto frame = [&](const Bytes& payload) {
    return Frame{header, {&payload, 1}, 0, header.size() + payload.size()};
  };
  const std::array<Frame, 6> frames{frame(small), frame(small), frame(large),
                                    frame(large), frame(small), frame(small)};
  std::span<const Frame> rest(frames);
  const auto send_on = [&](SendStatus status, std::size_t packets) {
    const SendOutcome outcome = sender_->send(loopback(kLoopbackV4), false, rest);
    EXPECT_EQ(outcome.status, status);
    EXPECT_EQ(outcome.packets, packets);
    rest = rest.subspan(outcome.packets);
  };
  send_on(SendStatus::kTooLong, 3);  // the two in front of it went out
  send_on(SendStatus::kTooLong, 1);
  send_on(SendStatus::kSent, 2);
  const auto packets = sink->wait(4);
  for (const auto& one : packets) EXPECT_EQ(one.size(), header.size() + small.size());
}

TEST_F(RoceProcesses, LoseAPeerThatIsKilled) {
  auto peer = std::make_unique<Member>();
  const Qpn qpn = peer->qpn();
  rocev2::PacketBatch batch;
  batch.set_destination(loopback(kLoopbackV4));
  testing::add_packet(batch, qpn, {}, 1);
  EXPECT_EQ(RocePort::get().send(batch).status, SendStatus::kSent);
  EXPECT_EQ(peer->next().first_psn, 1u);
  peer->kill();
  EXPECT_EQ(RocePort::get().send(batch).status, SendStatus::kUnreachable);
}

}  // namespace
}  // namespace airdma::runtime
