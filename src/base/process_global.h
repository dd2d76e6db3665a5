// SPDX-License-Identifier: MIT
// State of one process, made when first used and never destroyed (threads may outlive main).
// A fork() child starts without it: the parent's state stays where it is, untouched and reachable
// (so leak checkers see it), and the child's first use makes a new one.
#pragma once

#include <atomic>
#include <vector>

namespace airdma {

/// Registers `reset` to run in fork() children. Call during initialisation of a global; bounded.
void on_fork_child(void (*reset)());

template <class T>
class ProcessGlobal {
 public:
  /// Lock-free; T's constructor may run twice in a race, so it must have no outside effect.
  static T& get() {
    T* current = instance_.load(std::memory_order_acquire);
    return current != nullptr ? *current : create();
  }
  /// The state, or null before first use (and in a child before its own first use).
  static T* peek() { return instance_.load(std::memory_order_acquire); }
  /// In a fork() child: the parent's state as it was then; its locks may be held for ever. Else
  /// null.
  static const T* inherited() { return inherited_; }

 private:
  static T& create() {
    T* fresh = new T;
    T* expected = nullptr;
    if (!instance_.compare_exchange_strong(expected, fresh, std::memory_order_acq_rel)) {
      delete fresh;
      return *expected;
    }
    static std::atomic<bool> registered{false};
    if (!registered.exchange(true)) on_fork_child(&forget);
    return *fresh;
  }
  static void forget() {
    inherited_ = instance_.load(std::memory_order_relaxed);
    instance_.store(nullptr, std::memory_order_relaxed);
  }

  inline static std::atomic<T*> instance_{nullptr};
  inline static T* inherited_ = nullptr;  // keeps the parent's state reachable in a child
};

}  // namespace airdma
