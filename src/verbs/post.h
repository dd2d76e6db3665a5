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

/// Whether a send queue of this type takes the operation.
bool can_post(model::QpType type, std::uint32_t opcode) noexcept;
/// Whether each request of this type names who gets it: datagrams, and the sends of XRC.
constexpr bool names_peer(model::QpType type) {
  return type == model::QpType::kUd || type == model::QpType::kXrcSend;
}
/// Whom a request goes to, as the type has it. EINVAL for an address handle that is none of this
/// queue pair's domain.
int place_peer(const Qp& qp, const ibv_send_wr& wr, model::SendWqe& wqe) noexcept;
/// Whether the state of the queue pair lets it take sends.
bool takes_sends(const Qp& qp) noexcept;
/// Writes the request, without its peer, into a slot; 0, or the errno value that ibv_post_send
/// gives for it.
int place_send(const Qp& qp, const ibv_send_wr& wr, model::SendWqe& wqe) noexcept;
/// The same with the data of `buffers`, inline, in place of the request's list.
int place_inline(const Qp& qp, ibv_send_wr& wr, const ibv_data_buf* buffers, std::size_t count,
                 model::SendWqe& wqe) noexcept;

}  // namespace airdma::verbs
