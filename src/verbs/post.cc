// SPDX-License-Identifier: MIT
// Posting of sends (receives: post_receive.cc): the checks that a request must pass at once, and
// its way into the ring. Keys and addresses of buffers are the engine's to check, when the request
// is carried out. A list is taken up to the first bad request; what was taken goes out as one
// batch.
#include <cerrno>
#include <cstring>
#include <mutex>

#include "verbs/api.h"
#include "verbs/limits.h"
#include "verbs/post.h"
#include "verbs/raw_enum.h"
#include "verbs/sge_list.h"
#include "verbs/state.h"

namespace airdma::verbs {
namespace {

using model::QpState;
using model::SendOpcode;

constexpr std::uint64_t kAtomicBytes = 8;
constexpr unsigned kKnownSendFlags =
    IBV_SEND_FENCE | IBV_SEND_SIGNALED | IBV_SEND_SOLICITED | IBV_SEND_INLINE;

constexpr std::uint32_t bit(ibv_wr_opcode opcode) { return 1u << opcode; }

constexpr std::uint32_t kDatagramOpcodes = bit(IBV_WR_SEND) | bit(IBV_WR_SEND_WITH_IMM);
constexpr std::uint32_t kUnreliableOpcodes = kDatagramOpcodes | bit(IBV_WR_RDMA_WRITE) |
                                             bit(IBV_WR_RDMA_WRITE_WITH_IMM) |
                                             bit(IBV_WR_LOCAL_INV) | bit(IBV_WR_BIND_MW);
constexpr std::uint32_t kReliableOpcodes =
    kUnreliableOpcodes | bit(IBV_WR_RDMA_READ) | bit(IBV_WR_ATOMIC_CMP_AND_SWP) |
    bit(IBV_WR_ATOMIC_FETCH_AND_ADD) | bit(IBV_WR_SEND_WITH_INV);

constexpr std::uint32_t opcodes_of(model::QpType type) {
  switch (type) {
    case model::QpType::kRc:
    case model::QpType::kXrcSend:
      return kReliableOpcodes;
    case model::QpType::kUc:
      return kUnreliableOpcodes;
    case model::QpType::kUd:
      return kDatagramOpcodes;
    case model::QpType::kRawPacket:
    case model::QpType::kXrcReceive:
      return 0;
  }
  return 0;
}

/// 0, or why the operation cannot be posted to a queue pair of this type.
int check_opcode(model::QpType type, std::uint32_t opcode) {
  if (opcode < 32 && (opcodes_of(type) >> opcode & 1) != 0) return 0;
  return opcode == IBV_WR_TSO || opcode == IBV_WR_DRIVER1 ? EOPNOTSUPP : EINVAL;
}

bool carries_immediate(ibv_wr_opcode opcode) {
  return opcode == IBV_WR_SEND_WITH_IMM || opcode == IBV_WR_RDMA_WRITE_WITH_IMM;
}

bool is_atomic(ibv_wr_opcode opcode) {
  return opcode == IBV_WR_ATOMIC_CMP_AND_SWP || opcode == IBV_WR_ATOMIC_FETCH_AND_ADD;
}

void copy_inline(const ibv_sge* from, int count, std::byte* to) {
  for (int i = 0; i < count; ++i) {
    if (from[i].length == 0) continue;
    std::memcpy(to, reinterpret_cast<const void*>(from[i].addr), from[i].length);
    to += from[i].length;
  }
}

/// Operations on keys, which have no data.
bool is_local(ibv_wr_opcode opcode) {
  return opcode == IBV_WR_BIND_MW || opcode == IBV_WR_LOCAL_INV;
}

/// The handles of a BIND_MW, and that the key is one of the window's. The rest is the engine's to
/// check.
int check_bind(const ibv_send_wr& wr, ibv_mw_type type) {
  const Mw* mw = find_object(wr.bind_mw.mw);
  const ibv_mw_bind_info& info = wr.bind_mw.bind_info;
  if (mw == nullptr || mw->pub.type != type) return EINVAL;
  if (find_object(info.mr) == nullptr && (info.mr != nullptr || info.length != 0)) return EINVAL;
  return (wr.bind_mw.rkey ^ mw->region->slot_key) >> 8 == 0 ? 0 : EINVAL;
}

void fill_bind(const ibv_send_wr& wr, model::SendWqe& wqe) {
  const ibv_mw_bind_info& info = wr.bind_mw.bind_info;
  wqe.rkey = Stag(wr.bind_mw.rkey);
  wqe.region_lkey = Stag(info.mr == nullptr ? 0 : info.mr->lkey);
  wqe.remote_addr = info.addr;
  wqe.compare_add = info.length;
  // Programs ask for LOCAL_WRITE, too, as they must for a region; the window has no use for it.
  wqe.window_access = info.mw_access_flags & ~unsigned{IBV_ACCESS_LOCAL_WRITE};
}

int check_send(const Qp& qp, const ibv_send_wr& wr, ibv_mw_type window, std::uint64_t& total) {
  if (const int error = check_opcode(qp.type, raw_value(wr.opcode)); error != 0) return error;
  if ((wr.send_flags & ~kKnownSendFlags) != 0) return EINVAL;
  if (is_local(wr.opcode)) return wr.opcode == IBV_WR_BIND_MW ? check_bind(wr, window) : 0;
  if (!sum_lengths(wr.sg_list, wr.num_sge, qp.cap.max_send_sge, total)) return EINVAL;
  if (is_atomic(wr.opcode) && total != kAtomicBytes) return EINVAL;
  if ((wr.send_flags & IBV_SEND_INLINE) == 0) return 0;
  if (wr.opcode == IBV_WR_RDMA_READ || is_atomic(wr.opcode) || total > qp.cap.max_inline_data)
    return EINVAL;
  return 0;
}

void fill_send(const Qp& qp, const ibv_send_wr& wr, std::uint64_t total, model::SendWqe& wqe) {
  wqe.wr_id = wr.wr_id;
  wqe.opcode = static_cast<SendOpcode>(wr.opcode);
  wqe.signaled = qp.signal_all || (wr.send_flags & IBV_SEND_SIGNALED) != 0;
  wqe.solicited = (wr.send_flags & IBV_SEND_SOLICITED) != 0;
  wqe.fence = (wr.send_flags & IBV_SEND_FENCE) != 0;
  wqe.inlined = (wr.send_flags & IBV_SEND_INLINE) != 0 && !is_local(wr.opcode);
  wqe.length = static_cast<std::uint32_t>(total);
  if (carries_immediate(wr.opcode)) wqe.immediate = wr.imm_data;
  if (wr.opcode == IBV_WR_BIND_MW) return fill_bind(wr, wqe);
  if (wr.opcode == IBV_WR_SEND_WITH_INV || wr.opcode == IBV_WR_LOCAL_INV) {
    wqe.rkey = Stag(wr.invalidate_rkey);
    if (wr.opcode == IBV_WR_LOCAL_INV) return;
  } else if (is_atomic(wr.opcode)) {
    wqe.rkey = Stag(wr.wr.atomic.rkey);
    wqe.remote_addr = wr.wr.atomic.remote_addr;
    wqe.compare_add = wr.wr.atomic.compare_add;
    wqe.swap = wr.wr.atomic.swap;
  } else if (wr.opcode != IBV_WR_SEND && wr.opcode != IBV_WR_SEND_WITH_IMM) {
    wqe.rkey = Stag(wr.wr.rdma.rkey);
    wqe.remote_addr = wr.wr.rdma.remote_addr;
  }
  if (wqe.inlined) {
    copy_inline(wr.sg_list, wr.num_sge, wqe.inline_data);
  } else {
    wqe.sge_count = static_cast<std::uint16_t>(wr.num_sge);
    copy_sges(wr.sg_list, wr.num_sge, wqe.sges);
  }
}

bool may_send(QpState state) {
  switch (state) {
    case QpState::kReset:
    case QpState::kInit:
    case QpState::kRtr:
      return false;
    case QpState::kRts:
    case QpState::kSqd:
    case QpState::kSqe:
    case QpState::kError:
      return true;
  }
  return false;
}

template <class Wr>
int refuse(Wr* wr, Wr** bad_wr, int error) {
  if (bad_wr != nullptr) *bad_wr = wr;
  return error;
}

/// Takes requests from the front of the list; `wr` ends at the first one that was not taken.
/// `window`: the type of window that may be bound.
int take_sends(Qp& qp, ibv_send_wr*& wr, ibv_mw_type window, std::uint32_t& taken,
               std::uint64_t& bytes) {
  model::SendQueue& queue = qp.runtime->send_queue();
  std::unique_lock lock(qp.runtime->send_lock(), std::try_to_lock);
  if (!lock) {
    if (qp.batch.is_of_this_thread()) return EINVAL;  // within its own batch of ibv_wr_*
    lock.lock();
  }
  if (!may_send(qp.runtime->state())) return EINVAL;
  const std::uint32_t room = qp.cap.max_send_wr == 0 ? 0 : qp.runtime->send_room();
  int error = 0;
  for (; wr != nullptr; wr = wr->next) {
    std::uint64_t total = 0;
    error = check_send(qp, *wr, window, total);
    if (error == 0 && taken == room) error = ENOMEM;
    if (error != 0) break;
    model::SendWqe& wqe = queue.slot(taken);
    if (names_peer(qp.type)) error = place_peer(qp, *wr, wqe);
    if (error != 0) break;
    fill_send(qp, *wr, total, wqe);
    bytes += total;
    ++taken;
  }
  if (taken != 0) queue.publish(taken);
  return error;
}

}  // namespace

int post_send(ibv_qp* handle, ibv_send_wr* wr, ibv_send_wr** bad_wr) noexcept {
  Qp* qp = find_object(handle);
  if (qp == nullptr || wr == nullptr) return refuse(wr, bad_wr, EINVAL);
  std::uint32_t taken = 0;
  std::uint64_t bytes = 0;
  const int error = take_sends(*qp, wr, IBV_MW_TYPE_2, taken, bytes);
  if (taken != 0) qp->runtime->sends_posted(taken, bytes);
  return error == 0 ? 0 : refuse(wr, bad_wr, error);
}

bool can_post(model::QpType type, std::uint32_t opcode) noexcept {
  return check_opcode(type, opcode) == 0;
}

int place_peer(const Qp& qp, const ibv_send_wr& wr, model::SendWqe& wqe) noexcept {
  if (qp.type == model::QpType::kXrcSend) {
    wqe.remote_srqn = Srqn(wr.qp_type.xrc.remote_srqn);
    return 0;
  }
  const Ah* ah = find_object(wr.wr.ud.ah);
  if (ah == nullptr || ah->pd->id != qp.pd->id) return EINVAL;
  *wqe.address = ah->address;
  wqe.remote_qpn = Qpn(wr.wr.ud.remote_qpn);
  wqe.remote_qkey = Qkey(wr.wr.ud.remote_qkey);
  return 0;
}

bool takes_sends(const Qp& qp) noexcept { return may_send(qp.runtime->state()); }

int place_send(const Qp& qp, const ibv_send_wr& wr, model::SendWqe& wqe) noexcept {
  std::uint64_t total = 0;
  const int error = check_send(qp, wr, IBV_MW_TYPE_2, total);
  if (error == 0) fill_send(qp, wr, total, wqe);
  return error;
}

int place_inline(const Qp& qp, ibv_send_wr& wr, const ibv_data_buf* buffers, std::size_t count,
                 model::SendWqe& wqe) noexcept {
  wr.send_flags |= IBV_SEND_INLINE;
  std::uint64_t total = 0;
  if (const int error = check_send(qp, wr, IBV_MW_TYPE_2, total); error != 0) return error;
  if (count != 0 && buffers == nullptr) return EINVAL;
  for (std::size_t i = 0; i < count; ++i) {
    if (buffers[i].length > qp.cap.max_inline_data - total) return EINVAL;
    total += buffers[i].length;
  }
  fill_send(qp, wr, total, wqe);
  std::byte* to = wqe.inline_data;
  for (std::size_t i = 0; i < count; ++i) {
    if (buffers[i].length == 0) continue;
    std::memcpy(to, buffers[i].addr, buffers[i].length);
    to += buffers[i].length;
  }
  return 0;
}

/// The window's next key is known at once, so that the program can tell its peer in a SEND.
Status bind_mw(ibv_qp* handle, ibv_mw* mw_handle, ibv_mw_bind* bind) {
  Qp* qp = find_object(handle);
  Mw* mw = find_object(mw_handle);
  if (qp == nullptr || mw == nullptr || bind == nullptr) return fail(EINVAL);
  const ibv_mr* mr = bind->bind_info.mr;
  constexpr unsigned kKnown = model::kWindowAccess | IBV_ACCESS_LOCAL_WRITE;
  if ((bind->bind_info.mw_access_flags & ~kKnown) != 0) return fail(EINVAL);
  if (mw->pub.pd != qp->pub.pd || (find_object(mr) != nullptr && mr->pd != qp->pub.pd)) {
    return fail(EPERM);
  }
  const std::uint32_t key = (mw->region->slot_key & ~0xffu) | (ibv_inc_rkey(mw->pub.rkey) & 0xffu);
  ibv_send_wr wr{};
  wr.wr_id = bind->wr_id;
  wr.opcode = IBV_WR_BIND_MW;
  wr.send_flags = bind->send_flags;
  wr.bind_mw = {.mw = mw_handle, .rkey = key, .bind_info = bind->bind_info};
  ibv_send_wr* next = &wr;
  std::uint32_t taken = 0;
  std::uint64_t bytes = 0;
  const int error = take_sends(*qp, next, IBV_MW_TYPE_1, taken, bytes);
  if (error != 0) return fail(error);
  mw->pub.rkey = key;
  qp->runtime->sends_posted(taken, bytes);
  return {};
}

}  // namespace airdma::verbs
