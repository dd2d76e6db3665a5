// SPDX-License-Identifier: MIT
// Binding of memory windows, and its end.
#include <utility>

#include "model/memory.h"

namespace airdma::model {
namespace {

bool may_give(const Region& parent, AccessMask access) {
  constexpr AccessMask kChanges = kAccessRemoteWrite | kAccessRemoteAtomic;
  if ((access & ~kWindowAccess) != 0) return false;
  return (access & kChanges) == 0 || (parent.access & kAccessLocalWrite) != 0;
}

/// `pin` keeps the region, whose range it covers.
void attach(Region& window, Region& parent, std::byte* start, const WindowBind& wanted) {
  parent.windows.fetch_add(1, std::memory_order_seq_cst);
  window.parent = &parent;
  window.start = start;
  window.base = (wanted.access & kAccessZeroBased) != 0 ? 0 : wanted.addr;
  window.length = wanted.length;
  window.access = wanted.access;
  window.qpn = wanted.qpn;
  window.last_key = wanted.key.value();
  window.key.store(wanted.key.value(), std::memory_order_seq_cst);
}

}  // namespace

/// Two queue pairs may bind one window at the same time. Nothing is waited for with it but accesses
/// in progress, each a copy of a few microseconds.
class MemoryTable::WindowChange {
 public:
  WindowChange(const MemoryTable& table, Region& window) : changing_(window.changing) {
    while (changing_.exchange(true, std::memory_order_acquire)) table.rest();
  }
  ~WindowChange() { changing_.store(false, std::memory_order_release); }
  WindowChange(const WindowChange&) = delete;
  WindowChange& operator=(const WindowChange&) = delete;

 private:
  std::atomic<bool>& changing_;
};

/// No access goes through the window when this returns, and its region is free of it.
void MemoryTable::release(Region& window) const {
  window.key.store(0, std::memory_order_seq_cst);
  while (!idle(window)) rest();
  if (Region* parent = std::exchange(window.parent, nullptr)) {
    parent->windows.fetch_sub(1, std::memory_order_seq_cst);
  }
}

bool MemoryTable::bind(const WindowBind& wanted) const {
  Region* window = find(wanted.key);
  if (window == nullptr || window->kind == RegionKind::kRegion) return false;
  const WindowChange change(*this, *window);
  const bool once = window->kind == RegionKind::kWindow2;
  if (window->slot_key == 0 || window->pd != wanted.pd) return false;
  const bool bound = window->key.load(std::memory_order_relaxed) != 0;
  if (once && (bound || wanted.key.value() == window->last_key)) return false;
  if (wanted.length == 0) {
    if (once) return false;
    release(*window);
    window->last_key = wanted.key.value();
    return true;
  }
  const auto pin = this->pin(wanted.lkey, wanted.pd, wanted.addr, wanted.length, kAccessMwBind);
  if (!pin || !may_give(*pin->region_, wanted.access)) return false;
  release(*window);
  attach(*window, *pin->region_, pin->data_, wanted);
  return true;
}

bool MemoryTable::invalidate(Stag key, PdId pd, Qpn qpn) const {
  Region* window = find(key);
  if (window == nullptr || window->kind != RegionKind::kWindow2) return false;
  const WindowChange change(*this, *window);
  if (window->key.load(std::memory_order_relaxed) != key.value()) return false;
  if (window->pd != pd || window->qpn != qpn) return false;
  release(*window);
  return true;
}

void MemoryTable::unbind_from(Region& window, Qpn qpn) const {
  const WindowChange change(*this, window);
  if (window.kind == RegionKind::kWindow2 && window.qpn == qpn) release(window);
}

void MemoryTable::retract_window(Region& window) {
  const WindowChange change(*this, window);
  release(window);
  retract(window);
}

}  // namespace airdma::model
