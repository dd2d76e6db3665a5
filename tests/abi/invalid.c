// SPDX-License-Identifier: MIT
// NULL where a handle belongs is EINVAL, in the convention of each function, and no crash.
#include <infiniband/verbs.h>
#include <rdma/rdma_cma.h>
#include <rdma/rdma_verbs.h>

#include "check.h"

// The exported functions, not the inline ones, which follow the handle themselves.
#undef ibv_query_port
#undef ibv_reg_mr
#undef ibv_reg_mr_iova

static void device_calls(void) {
  struct ibv_device_attr device_attr;
  struct ibv_async_event event;
  struct ibv_gid_entry entry;
  union ibv_gid gid;
  char port_attr[64];
  __be16 pkey;

  FAILS_WITH_NULL(EINVAL, ibv_open_device(NULL));
  FAILS_WITH_NULL(EINVAL, ibv_get_device_name(NULL));
  FAILS_WITH_MINUS_ONE(EINVAL, ibv_get_device_index(NULL));
  CHECK(ibv_get_device_guid(NULL) == 0);
  FAILS_WITH_MINUS_ONE(EINVAL, ibv_close_device(NULL));
  FAILS_WITH_ERRNO_VALUE(EINVAL, ibv_query_device(NULL, &device_attr));
  FAILS_WITH_ERRNO_VALUE(EINVAL, ibv_query_port(NULL, 1, (struct _compat_ibv_port_attr*)port_attr));
  FAILS_WITH_MINUS_ONE(EINVAL, ibv_query_gid(NULL, 1, 0, &gid));
  FAILS_WITH_ERRNO_VALUE(EINVAL, ibv_query_gid_ex(NULL, 1, 0, &entry, 0));
  FAILS_WITH_ERRNO_VALUE(-EINVAL, ibv_query_gid_table(NULL, &entry, 1, 0));
  FAILS_WITH_MINUS_ONE(EINVAL, ibv_query_pkey(NULL, 1, 0, &pkey));
  FAILS_WITH_MINUS_ONE(EINVAL, ibv_get_pkey_index(NULL, 1, 0));
  FAILS_WITH_MINUS_ONE(EINVAL, ibv_get_async_event(NULL, &event));
  ibv_free_device_list(NULL);
  ibv_ack_async_event(NULL);
}

static void object_calls(void) {
  struct ibv_qp_init_attr init = {.qp_type = IBV_QPT_RC};
  struct ibv_qp_attr attr;
  struct ibv_cq* cq;
  void* context;
  char byte;

  FAILS_WITH_NULL(EINVAL, ibv_alloc_pd(NULL));
  FAILS_WITH_ERRNO_VALUE(EINVAL, ibv_dealloc_pd(NULL));
  FAILS_WITH_NULL(EINVAL, ibv_reg_mr(NULL, &byte, 1, 0));
  FAILS_WITH_NULL(EINVAL, ibv_reg_mr_iova(NULL, &byte, 1, 0, 0));
  FAILS_WITH_NULL(EINVAL, ibv_reg_mr_iova2(NULL, &byte, 1, 0, 0));
  FAILS_WITH_ERRNO_VALUE(EINVAL, ibv_dereg_mr(NULL));
  FAILS_WITH_NULL(EINVAL, ibv_create_comp_channel(NULL));
  FAILS_WITH_ERRNO_VALUE(EINVAL, ibv_destroy_comp_channel(NULL));
  FAILS_WITH_NULL(EINVAL, ibv_create_cq(NULL, 1, NULL, NULL, 0));
  FAILS_WITH_ERRNO_VALUE(EINVAL, ibv_destroy_cq(NULL));
  FAILS_WITH_MINUS_ONE(EINVAL, ibv_get_cq_event(NULL, &cq, &context));
  ibv_ack_cq_events(NULL, 1);
  FAILS_WITH_NULL(EINVAL, ibv_create_qp(NULL, &init));
  FAILS_WITH_ERRNO_VALUE(EINVAL, ibv_modify_qp(NULL, &attr, IBV_QP_STATE));
  FAILS_WITH_ERRNO_VALUE(EINVAL, ibv_query_qp(NULL, &attr, IBV_QP_STATE, &init));
  FAILS_WITH_ERRNO_VALUE(EINVAL, ibv_destroy_qp(NULL));
}

