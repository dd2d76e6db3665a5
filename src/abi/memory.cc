// SPDX-License-Identifier: MIT
// C symbols: protection domains, memory, objects imported from other processes, fork hints.
#include "abi/adapters.h"
#include "abi/export.h"
#include "verbs/api.h"

using airdma::abi::return_errno;
using airdma::abi::return_minus_one;
using airdma::abi::return_pointer;
namespace verbs = airdma::verbs;

AIRDMA_EXPORT ibv_pd* ibv_alloc_pd(ibv_context* context) {
  return return_pointer([&] { return verbs::alloc_pd(context); });
}

AIRDMA_EXPORT int ibv_dealloc_pd(ibv_pd* pd) {
  return return_errno([&] { return verbs::dealloc_pd(pd); });
}

AIRDMA_EXPORT ibv_mr* ibv_reg_mr(ibv_pd* pd, void* addr, size_t length, int access) {
  return return_pointer([&] { return verbs::reg_mr(pd, addr, length, access); });
}

AIRDMA_EXPORT ibv_mr* ibv_reg_mr_iova(ibv_pd* pd, void* addr, size_t length, uint64_t iova,
                                      int access) {
  return return_pointer([&] { return verbs::reg_mr_iova(pd, addr, length, iova, access); });
}

AIRDMA_EXPORT ibv_mr* ibv_reg_mr_iova2(ibv_pd* pd, void* addr, size_t length, uint64_t iova,
                                       unsigned access) {
  return return_pointer([&] { return verbs::reg_mr_iova2(pd, addr, length, iova, access); });
}

AIRDMA_EXPORT ibv_mr* ibv_reg_dmabuf_mr(ibv_pd* pd, uint64_t offset, size_t length, uint64_t iova,
                                        int fd, int access) {
  return return_pointer([&] { return verbs::reg_dmabuf_mr(pd, offset, length, iova, fd, access); });
}

// A failure that leaves the old region valid is IBV_REREG_MR_ERR_INPUT, which is -1.
AIRDMA_EXPORT int ibv_rereg_mr(ibv_mr* mr, int flags, ibv_pd* pd, void* addr, size_t length,
                               int access) {
  static_assert(IBV_REREG_MR_ERR_INPUT == -1);
  return return_minus_one([&] { return verbs::rereg_mr(mr, flags, pd, addr, length, access); });
}

AIRDMA_EXPORT int ibv_dereg_mr(ibv_mr* mr) {
  return return_errno([&] { return verbs::dereg_mr(mr); });
}

AIRDMA_EXPORT ibv_pd* ibv_import_pd(ibv_context* context, uint32_t pd_handle) {
  return return_pointer([&] { return verbs::import_pd(context, pd_handle); });
}

AIRDMA_EXPORT void ibv_unimport_pd(ibv_pd* pd) {
  return_errno([&] { verbs::unimport_pd(pd); });
}

AIRDMA_EXPORT ibv_mr* ibv_import_mr(ibv_pd* pd, uint32_t mr_handle) {
  return return_pointer([&] { return verbs::import_mr(pd, mr_handle); });
}

AIRDMA_EXPORT void ibv_unimport_mr(ibv_mr* mr) {
  return_errno([&] { verbs::unimport_mr(mr); });
}

AIRDMA_EXPORT ibv_dm* ibv_import_dm(ibv_context* context, uint32_t dm_handle) {
  return return_pointer([&] { return verbs::import_dm(context, dm_handle); });
}

AIRDMA_EXPORT void ibv_unimport_dm(ibv_dm* dm) {
  return_errno([&] { verbs::unimport_dm(dm); });
}

AIRDMA_EXPORT int ibv_fork_init(void) {
  return return_errno([] { return verbs::fork_init(); });
}

AIRDMA_EXPORT ibv_fork_status ibv_is_fork_initialized(void) { return verbs::is_fork_initialized(); }

AIRDMA_EXPORT int ibv_dontfork_range(void* base, size_t size) {
  return return_errno([&] { return verbs::dontfork_range(base, size); });
}

AIRDMA_EXPORT int ibv_dofork_range(void* base, size_t size) {
  return return_errno([&] { return verbs::dofork_range(base, size); });
}
