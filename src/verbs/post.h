// SPDX-License-Identifier: MIT
// What ibv_post_send and the extended posting interface share: how a request is checked, and how it
// becomes an entry of the send queue. With the queue's send_lock().
#pragma once

#include <infiniband/verbs.h>

#include <cstddef>
#include <cstdint>

#include "model/work.h"
#include "verbs/state.h"

namespace airdma::verbs {

/// Whether a send queue of this device takes the operation.
bool can_post(std::uint32_t opcode) noexcept;
/// Whether the state of the queue pair lets it take sends.
bool takes_sends(const Qp& qp) noexcept;
/// Writes the request into a slot; 0, or the errno value that ibv_post_send gives for it.
int place_send(const Qp& qp, const ibv_send_wr& wr, model::SendWqe& wqe) noexcept;
/// The same with the data of `buffers`, inline, in place of the request's list.
int place_inline(const Qp& qp, ibv_send_wr& wr, const ibv_data_buf* buffers, std::size_t count,
                 model::SendWqe& wqe) noexcept;

}  // namespace airdma::verbs
