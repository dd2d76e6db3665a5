// SPDX-License-Identifier: MIT
// What the connection manager needs of the verbs objects beyond the public functions (api.h).
// Thread-safe, also against a program that destroys the object meanwhile; handles that are no live
// objects are recognised as everywhere.
#pragma once

#include <infiniband/verbs.h>

#include <cstdint>
#include <memory>

#include "base/result.h"
#include "model/memory.h"
#include "runtime/stream_queue_pair.h"

namespace airdma::verbs {

/// The queue pair over TCP behind a handle; null when the handle is no live queue pair, or one of
/// another transport.
std::shared_ptr<runtime::StreamQueuePair> stream_queue_pair_of(const ibv_qp* qp);
/// The queue pair with this number on a device, in whatever context; null when there is none.
ibv_qp* queue_pair_with(std::uint32_t number, const ibv_device* device);

/// RESET to INIT as rdma_create_qp wants it, with these rights for the peer. EINVAL when the queue
/// pair is not in RESET.
Status init_queue_pair(ibv_qp* qp, model::AccessMask remote_access);
/// READs that connection setup agreed on, for ibv_query_qp: outstanding at the peer, and here.
void note_read_limits(ibv_qp* qp, std::uint8_t max_rd_atomic, std::uint8_t max_dest_rd_atomic);
/// What query_qp() shows as the acknowledgement timeout.
void note_timeout(ibv_qp* qp, std::uint8_t timeout);
/// Brings `qp->state`, which programs read, up to date after the connection moved the queue pair.
void sync_state(ibv_qp* qp);

/// Whether the handle is a live object of this process.
bool is_live(const ibv_context* context);
bool is_live(const ibv_pd* pd);

}  // namespace airdma::verbs
