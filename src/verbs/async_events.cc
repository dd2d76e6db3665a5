// SPDX-License-Identifier: MIT
#include "verbs/async_events.h"

#include <algorithm>

#include "verbs/raw_enum.h"

namespace airdma::verbs {

Result<std::shared_ptr<AsyncEvents>> AsyncEvents::create() {
  auto counter = io::EventCounter::create();
  if (!counter) return std::unexpected(counter.error());
  auto events = std::make_shared<AsyncEvents>();
  events->counter_ = std::move(*counter);
  return events;
}

void AsyncEvents::push(const ibv_async_event& event) {
  std::lock_guard lock(mutex_);
  events_.push_back(event);
  counter_.post();
}

Result<ibv_async_event> AsyncEvents::pop() {
  for (;;) {
    if (Status taken = counter_.consume(); !taken) return std::unexpected(taken.error());
    std::lock_guard lock(mutex_);
    // purge() may have removed the event whose count this thread has just taken.
    if (events_.empty()) continue;
    const ibv_async_event event = events_.front();
    events_.pop_front();
    return event;
  }
}

void AsyncEvents::purge(const void* element) {
  std::lock_guard lock(mutex_);
  const std::size_t removed =
      std::erase_if(events_, [&](const auto& event) { return element_of(event) == element; });
  for (std::size_t i = 0; i < removed; ++i) counter_.consume_if_any();
}

const void* element_of(const ibv_async_event& event) {
  switch (raw_value(event.event_type)) {
    case IBV_EVENT_CQ_ERR:
      return event.element.cq;
    case IBV_EVENT_QP_FATAL:
    case IBV_EVENT_QP_REQ_ERR:
    case IBV_EVENT_QP_ACCESS_ERR:
    case IBV_EVENT_COMM_EST:
    case IBV_EVENT_SQ_DRAINED:
    case IBV_EVENT_PATH_MIG:
    case IBV_EVENT_PATH_MIG_ERR:
    case IBV_EVENT_QP_LAST_WQE_REACHED:
      return event.element.qp;
    case IBV_EVENT_SRQ_ERR:
    case IBV_EVENT_SRQ_LIMIT_REACHED:
      return event.element.srq;
    case IBV_EVENT_WQ_FATAL:
      return event.element.wq;
    default:  // of a port or the device
      return nullptr;
  }
}

}  // namespace airdma::verbs
