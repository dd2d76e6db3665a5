// SPDX-License-Identifier: MIT
// Where programs sleep, and where their threads may be cancelled. No frame of this file has
// anything to clean up: it is compiled without exceptions, and nothing here is noexcept.
#include "abi/waiting.h"

#include <errno.h>
#include <unistd.h>

#include "abi/export.h"

using airdma::EventWait;

namespace {

// False when the call's result is final.
bool slept(EventWait& wait) {
  if (wait.state != EventWait::State::kWanted) return false;
  while (wait.fd == EventWait::kForEver) ::pause();
  char byte = 0;
  const ssize_t got = ::read(wait.fd, &byte, 1);
  // End of file: the channel was destroyed under this thread, and nothing of it may be touched.
  // Closing a kernel's event channel leaves its readers asleep, too.
  while (got == 0) ::pause();
  wait.error = got < 0 ? errno : 0;
  wait.state = EventWait::State::kDone;
  return true;
}

}  // namespace

AIRDMA_EXPORT int ibv_get_cq_event(ibv_comp_channel* channel, ibv_cq** cq, void** cq_context) {
  EventWait wait;
  int result = 0;
  do {
    result = airdma::abi::get_cq_event(wait, channel, cq, cq_context);
  } while (slept(wait));
  return result;
}

AIRDMA_EXPORT int ibv_get_async_event(ibv_context* context, ibv_async_event* event) {
  EventWait wait;
  int result = 0;
  do {
    result = airdma::abi::get_async_event(wait, context, event);
  } while (slept(wait));
  return result;
}

AIRDMA_EXPORT int rdma_get_cm_event(rdma_event_channel* channel, rdma_cm_event** event) {
  EventWait wait;
  int result = 0;
  do {
    result = airdma::abi::get_cm_event(wait, channel, event);
  } while (slept(wait));
  return result;
}

AIRDMA_EXPORT int rdma_get_request(rdma_cm_id* listen, rdma_cm_id** id) {
  EventWait wait;
  int result = 0;
  do {
    result = airdma::abi::get_request(wait, listen, id);
  } while (slept(wait));
  return result;
}
