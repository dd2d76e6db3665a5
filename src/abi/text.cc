// SPDX-License-Identifier: MIT
// C symbols that need no device: names, rates, sysfs, conversions from the kernel's structs.
#include "abi/adapters.h"
#include "abi/export.h"
#include "verbs/api.h"
#include "verbs/marshal.h"
#include "verbs/strings.h"

using airdma::abi::return_minus_one;
namespace verbs = airdma::verbs;

AIRDMA_EXPORT const char* ibv_wc_status_str(ibv_wc_status status) {
  return verbs::wc_status_str(status);
}

AIRDMA_EXPORT const char* ibv_node_type_str(ibv_node_type type) {
  return verbs::node_type_str(type);
}

AIRDMA_EXPORT const char* ibv_port_state_str(ibv_port_state state) {
  return verbs::port_state_str(state);
}

AIRDMA_EXPORT const char* ibv_event_type_str(ibv_event_type event) {
  return verbs::event_type_str(event);
}

AIRDMA_EXPORT int ibv_rate_to_mult(ibv_rate rate) { return verbs::rate_to_mult(rate); }

AIRDMA_EXPORT int ibv_rate_to_mbps(ibv_rate rate) { return verbs::rate_to_mbps(rate); }

AIRDMA_EXPORT ibv_rate mult_to_ibv_rate(int mult) { return verbs::mult_to_rate(mult); }

AIRDMA_EXPORT ibv_rate mbps_to_ibv_rate(int mbps) { return verbs::mbps_to_rate(mbps); }

// Not in the public headers, and exported all the same.

AIRDMA_EXPORT const char* ibv_get_sysfs_path(void) { return verbs::get_sysfs_path(); }

AIRDMA_EXPORT int ibv_read_sysfs_file(const char* dir, const char* file, char* buf, size_t size) {
  return return_minus_one([&] { return verbs::read_sysfs_file(dir, file, buf, size); });
}

AIRDMA_EXPORT void ibv_copy_ah_attr_from_kern(ibv_ah_attr* dst, ib_uverbs_ah_attr* src) {
  verbs::copy_ah_attr_from_kern(*dst, *src);
}

AIRDMA_EXPORT void ibv_copy_qp_attr_from_kern(ibv_qp_attr* dst, ib_uverbs_qp_attr* src) {
  verbs::copy_qp_attr_from_kern(*dst, *src);
}

AIRDMA_EXPORT void ibv_copy_path_rec_from_kern(ibv_sa_path_rec* dst, ib_user_path_rec* src) {
  verbs::copy_path_rec_from_kern(*dst, *src);
}

AIRDMA_EXPORT void ibv_copy_path_rec_to_kern(ib_user_path_rec* dst, ibv_sa_path_rec* src) {
  verbs::copy_path_rec_to_kern(*dst, *src);
}
