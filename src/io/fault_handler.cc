// SPDX-License-Identifier: MIT
#include "io/fault_handler.h"

#include <signal.h>
#include <sys/syscall.h>
#include <ucontext.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <mutex>
#include <string_view>

#include "base/guarded_copy.h"
#include "base/log.h"
#include "base/process_global.h"

#ifndef SEGV_PKUERR
#define SEGV_PKUERR 4
#endif

namespace airdma::io {
namespace {

/// What was found in the handler's place. Written before it is published, hardly ever again.
struct Disposition {
  struct sigaction action;
  std::atomic<bool> spent{false};  // SA_RESETHAND, and it has run
};

/// The dispositions of one signal, the latest last. More than one when a program replaced our
/// handler: its own may call ours for what it does not know, and that goes to the one before.
struct Chain {
  // Limit: a program that goes on replacing the handler with new ones keeps the ninth.
  std::array<Disposition, 8> found;
  std::atomic<int> count{0};
};

constinit Chain segv_chain{};
constinit Chain bus_chain{};

Chain& chain_of(int signal) { return signal == SIGSEGV ? segv_chain : bus_chain; }

/// The fault that this thread is forwarding.
struct Forwarding {
  const void* context = nullptr;
  const void* frame = nullptr;  // of our handler
  int level = 0;                // in the chain
};
[[gnu::tls_model("initial-exec")]] constinit thread_local Forwarding forwarding;

/// The memory is not there, or not for this kind of access. Else the address means nothing.
bool is_access_fault(int signal, int code) {
  if (signal == SIGSEGV) return code == SEGV_MAPERR || code == SEGV_ACCERR || code == SEGV_PKUERR;
  return code == BUS_ADRERR || code == BUS_MCEERR_AR;
}

/// Sent by a program, or by the kernel without an instruction to blame: nothing will fault again.
bool is_asynchronous(int signal, const siginfo_t& info) {
  return info.si_code <= 0 || (signal == SIGBUS && info.si_code == BUS_MCEERR_AO);
}

/// Ends the process as if no handler had been there: the core shows the instruction at fault.
void take_default(int signal, siginfo_t* info) {
  struct sigaction standard{};
  standard.sa_handler = SIG_DFL;
  ::sigaction(signal, &standard, nullptr);
  if (!is_asynchronous(signal, *info)) return;  // the instruction faults again
  ::syscall(SYS_rt_tgsigqueueinfo, ::getpid(), ::syscall(SYS_gettid), signal, info);
}

void call(Disposition& next, int signal, siginfo_t* info, void* context) {
  const struct sigaction& action = next.action;
  const bool once = (static_cast<unsigned>(action.sa_flags) & SA_RESETHAND) != 0;
  if (once && next.spent.exchange(true)) return take_default(signal, info);
  sigset_t mask = action.sa_mask;
  if ((action.sa_flags & SA_NODEFER) == 0) ::sigaddset(&mask, signal);
  // The return from our handler restores the mask.
  ::pthread_sigmask(SIG_BLOCK, &mask, nullptr);
  if ((action.sa_flags & SA_SIGINFO) != 0) {
    action.sa_sigaction(signal, info, context);
  } else {
    action.sa_handler(signal);
  }
}

void deliver(Disposition& next, int signal, siginfo_t* info, void* context) {
  if ((next.action.sa_flags & SA_SIGINFO) == 0) {
    if (next.action.sa_handler == SIG_DFL) return take_default(signal, info);
    // Only what was sent can be ignored; at a fault the kernel ends the process.
    if (next.action.sa_handler == SIG_IGN) {
      return is_asynchronous(signal, *info) ? void() : take_default(signal, info);
    }
  }
  call(next, signal, info, context);
}

void forward(int signal, siginfo_t* info, void* context, const void* frame) {
  Chain& chain = chain_of(signal);
  // Called by a handler to which this same fault was forwarded: deeper on the same stack. (One that
  // left by a jump instead leaves the record, but the next fault starts at the same depth.)
  const bool called_back = forwarding.context == context && frame < forwarding.frame;
  const int level =
      called_back ? forwarding.level - 1 : chain.count.load(std::memory_order_acquire) - 1;
  const Forwarding outer = forwarding;
  forwarding = {.context = context, .frame = frame, .level = level};
  if (level < 0) {
    take_default(signal, info);
  } else {
    deliver(chain.found[static_cast<std::size_t>(level)], signal, info, context);
  }
  forwarding = outer;
}

void on_fault(int signal, siginfo_t* info, void* context) {
  FaultGuard* guard = current_fault_guard;
  if (guard != nullptr && is_access_fault(signal, info->si_code) && guard->covers(info->si_addr)) {
    // The jump restores no mask. Ours blocks nothing, but a handler that replaced ours and calls
    // it, or a sanitizer's that calls all, may block everything.
    ::pthread_sigmask(SIG_SETMASK, &static_cast<const ucontext_t*>(context)->uc_sigmask, nullptr);
    longjmp(guard->resume, 1);  // sanitizers do not know _longjmp, which is the same function
  }
  const int saved_errno = errno;
  forward(signal, info, context, __builtin_frame_address(0));
  errno = saved_errno;
}

bool same(const struct sigaction& a, const struct sigaction& b) {
  // The two kinds of handler share their place.
  return a.sa_handler == b.sa_handler && a.sa_flags == b.sa_flags;
}

/// The chain with `action` at its end; false when it is too long.
bool remember(Chain& chain, const struct sigaction& action) {
  int count = chain.count.load(std::memory_order_relaxed);
  for (int i = 0; i < count; ++i) {
    Disposition& known = chain.found[static_cast<std::size_t>(i)];
    if (!same(known.action, action)) continue;
    known.spent.store(false);
    chain.count.store(i + 1, std::memory_order_release);
    return true;
  }
  if (count == static_cast<int>(chain.found.size())) return false;
  Disposition& fresh = chain.found[static_cast<std::size_t>(count)];
  fresh.action = action;
  fresh.spent.store(false);
  chain.count.store(count + 1, std::memory_order_release);
  return true;
}

void install(int signal) {
  struct sigaction present{};
  if (::sigaction(signal, nullptr, &present) != 0) return;
  if ((present.sa_flags & SA_SIGINFO) != 0 && present.sa_sigaction == on_fault) return;
  if (!remember(chain_of(signal), present)) return;
  struct sigaction ours{};
  ours.sa_sigaction = on_fault;
  // Not deferred: a handler of the program may be one that wants it so. On the alternate stack: it
  // may be meant for an overflow of the usual one.
  ours.sa_flags = SA_SIGINFO | SA_NODEFER | SA_ONSTACK;
  ::sigemptyset(&ours.sa_mask);
  ::sigaction(signal, &ours, nullptr);
}

bool wanted() {
  const char* text = std::getenv("AIRDMA_FAULT_GUARD");
  if (text == nullptr) return true;
  const std::string_view value = text;
  if (!value.empty() && value != "on" && value != "off") {
    AIRDMA_LOG_ERROR("AIRDMA_FAULT_GUARD=%s is not a value it can have; ignored", text);
  }
  return value != "off";
}

struct Watch {
  std::mutex mutex;
  bool on = wanted();
};

}  // namespace

void watch_faults() {
  Watch& watch = ProcessGlobal<Watch>::get();
  if (!watch.on) return;
  std::lock_guard lock(watch.mutex);
  install(SIGSEGV);
  install(SIGBUS);
}

}  // namespace airdma::io
