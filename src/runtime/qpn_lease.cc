// SPDX-License-Identifier: MIT
#include "runtime/qpn_lease.h"

#include <sys/random.h>

#include <cerrno>
#include <utility>

namespace airdma::runtime {
namespace {

// Anywhere, so that a number is not used again right after its process has ended: packets of its
// peers may still be under way.
std::uint32_t random_start() {
  std::uint32_t value = 0;
  [[maybe_unused]] const ssize_t got = ::getrandom(&value, sizeof value, GRND_NONBLOCK);
  return value;
}

}  // namespace

std::string QpnLease::name_of(std::uint32_t block) { return kNamePrefix + std::to_string(block); }

Result<std::unique_ptr<QpnLease>> QpnLease::take() {
  constexpr std::uint32_t kCount = kLastBlock - kFirstBlock + 1;
  const std::uint32_t start = random_start() % kCount;
  for (std::uint32_t i = 0; i < kCount; ++i) {
    const std::uint32_t block = kFirstBlock + (start + i) % kCount;
    auto listener = io::LocalListener::open(name_of(block));
    if (listener) return std::unique_ptr<QpnLease>(new QpnLease(block, std::move(*listener)));
    if (listener.error().code != EADDRINUSE) return std::unexpected(listener.error());
  }
  return fail(EADDRNOTAVAIL, "bind");
}

QpnLease::QpnLease(std::uint32_t block, io::LocalListener listener)
    : block_(block), listener_(std::move(listener)) {
  for (std::uint32_t i = 0; i < kNumbers; ++i) free_.push_back(static_cast<std::uint16_t>(i));
}

std::optional<Qpn> QpnLease::allocate() {
  if (free_.empty()) return std::nullopt;
  const std::uint32_t number = free_.front();
  free_.pop_front();
  return Qpn(block_ << kNumberBits | number);
}

void QpnLease::release(Qpn qpn) {
  free_.push_back(static_cast<std::uint16_t>(qpn.value() & (kNumbers - 1)));
}

}  // namespace airdma::runtime
