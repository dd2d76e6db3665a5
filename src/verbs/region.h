// SPDX-License-Identifier: MIT
// Making memory regions, for all the verbs that do: over the program's memory, over a device's,
// over none.
#pragma once

#include <infiniband/verbs.h>

#include <cstddef>
#include <cstdint>
#include <memory>

#include "base/result.h"
#include "verbs/state.h"

namespace airdma::verbs {

struct Registration {
  std::byte* start = nullptr;
  std::size_t length = 0;           // bytes
  std::uint64_t base = 0;           // what peers and work requests call the first byte
  unsigned access = 0;              // checked
  std::byte* sink = nullptr;        // of a null region (model/memory.h)
  std::shared_ptr<void> backing{};  // what the memory belongs to, if that is not the program
  bool fixed = false;               // rereg_mr() cannot change it
  void* addr = nullptr;             // what ibv_mr.addr says
};

/// The rights without optional bits, which a device may ignore. EINVAL for unknown ones, and for
/// changes by peers without those of this process.
Result<unsigned> check_access(unsigned access);

/// A region on `pd`, under a fresh key. EINVAL for what is no protection domain.
Result<Mr*> add_region(ibv_pd* pd, const Registration& wanted);

/// Ends one of several handles to a region, or the last one of a region that has ended. With
/// `control` held.
void end_handle(State& all, Mr& mr);

/// Ends a domain's handle that nothing uses. With `control` held.
void end_domain(State& all, Pd& pd);

}  // namespace airdma::verbs
