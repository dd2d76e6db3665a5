// SPDX-License-Identifier: MIT
// C symbols: devices, contexts, asynchronous events.
#include <cstring>

#include "abi/adapters.h"
#include "abi/export.h"
#include "verbs/api.h"

using airdma::Status;
using airdma::abi::contain;
using airdma::abi::return_errno;
using airdma::abi::return_minus_one;
using airdma::abi::return_pointer;
namespace verbs = airdma::verbs;

AIRDMA_EXPORT ibv_device** ibv_get_device_list(int* num_devices) {
  return return_pointer([&] { return verbs::get_device_list(num_devices); });
}

AIRDMA_EXPORT void ibv_free_device_list(ibv_device** list) {
  return_errno([&] { verbs::free_device_list(list); });
}

AIRDMA_EXPORT const char* ibv_get_device_name(ibv_device* device) {
  return return_pointer([&] { return verbs::get_device_name(device); });
}

AIRDMA_EXPORT __be64 ibv_get_device_guid(ibv_device* device) {
  // No value of a GUID is an error by its documentation; zero is none that a device has.
  auto call = [&] { return verbs::get_device_guid(device); };
  return contain(call).value_or(0);
}

AIRDMA_EXPORT int ibv_get_device_index(ibv_device* device) {
  return return_minus_one([&] { return verbs::get_device_index(device); });
}

AIRDMA_EXPORT ibv_context* ibv_open_device(ibv_device* device) {
  return return_pointer([&] { return verbs::open_device(device); });
}

AIRDMA_EXPORT ibv_context* ibv_import_device(int cmd_fd) {
  return return_pointer([&] { return verbs::import_device(cmd_fd); });
}

AIRDMA_EXPORT int ibv_close_device(ibv_context* context) {
  return return_minus_one([&] { return verbs::close_device(context); });
}

AIRDMA_EXPORT int ibv_query_device(ibv_context* context, ibv_device_attr* attr) {
  return return_errno([&] { return verbs::query_device(context, attr); });
}

// The symbol behind the inline wrapper is older than port_cap_flags2: a caller's struct may end
// before it.
AIRDMA_EXPORT int ibv_query_port(ibv_context* context, uint8_t port_num,
                                 _compat_ibv_port_attr* attr) {
  constexpr size_t kCompatBytes = offsetof(ibv_port_attr, port_cap_flags2);
  static_assert(kCompatBytes == 48);
  return return_errno([&]() -> Status {
    return verbs::query_port(context, port_num, reinterpret_cast<ibv_port_attr*>(attr),
                             kCompatBytes);
  });
}

AIRDMA_EXPORT int ibv_query_gid(ibv_context* context, uint8_t port_num, int index, ibv_gid* gid) {
  return return_minus_one([&] { return verbs::query_gid(context, port_num, index, gid); });
}

AIRDMA_EXPORT int _ibv_query_gid_ex(ibv_context* context, uint32_t port_num, uint32_t gid_index,
                                    ibv_gid_entry* entry, uint32_t flags, size_t entry_size) {
  return return_errno(
      [&] { return verbs::query_gid_ex(context, port_num, gid_index, entry, flags, entry_size); });
}

// A private symbol, which pyverbs calls nevertheless. Its type is the word that sysfs holds, which
// counts "IB/RoCE v1" as 0 and "RoCE v2" as 1; iWARP's GIDs have the first.
AIRDMA_EXPORT int ibv_query_gid_type(ibv_context* context, uint8_t port_num, unsigned index,
                                     unsigned* type) {
  return return_minus_one([&]() -> Status {
    ibv_gid_entry entry{};
    const auto status = verbs::query_gid_ex(context, port_num, index, &entry, 0, sizeof entry);
    if (!status) return status;
    if (type == nullptr) return airdma::fail(EINVAL);
    *type = entry.gid_type == IBV_GID_TYPE_ROCE_V2 ? 1 : 0;
    return {};
  });
}

// Its failure is the negative errno value, alone among all functions.
AIRDMA_EXPORT ssize_t _ibv_query_gid_table(ibv_context* context, ibv_gid_entry* entries,
                                           size_t max_entries, uint32_t flags, size_t entry_size) {
  const ssize_t entries_read = return_minus_one(
      [&] { return verbs::query_gid_table(context, entries, max_entries, flags, entry_size); });
  return entries_read < 0 ? -errno : entries_read;
}

AIRDMA_EXPORT int ibv_query_pkey(ibv_context* context, uint8_t port_num, int index, __be16* pkey) {
  return return_minus_one([&] { return verbs::query_pkey(context, port_num, index, pkey); });
}

AIRDMA_EXPORT int ibv_get_pkey_index(ibv_context* context, uint8_t port_num, __be16 pkey) {
  return return_minus_one([&] { return verbs::get_pkey_index(context, port_num, pkey); });
}

AIRDMA_EXPORT void ibv_ack_async_event(ibv_async_event* event) {
  return_errno([&] { verbs::ack_async_event(event); });
}