static void cm_calls(void) {
  struct sockaddr address = {.sa_family = AF_INET};
  struct ibv_qp_init_attr init = {.qp_type = IBV_QPT_RC};
  struct rdma_cm_event* event;
  struct ibv_qp_attr attr = {.qp_state = IBV_QPS_INIT};
  struct rdma_cm_id* id;
  int mask;

  FAILS_WITH_MINUS_ONE(EINVAL, rdma_create_id(NULL, NULL, NULL, RDMA_PS_TCP));
  FAILS_WITH_MINUS_ONE(EINVAL, rdma_destroy_id(NULL));
  FAILS_WITH_MINUS_ONE(EINVAL, rdma_migrate_id(NULL, NULL));
  FAILS_WITH_MINUS_ONE(EINVAL, rdma_bind_addr(NULL, &address));
  FAILS_WITH_MINUS_ONE(EINVAL, rdma_resolve_addr(NULL, NULL, &address, 1));
  FAILS_WITH_MINUS_ONE(EINVAL, rdma_resolve_route(NULL, 1));
  FAILS_WITH_MINUS_ONE(EINVAL, rdma_listen(NULL, 1));
  FAILS_WITH_MINUS_ONE(EINVAL, rdma_get_request(NULL, &id));
  FAILS_WITH_MINUS_ONE(EINVAL, rdma_connect(NULL, NULL));
  FAILS_WITH_MINUS_ONE(EINVAL, rdma_accept(NULL, NULL));
  FAILS_WITH_MINUS_ONE(EINVAL, rdma_reject(NULL, NULL, 0));
  FAILS_WITH_MINUS_ONE(EINVAL, rdma_disconnect(NULL));
  FAILS_WITH_MINUS_ONE(EINVAL, rdma_create_qp(NULL, NULL, &init));
  FAILS_WITH_MINUS_ONE(EINVAL, rdma_init_qp_attr(NULL, &attr, &mask));
  FAILS_WITH_MINUS_ONE(EINVAL, rdma_get_cm_event(NULL, &event));
  FAILS_WITH_MINUS_ONE(EINVAL, rdma_ack_cm_event(NULL));
  FAILS_WITH_MINUS_ONE(EINVAL, rdma_set_option(NULL, RDMA_OPTION_ID, 0, &mask, 1));
  CHECK(rdma_get_src_port(NULL) == 0);
  CHECK(rdma_get_dst_port(NULL) == 0);
  rdma_destroy_qp(NULL);
  rdma_destroy_ep(NULL);
  rdma_destroy_event_channel(NULL);
  rdma_free_devices(NULL);
  rdma_freeaddrinfo(NULL);
}

static void extended_queue(struct ibv_context* context) {
  struct ibv_cq_init_attr_ex attr = {.cqe = 1, .wc_flags = IBV_WC_EX_WITH_CVLAN};
  struct ibv_values_ex values = {.comp_mask = IBV_VALUES_MASK_RAW_CLOCK};
  struct ibv_poll_cq_attr poll = {0};
  struct ibv_cq_ex* cq;

  FAILS_WITH_NULL(EOPNOTSUPP, ibv_create_cq_ex(context, &attr));
  attr.wc_flags = IBV_WC_STANDARD_FLAGS;
  cq = ibv_create_cq_ex(context, &attr);
  CHECK(cq != NULL);
  if (!cq) return;
  CHECK(ibv_start_poll(cq, &poll) == ENOENT);
  CHECK(ibv_resize_cq(ibv_cq_ex_to_cq(cq), 2) == 0 && cq->cqe >= 2);
  CHECK(ibv_destroy_cq(ibv_cq_ex_to_cq(cq)) == 0);
  CHECK(ibv_query_rt_values_ex(context, &values) == 0 && values.raw_clock.tv_sec > 0);
}

// A real device: inline functions through the slots, and the exported one with the small struct.
static void slots(void) {
  struct ibv_device** list = ibv_get_device_list(NULL);
  struct ibv_context* context = list && list[0] ? ibv_open_device(list[0]) : NULL;
  struct verbs_context* extended;
  unsigned char small[64];
  struct ibv_port_attr attr;
  struct ibv_pd* pd;

  CHECK(context != NULL);
  if (!context) return;
  extended = verbs_get_ctx(context);
  CHECK(extended && extended->sz == sizeof(*extended));
  memset(small, 0xa5, sizeof(small));
  CHECK(ibv_query_port(context, 1, (struct _compat_ibv_port_attr*)small) == 0);
  CHECK(small[47] != 0xa5 && small[48] == 0xa5 && small[63] == 0xa5);
  CHECK(___ibv_query_port(context, 1, &attr) == 0 && attr.state == IBV_PORT_ACTIVE);
  FAILS_WITH_ERRNO_VALUE(EINVAL, ___ibv_query_port(context, 2, &attr));
  pd = ibv_alloc_pd(context);
  CHECK(pd != NULL);
  if (pd) {
    FAILS_WITH_NULL(EINVAL, ibv_alloc_mw(pd, (enum ibv_mw_type)9));
    CHECK(ibv_dealloc_pd(pd) == 0);
  }
  extended_queue(context);
  CHECK(ibv_close_device(context) == 0);
  ibv_free_device_list(list);
}

int main(void) {
  device_calls();
  object_calls();
  cm_calls();
  slots();
  return conclude();
}
