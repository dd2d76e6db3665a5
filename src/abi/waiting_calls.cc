// SPDX-License-Identifier: MIT
#include "abi/waiting.h"

#include "abi/adapters.h"
#include "verbs/cm_api.h"

namespace airdma::abi {
namespace {

template <class Call>
int call_with(EventWait& wait, Call&& call) noexcept {
  EventWait::current = &wait;
  const int result = return_minus_one(call);
  EventWait::current = nullptr;
  return result;
}

}  // namespace

int get_cq_event(EventWait& wait, ibv_comp_channel* channel, ibv_cq** cq, void** context) noexcept {
  return call_with(wait, [&] { return verbs::get_cq_event(channel, cq, context); });
}

int get_async_event(EventWait& wait, ibv_context* context, ibv_async_event* event) noexcept {
  return call_with(wait, [&] { return verbs::get_async_event(context, event); });
}

int get_cm_event(EventWait& wait, rdma_event_channel* channel, rdma_cm_event** event) noexcept {
  return call_with(wait, [&] { return cm::get_cm_event(channel, event); });
}

int get_request(EventWait& wait, rdma_cm_id* listener, rdma_cm_id** id) noexcept {
  return call_with(wait, [&] { return cm::get_request(listener, id); });
}

}  // namespace airdma::abi
