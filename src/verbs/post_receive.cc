// SPDX-License-Identifier: MIT
// Posting of receives, to a queue pair or to a shared receive queue. As with sends, a list is taken
// up to the first bad request, and keys and addresses are the engine's to check.
#include <cerrno>
#include <mutex>

#include "verbs/api.h"
#include "verbs/sge_list.h"
#include "verbs/state.h"

namespace airdma::verbs {
namespace {

int refuse(ibv_recv_wr* wr, ibv_recv_wr** bad_wr, int error) {
  if (bad_wr != nullptr) *bad_wr = wr;
  return error;
}

/// Fills slots from the front of the list; `wr` ends at the first request that was not taken.
int fill_receives(model::ReceiveQueue& queue, std::uint32_t room, std::uint32_t max_sge,
                  ibv_recv_wr*& wr, std::uint32_t& taken) {
  for (; wr != nullptr; wr = wr->next) {
    std::uint64_t total = 0;
    if (!sum_lengths(wr->sg_list, wr->num_sge, max_sge, total)) return EINVAL;
    if (taken == room) return ENOMEM;
    model::ReceiveWqe& wqe = queue.slot(taken);
    wqe.wr_id = wr->wr_id;
    wqe.sge_count = static_cast<std::uint16_t>(wr->num_sge);
    wqe.length = static_cast<std::uint32_t>(total);
    copy_sges(wr->sg_list, wr->num_sge, wqe.sges);
    ++taken;
  }
  return 0;
}

int take_receives(Qp& qp, ibv_recv_wr*& wr, std::uint32_t& taken) {
  model::ReceiveQueue& queue = qp.runtime->receive_queue();
  std::lock_guard lock(qp.runtime->receive_lock());
  if (qp.runtime->state() == model::QpState::kReset) return EINVAL;
  const std::uint32_t room = qp.cap.max_recv_wr == 0 ? 0 : queue.free_slots();
  const int error = fill_receives(queue, room, qp.cap.max_recv_sge, wr, taken);
  if (taken != 0) queue.publish(taken);
  return error;
}

int take_receives(runtime::SharedReceiveQueue& shared, ibv_recv_wr*& wr, std::uint32_t& taken) {
  std::lock_guard lock(shared.lock());
  model::ReceiveQueue& queue = shared.queue();
  const int error = fill_receives(queue, queue.free_slots(), shared.max_sge(), wr, taken);
  if (taken != 0) shared.publish(taken);
  return error;
}

}  // namespace

int post_recv(ibv_qp* handle, ibv_recv_wr* wr, ibv_recv_wr** bad_wr) noexcept {
  Qp* qp = find_object(handle);
  if (qp == nullptr || wr == nullptr || qp->srq != nullptr) return refuse(wr, bad_wr, EINVAL);
  qp->runtime->before_receives();
  std::uint32_t taken = 0;
  const int error = take_receives(*qp, wr, taken);
  if (taken != 0) qp->runtime->receives_posted();
  return error == 0 ? 0 : refuse(wr, bad_wr, error);
}

int post_srq_recv(ibv_srq* handle, ibv_recv_wr* wr, ibv_recv_wr** bad_wr) noexcept {
  Srq* srq = find_object(handle);
  if (srq == nullptr || wr == nullptr) return refuse(wr, bad_wr, EINVAL);
  std::uint32_t taken = 0;
  const int error = take_receives(*srq->queue, wr, taken);
  if (taken != 0) srq->queue->receives_posted();
  return error == 0 ? 0 : refuse(wr, bad_wr, error);
}

}  // namespace airdma::verbs
