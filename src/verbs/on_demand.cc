// SPDX-License-Identifier: MIT
#include "verbs/on_demand.h"

#include <cerrno>
#include <limits>

#include "io/fault_handler.h"
#include "verbs/address_range.h"
#include "verbs/api.h"
#include "verbs/raw_enum.h"
#include "verbs/region.h"

namespace airdma::verbs {
namespace {

constexpr std::size_t kEverything = std::numeric_limits<std::size_t>::max();
/// Nothing is mapped below it: an address of 0 is a mistake.
constexpr std::uintptr_t kFirstAddress = 4096;
// Limit: what the kernel maps for programs that do not ask for more. An access beyond may be none
// that a fault handler can tell from a program's own mistake (on x86-64 such addresses are not
// canonical, and the fault names none).
#if defined(__aarch64__)
constexpr std::uintptr_t kEndOfMemory = std::uintptr_t{1} << 48;
#else
constexpr std::uintptr_t kEndOfMemory = std::uintptr_t{1} << 47;
#endif

bool within_memory(std::uintptr_t start, std::size_t length) {
  return start < kEndOfMemory && length <= kEndOfMemory - start;
}

/// One range that is to be made resident.
struct Range {
  std::byte* start;
  std::size_t bytes;
};

/// The errors of ibv_advise_mr(3).
int error_of(model::AccessFault fault) {
  switch (fault) {
    case model::AccessFault::kInvalidKey:
    case model::AccessFault::kBounds:
      return EFAULT;
    case model::AccessFault::kOtherPd:
    case model::AccessFault::kDenied:
      return EPERM;
  }
  return EFAULT;
}

/// The memory behind one entry, if it may be prefetched.
Result<Range> range_of(const State& all, const Pd& pd, const ibv_sge& sge, bool write) {
  if (sge.length == 0) return Range{nullptr, 0};
  model::AccessMask needed = IBV_ACCESS_ON_DEMAND;
  if (write) needed |= model::kAccessLocalWrite;
  const auto pin = all.memory.pin(Stag(sge.lkey), pd.id, sge.addr, sge.length, needed);
  if (!pin) {
    // A region that is not on demand is denied too, and that is another mistake.
    const bool pinned =
        pin.error() == model::AccessFault::kDenied &&
        !all.memory.pin(Stag(sge.lkey), pd.id, sge.addr, sge.length, IBV_ACCESS_ON_DEMAND);
    return fail(pinned ? EINVAL : error_of(pin.error()));
  }
  return Range{pin->data(), sge.length};
}

/// `advice` may be any number.
Status check_advice(std::uint32_t advice, std::uint32_t flags, const ibv_sge* sg_list,
                    std::uint32_t num_sge) {
  if (advice != IBV_ADVISE_MR_ADVICE_PREFETCH && advice != IBV_ADVISE_MR_ADVICE_PREFETCH_WRITE &&
      advice != IBV_ADVISE_MR_ADVICE_PREFETCH_NO_FAULT) {
    return fail(ENOTSUP);
  }
  if ((flags & ~std::uint32_t{IBV_ADVISE_MR_FLAG_FLUSH}) != 0) return fail(EINVAL);
  if (sg_list == nullptr || num_sge == 0) return fail(EINVAL);
  return {};
}

}  // namespace

bool is_implicit(const void* addr, std::size_t length, unsigned access) {
  return addr == nullptr && length == kEverything && (access & IBV_ACCESS_ON_DEMAND) != 0;
}

Result<ibv_mr*> register_everything(ibv_pd* pd, std::uint64_t iova, unsigned access) {
  if (iova != 0 || (access & IBV_ACCESS_HUGETLB) != 0) return fail(EINVAL);
  io::watch_faults();
  // An offset from the beginning of all memory is the address, so both kinds of base are one.
  const auto mr = add_region(pd, {.start = reinterpret_cast<std::byte*>(kFirstAddress),
                                  .length = kEndOfMemory - kFirstAddress,
                                  .base = kFirstAddress,
                                  .access = access,
                                  .fixed = true});
  if (!mr) return std::unexpected(mr.error());
  (*mr)->pub.length = kEverything;
  return &(*mr)->pub;
}

Status check_memory(const void* addr, std::size_t length, unsigned access) {
  const bool on_demand = (access & IBV_ACCESS_ON_DEMAND) != 0;
  if (on_demand && within_memory(reinterpret_cast<std::uintptr_t>(addr), length)) return {};
  return check_range(addr, length, (access & IBV_ACCESS_LOCAL_WRITE) != 0);
}

void fill_on_demand(ibv_device_attr_ex& attr, const Device& device) {
  constexpr std::uint32_t kMessages =
      IBV_ODP_SUPPORT_SEND | IBV_ODP_SUPPORT_RECV | IBV_ODP_SUPPORT_SRQ_RECV;
  constexpr std::uint32_t kAll =
      kMessages | IBV_ODP_SUPPORT_WRITE | IBV_ODP_SUPPORT_READ | IBV_ODP_SUPPORT_ATOMIC;
  attr.odp_caps.general_caps = IBV_ODP_SUPPORT | IBV_ODP_SUPPORT_IMPLICIT;
  auto& caps = attr.odp_caps.per_transport_caps;
  caps.rc_odp_caps = kAll;
  if (device.pub.transport_type == IBV_TRANSPORT_IWARP) return;
  caps.uc_odp_caps = kMessages | IBV_ODP_SUPPORT_WRITE;
  caps.ud_odp_caps = kMessages;
  attr.xrc_odp_caps = kAll;
}

Status advise_mr(ibv_pd* handle, ibv_advise_mr_advice advice, uint32_t flags, ibv_sge* sg_list,
                 uint32_t num_sge) {
  const Pd* pd = find_object(handle);
  if (pd == nullptr) return fail(EINVAL);
  const std::uint32_t raw = raw_value(advice);
  if (Status legal = check_advice(raw, flags, sg_list, num_sge); !legal) return legal;
  const bool write = raw == IBV_ADVISE_MR_ADVICE_PREFETCH_WRITE;
  // All or nothing: no entry is acted on before all are known to be good.
  for (std::uint32_t i = 0; i < num_sge; ++i) {
    const auto range = range_of(state(), *pd, sg_list[i], write);
    if (!range) return std::unexpected(range.error());
  }
  if (raw == IBV_ADVISE_MR_ADVICE_PREFETCH_NO_FAULT) return {};
  for (std::uint32_t i = 0; i < num_sge; ++i) {
    const auto range = range_of(state(), *pd, sg_list[i], write);
    if (!range) return std::unexpected(range.error());
    if (Status there = make_resident(range->start, range->bytes, write); !there) return there;
  }
  return {};
}

}  // namespace airdma::verbs
