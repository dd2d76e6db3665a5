// SPDX-License-Identifier: MIT
// The functions of libc that this library stands in front of.
#pragma once

#include <dlfcn.h>

#include <atomic>
#include <cerrno>

namespace airdma::sysfs {

/// The next definition of a function. Usable before any constructor has run.
template <class Function>
class Real {
 public:
  explicit constexpr Real(const char* name) : name_(name) {}

  template <class... Args>
  auto operator()(Args... args) {
    return get()(args...);
  }

 private:
  Function* get() {
    void* found = address_.load(std::memory_order_acquire);
    if (found == nullptr) {
      found = ::dlsym(RTLD_NEXT, name_);
      address_.store(found, std::memory_order_release);
    }
    return reinterpret_cast<Function*>(found);
  }

  const char* name_;
  std::atomic<void*> address_{nullptr};
};

}  // namespace airdma::sysfs

/// A function that programs call instead of libc's. Those that only older or fortified programs
/// know have no declaration in the headers.
#define AIRDMA_INTERPOSE extern "C" __attribute__((visibility("default")))
