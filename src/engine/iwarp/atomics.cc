// SPDX-License-Identifier: MIT
#include "engine/iwarp/atomics.h"

#include <atomic>
#include <utility>

#include "base/guarded_copy.h"
#include "engine/iwarp/read_responder.h"

namespace airdma::iwarp {

using model::Violation;
using wire::AtomicOperation;
using wire::AtomicRequest;

namespace {

static_assert(std::atomic_ref<std::uint64_t>::is_always_lock_free);
static_assert(std::atomic_ref<std::uint64_t>::required_alignment <= kAtomicBytes);

bool known(AtomicOperation operation) {
  return operation == AtomicOperation::kFetchAdd || operation == AtomicOperation::kCompareSwap;
}

/// A one in the mask is the top bit of a field of its own: nothing is carried beyond it. A mask of
/// zero adds 64-bit numbers.
std::uint64_t add_fields(std::uint64_t a, std::uint64_t b, std::uint64_t mask) {
  return ((a & ~mask) + (b & ~mask)) ^ ((a ^ b) & mask);
}

std::uint64_t result(std::uint64_t value, const AtomicRequest& request) {
  if (request.operation == AtomicOperation::kFetchAdd) {
    return add_fields(value, request.add_or_swap_data, request.add_or_swap_mask);
  }
  if (((value ^ request.compare_data) & request.compare_mask) != 0) return value;
  return (value & ~request.add_or_swap_mask) |
         (request.add_or_swap_data & request.add_or_swap_mask);
}

}  // namespace

std::expected<model::Pin, Violation> pin_atomic(const model::MemoryTable& memory, PdId pd, Qpn qpn,
                                                model::AccessMask remote_access,
                                                const AtomicRequest& request) {
  if (!known(request.operation)) return std::unexpected(Violation::kAtomicOperation);
  if (request.tagged_offset % kAtomicBytes != 0) {
    return std::unexpected(Violation::kAtomicUnaligned);
  }
  auto pin = memory.pin(request.stag, pd, request.tagged_offset, kAtomicBytes,
                        model::kAccessRemoteAtomic, qpn);
  if (!pin) return std::unexpected(read_violation(pin.error()));
  if ((remote_access & model::kAccessRemoteAtomic) == 0) {
    return std::unexpected(Violation::kReadDenied);
  }
  // A region need not start at an aligned address, whatever its offsets are.
  if (reinterpret_cast<std::uintptr_t>(pin->data()) % kAtomicBytes != 0) {
    return std::unexpected(Violation::kAtomicUnaligned);
  }
  return std::move(*pin);
}

std::optional<std::uint64_t> perform_atomic(std::byte* target, const AtomicRequest& request) {
  std::uint64_t original = 0;
  const bool done = guarded(target, kAtomicBytes, [&] {
    std::atomic_ref<std::uint64_t> memory(*reinterpret_cast<std::uint64_t*>(target));
    original = memory.load(std::memory_order_relaxed);
    while (!memory.compare_exchange_weak(original, result(original, request),
                                         std::memory_order_seq_cst)) {
    }
  });
  return done ? std::optional(original) : std::nullopt;
}

}  // namespace airdma::iwarp
