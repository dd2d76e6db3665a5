// SPDX-License-Identifier: MIT
#include "model/work.h"

#include <algorithm>
#include <bit>

namespace airdma::model {

template <class Wqe>
WorkRing<Wqe>::WorkRing(std::uint32_t depth, std::uint32_t max_sge, std::uint32_t max_inline,
                        bool datagrams)
    : depth_(std::max(depth, 1u)),
      mask_(std::bit_ceil(std::uint64_t{depth_}) - 1),
      max_sge_(max_sge),
      max_inline_(max_inline),
      slots_(mask_ + 1),
      sges_((mask_ + 1) * max_sge),
      inline_data_((mask_ + 1) * max_inline),
      addresses_(datagrams ? mask_ + 1 : 0) {}

template <class Wqe>
Wqe& WorkRing<Wqe>::slot(std::uint32_t ahead) {
  const std::size_t i = index(tail_.load(std::memory_order_relaxed) + ahead);
  Wqe& wqe = slots_[i];
  wqe = Wqe{};
  wqe.sges = sges_.data() + i * max_sge_;
  if constexpr (requires { wqe.inline_data; }) {
    wqe.inline_data = inline_data_.data() + i * max_inline_;
    if (addresses_.size() != 0) wqe.address = &addresses_[i];
  }
  return wqe;
}

template class WorkRing<SendWqe>;
template class WorkRing<ReceiveWqe>;

}  // namespace airdma::model
