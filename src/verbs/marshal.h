// SPDX-License-Identifier: MIT
// Between the structs of programs and the ones of the kernel's interface. airdma has no kernel
// interface; the functions are public, so they do what they say.
#pragma once

#include <infiniband/sa.h>
#include <infiniband/verbs.h>
#include <rdma/ib_user_sa.h>
#include <rdma/ib_user_verbs.h>

namespace airdma::verbs {

void copy_ah_attr_from_kern(ibv_ah_attr& dst, const ib_uverbs_ah_attr& src) noexcept;
/// Leaves `rate_limit`, which the kernel's struct has not, untouched.
void copy_qp_attr_from_kern(ibv_qp_attr& dst, const ib_uverbs_qp_attr& src) noexcept;
void copy_path_rec_from_kern(ibv_sa_path_rec& dst, const ib_user_path_rec& src) noexcept;
void copy_path_rec_to_kern(ib_user_path_rec& dst, const ibv_sa_path_rec& src) noexcept;

}  // namespace airdma::verbs
