// SPDX-License-Identifier: MIT
// Guarded accesses end when their memory goes away; every other fault is the program's, as before.
#include "io/fault_handler.h"

#include <gtest/gtest.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <unistd.h>

#include <atomic>
#include <cstring>
#include <thread>
#include <vector>

#include "base/guarded_copy.h"
#include "tests/support/lone_pages.h"
#include "wire/crc32c.h"

namespace airdma::io {
namespace {

constexpr std::size_t kPage = 4096;

bool copy_from_program(std::byte* to, Bytes from) {
  return guarded(from.data(), from.size(), [=] { std::memcpy(to, from.data(), from.size()); });
}

/// Pages of their own; the destructor takes the range away whatever became of it.
struct Pages {
  explicit Pages(std::size_t count, int flags = MAP_PRIVATE | MAP_ANONYMOUS, int fd = -1)
      : bytes(count * kPage),
        start(test::map_lone_pages(bytes, PROT_READ | PROT_WRITE, flags, fd)) {}
  ~Pages() { ::munmap(start, bytes); }
  [[nodiscard]] Bytes all() const { return {start, bytes}; }
  std::size_t bytes;
  std::byte* start;
};

class FaultHandler : public testing::Test {
 protected:
  void SetUp() override { watch_faults(); }
  std::vector<std::byte> ours_ = std::vector<std::byte>(4 * kPage, std::byte{1});
};

TEST_F(FaultHandler, CopiesWhatIsThere) {
  Pages pages(4);
  EXPECT_TRUE(copy_to_program(pages.start, ours_));
  EXPECT_EQ(std::memcmp(pages.start, ours_.data(), pages.bytes), 0);
  pages.start[5] = std::byte{9};
  EXPECT_TRUE(copy_from_program(ours_.data(), pages.all()));
  EXPECT_EQ(ours_[5], std::byte{9});
  EXPECT_EQ(current_fault_guard, nullptr);
}

TEST_F(FaultHandler, TellsOfMemoryThatIsGone) {
  Pages pages(4);
  ASSERT_EQ(::munmap(pages.start + 2 * kPage, kPage), 0);
  for (int again = 0; again < 3; ++again) {
    EXPECT_FALSE(copy_to_program(pages.start, ours_));
    EXPECT_FALSE(copy_from_program(ours_.data(), pages.all()));
    EXPECT_EQ(current_fault_guard, nullptr);
  }
  EXPECT_TRUE(copy_to_program(pages.start, Bytes{ours_}.first(2 * kPage)));
}

TEST_F(FaultHandler, TellsOfMemoryThatIsProtected) {
  Pages pages(4);
  ASSERT_EQ(::mprotect(pages.start + kPage, kPage, PROT_READ), 0);
  EXPECT_FALSE(copy_to_program(pages.start, ours_));
  EXPECT_TRUE(copy_from_program(ours_.data(), pages.all()));
  ASSERT_EQ(::mprotect(pages.start + kPage, kPage, PROT_NONE), 0);
  EXPECT_FALSE(copy_from_program(ours_.data(), pages.all()));
}

TEST_F(FaultHandler, TellsOfAFileThatBecameShorter) {
  const int fd = ::memfd_create("shrinks", MFD_CLOEXEC);
  ASSERT_EQ(::ftruncate(fd, 4 * kPage), 0);
  Pages pages(4, MAP_SHARED, fd);
  EXPECT_TRUE(copy_to_program(pages.start, ours_));
  ASSERT_EQ(::ftruncate(fd, 2 * kPage), 0);
  EXPECT_FALSE(copy_to_program(pages.start, ours_));
  EXPECT_FALSE(copy_from_program(ours_.data(), pages.all()));
  ::close(fd);
}

TEST_F(FaultHandler, EveryCrcKernelMayBeInterrupted) {
  Pages pages(4);
  ASSERT_EQ(::munmap(pages.start + 3 * kPage, kPage), 0);
  for (const wire::Crc32cVariant& variant : wire::crc32c_variants()) {
    if (!variant.supported()) continue;
    std::uint32_t crc = 0;
    EXPECT_FALSE(guarded(pages.start, pages.bytes, [&] {
      crc = variant.copy(0, ours_.data(), pages.all());
    })) << variant.name;
    EXPECT_EQ(crc, 0u);
  }
}

TEST_F(FaultHandler, AThreadMayUnmapInTheMiddleOfACopy) {
  std::vector<std::byte> large(std::size_t{8} << 20);
  for (int round = 0; round < 50; ++round) {
    Pages pages(large.size() / kPage);
    std::atomic<bool> go{false};
    std::thread other([&] {
      while (!go) {
      }
      ::munmap(pages.start + pages.bytes / 2, pages.bytes / 2);
    });
    go = true;
    // Either outcome is right, depending on who was faster; after the end only one is.
    (void)copy_to_program(pages.start, large);
    other.join();
    EXPECT_FALSE(copy_to_program(pages.start, large));
  }
}

#if !defined(__SANITIZE_THREAD__)  // which runs handlers when it thinks fit
TEST_F(FaultHandler, AHandlerOfTheProgramMayMakeAccessesOfItsOwn) {
  static Pages* inner = nullptr;
  static bool inner_ended = false;
  Pages gone(1);
  Pages outer(1);
  ::munmap(gone.start, gone.bytes);
  inner = &gone;
  struct sigaction action {};
  action.sa_handler = [](int) {
    std::byte byte{};
    inner_ended = !copy_from_program(&byte, Bytes{inner->start, 1});
  };
  struct sigaction former {};
  ASSERT_EQ(::sigaction(SIGUSR1, &action, &former), 0);
  EXPECT_TRUE(guarded(outer.start, outer.bytes, [] { ::raise(SIGUSR1); }));
  EXPECT_TRUE(inner_ended);
  EXPECT_FALSE(guarded(outer.start, outer.bytes, [&] {
    ::raise(SIGUSR1);
    ::munmap(outer.start, outer.bytes);
    *static_cast<volatile std::byte*>(outer.start) = std::byte{1};
  }));
  ::sigaction(SIGUSR1, &former, nullptr);
}
#endif

struct sigaction kept;  // what a replacing handler found: ours

// What follows happens in processes of its own: dispositions are the process's.

void fault() { *reinterpret_cast<volatile int*>(std::uintptr_t{kPage}) = 1; }

void no_core() {
  const rlimit none{0, 0};
  ::setrlimit(RLIMIT_CORE, &none);
}

void set(void (*handler)(int), int flags = 0, int signal = SIGSEGV) {
  struct sigaction action {};
  action.sa_handler = handler;
  action.sa_flags = flags;
  ::sigaction(signal, &action, nullptr);
}
void set(void (*handler)(int, siginfo_t*, void*), int flags = SA_SIGINFO) {
  struct sigaction action {};
  action.sa_sigaction = handler;
  action.sa_flags = flags;
  ::sigaction(SIGSEGV, &action, nullptr);
}

void exit_7(int) { ::_exit(7); }
void exit_8_with_address(int signal, siginfo_t* info, void* context) {
  const bool good = signal == SIGSEGV && context != nullptr &&
                    info->si_addr == reinterpret_cast<void*>(std::uintptr_t{kPage});
  ::_exit(good ? 8 : 1);
}

TEST(FaultHandlerDeathTest, TheDefaultEndsTheProcess) {
  EXPECT_EXIT((no_core(), set(SIG_DFL), watch_faults(), fault()), testing::KilledBySignal(SIGSEGV),
              "");
  EXPECT_EXIT((no_core(), set(SIG_DFL), watch_faults(), ::raise(SIGSEGV)),
              testing::KilledBySignal(SIGSEGV), "");
  EXPECT_EXIT((no_core(), set(SIG_DFL, 0, SIGBUS), watch_faults(), ::kill(::getpid(), SIGBUS)),
              testing::KilledBySignal(SIGBUS), "");
}

TEST(FaultHandlerDeathTest, OnlySentSignalsCanBeIgnored) {
  EXPECT_EXIT((set(SIG_IGN), watch_faults(), ::raise(SIGSEGV), ::_exit(3)),
              testing::ExitedWithCode(3), "");
  EXPECT_EXIT((no_core(), set(SIG_IGN), watch_faults(), fault()), testing::KilledBySignal(SIGSEGV),
              "");
}

TEST(FaultHandlerDeathTest, HandlersOfTheProgramAreCalled) {
  EXPECT_EXIT((set(exit_7), watch_faults(), fault()), testing::ExitedWithCode(7), "");
  EXPECT_EXIT((set(exit_8_with_address), watch_faults(), fault()), testing::ExitedWithCode(8), "");
}

TEST(FaultHandlerDeathTest, AnAccessOutsideTheGuardedRangeIsTheProgramsFault) {
  EXPECT_EXIT((set(exit_7), watch_faults(), static_cast<void>(guarded(&kept, 16, fault))),
              testing::ExitedWithCode(7), "");
}

#if !defined(__SANITIZE_THREAD__)  // which delivers signals with all of them blocked
TEST(FaultHandlerDeathTest, MasksAreThoseTheHandlerAskedFor) {
  EXPECT_EXIT(
      {
        struct sigaction action {};
        action.sa_handler = [](int) {
          sigset_t now;
          ::pthread_sigmask(SIG_BLOCK, nullptr, &now);
          ::_exit(::sigismember(&now, SIGSEGV) + 2 * ::sigismember(&now, SIGUSR1) +
                  4 * ::sigismember(&now, SIGUSR2));
        };
        ::sigaddset(&action.sa_mask, SIGUSR1);
        ::sigaction(SIGSEGV, &action, nullptr);
        watch_faults();
        fault();
      },
      testing::ExitedWithCode(3), "");
}
#endif

TEST(FaultHandlerDeathTest, AOneShotHandlerRunsOnce) {
  // It returns, so the instruction faults again, and then there is no handler.
  EXPECT_EXIT(
      (no_core(), set([](int) { (void)!::write(2, "once\n", 5); }, static_cast<int>(SA_RESETHAND)),
       watch_faults(), fault()),
      testing::KilledBySignal(SIGSEGV), "^once\n$");
}

TEST(FaultHandlerDeathTest, AHandlerThatRepairsTheFaultContinues) {
  static std::byte* page = nullptr;
  EXPECT_EXIT(
      {
        Pages pages(1);
        page = pages.start;
        ::mprotect(page, kPage, PROT_NONE);
        set([](int) { ::mprotect(page, kPage, PROT_READ | PROT_WRITE); });
        watch_faults();
        page[3] = std::byte{5};
        ::_exit(std::to_integer<int>(page[3]));
      },
      testing::ExitedWithCode(5), "");
}

void ask_kept(int signal, siginfo_t* info, void* context) {
  kept.sa_sigaction(signal, info, context);
}

TEST(FaultHandlerDeathTest, AHandlerThatReplacedOursMayCallIt) {
  EXPECT_EXIT(
      {
        set(exit_8_with_address);
        watch_faults();
        ::sigaction(SIGSEGV, nullptr, &kept);
        set(ask_kept);
        watch_faults();
        std::byte byte{};
        Pages pages(1);
        ::munmap(pages.start, pages.bytes);
        if (copy_from_program(&byte, Bytes{pages.start, 1})) ::_exit(1);
        fault();
      },
      testing::ExitedWithCode(8), "");
}

TEST(FaultHandlerDeathTest, ReplacedAgainAndAgain) {
  EXPECT_EXIT(
      {
        for (int i = 0; i < 100; ++i) {
          set(exit_8_with_address);
          watch_faults();
          set(exit_7);
          watch_faults();
        }
        fault();
      },
      testing::ExitedWithCode(7), "");
}

TEST(FaultHandlerDeathTest, CanBeSwitchedOff) {
  ::setenv("AIRDMA_FAULT_GUARD", "off", 1);
  EXPECT_EXIT(
      {
        set(exit_7);
        watch_faults();
        struct sigaction present {};
        ::sigaction(SIGSEGV, nullptr, &present);
        ::_exit(present.sa_handler == exit_7 ? 4 : 1);
      },
      testing::ExitedWithCode(4), "");
  ::unsetenv("AIRDMA_FAULT_GUARD");
}

}  // namespace
}  // namespace airdma::io
