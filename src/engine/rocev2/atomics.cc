// SPDX-License-Identifier: MIT
#include "engine/rocev2/atomics.h"

#include <atomic>

#include "base/guarded_copy.h"

namespace airdma::rocev2 {
namespace {

static_assert(std::atomic_ref<std::uint64_t>::is_always_lock_free);
static_assert(std::atomic_ref<std::uint64_t>::required_alignment <= kAtomicBytes);

std::uint64_t operate(std::byte* target, const wire::RocePacket& request) {
  std::atomic_ref<std::uint64_t> memory(*reinterpret_cast<std::uint64_t*>(target));
  if (request.info->operation == wire::Operation::kFetchAdd) {
    return memory.fetch_add(request.atomic.swap_or_add, std::memory_order_seq_cst);
  }
  std::uint64_t original = request.atomic.compare;
  memory.compare_exchange_strong(original, request.atomic.swap_or_add, std::memory_order_seq_cst);
  return original;
}

}  // namespace

std::expected<std::uint64_t, Violation> perform_atomic(const Shared& shared, PdId pd,
                                                       const wire::RocePacket& request) {
  const auto& atomic = request.atomic;
  if ((shared.attributes.remote_access & model::kAccessRemoteAtomic) == 0) {
    return std::unexpected(Violation::kNotEnabled);
  }
  if (atomic.address % kAtomicBytes != 0) return std::unexpected(Violation::kAtomicUnaligned);
  const auto pin = shared.memory.pin(atomic.rkey, pd, atomic.address, kAtomicBytes,
                                     model::kAccessRemoteAtomic, shared.config.qpn);
  if (!pin) return std::unexpected(access_violation(pin.error()));
  // A region need not start at an aligned address, whatever its offsets are.
  std::byte* target = pin->data();
  if (reinterpret_cast<std::uintptr_t>(target) % kAtomicBytes != 0) {
    return std::unexpected(Violation::kAtomicUnaligned);
  }
  std::uint64_t original = 0;
  if (!guarded(target, kAtomicBytes, [&] { original = operate(target, request); })) {
    return std::unexpected(Violation::kDenied);
  }
  return original;
}

}  // namespace airdma::rocev2
