// SPDX-License-Identifier: MIT
// What is exported and not there answers so: the entries of the first release, the providers'
// node, sockets over RDMA, verbs that no device of airdma has. And what needs no device works.
#include <dlfcn.h>
#include <infiniband/verbs.h>
#include <rdma/rdma_cma.h>
#include <rdma/rsocket.h>
#include <stdbool.h>
#include <stdlib.h>

#include "check.h"

static void* library;

static void* entry(const char* name, const char* version) {
  void* found = dlvsym(library, name, version);

  if (!found) printf("no %s@%s\n", name, version);
  CHECK(found != NULL);
  return found;
}

typedef int (*int_call)(void*, void*, void*, void*);
typedef void* (*pointer_call)(void*, void*, void*, void*);
typedef void (*void_call)(void*, void*, void*, void*);

// Garbage that a function must not follow.
#define WILD ((void*)8)

static void first_release(void) {
  static const char* const pointers[] = {
      "ibv_get_device_list", "ibv_get_device_name", "ibv_open_device", "ibv_alloc_pd", "ibv_reg_mr",
      "ibv_create_cq",       "ibv_create_srq",      "ibv_create_qp",   "ibv_create_ah"};
  static const char* const numbers[] = {"ibv_query_device", "ibv_query_port",   "ibv_dealloc_pd",
                                        "ibv_dereg_mr",     "ibv_resize_cq",    "ibv_destroy_cq",
                                        "ibv_modify_srq",   "ibv_query_srq",    "ibv_destroy_srq",
                                        "ibv_query_qp",     "ibv_modify_qp",    "ibv_destroy_qp",
                                        "ibv_destroy_ah",   "ibv_attach_mcast", "ibv_detach_mcast"};
  static const char* const minus_one[] = {"ibv_close_device", "ibv_query_gid", "ibv_query_pkey",
                                          "ibv_get_async_event", "ibv_get_cq_event"};
  static const char* const nothing[] = {"ibv_free_device_list", "ibv_ack_async_event",
                                        "ibv_ack_cq_events"};
  size_t i;

  for (i = 0; i < sizeof(pointers) / sizeof(*pointers); i++) {
    pointer_call call = (pointer_call)entry(pointers[i], "IBVERBS_1.0");
    if (call) FAILS_WITH_NULL(EOPNOTSUPP, call(WILD, WILD, WILD, WILD));
  }
  for (i = 0; i < sizeof(numbers) / sizeof(*numbers); i++) {
    int_call call = (int_call)entry(numbers[i], "IBVERBS_1.0");
    if (call) FAILS_WITH_ERRNO_VALUE(EOPNOTSUPP, call(WILD, WILD, WILD, WILD));
  }
  for (i = 0; i < sizeof(minus_one) / sizeof(*minus_one); i++) {
    int_call call = (int_call)entry(minus_one[i], "IBVERBS_1.0");
    if (call) FAILS_WITH_MINUS_ONE(EOPNOTSUPP, call(WILD, WILD, WILD, WILD));
  }
  for (i = 0; i < sizeof(nothing) / sizeof(*nothing); i++) {
    void_call call = (void_call)entry(nothing[i], "IBVERBS_1.0");
    if (call) call(WILD, WILD, WILD, WILD);
  }
  ((void_call)entry("ibv_register_driver", "IBVERBS_1.1"))(WILD, WILD, WILD, WILD);
}

static void providers_node(void) {
  static const char node[] = "IBVERBS_PRIVATE_34";
  bool* flag = entry("verbs_allow_disassociate_destroy", node);
  unsigned (*attrs)(unsigned, void*) =
      (unsigned (*)(unsigned, void*))entry("__ioctl_final_num_attrs", node);

  ((void_call)entry("verbs_register_driver_34", node))(WILD, WILD, WILD, WILD);
  ((void_call)entry("verbs_set_ops", node))(WILD, WILD, WILD, WILD);
  ((void_call)entry("verbs_uninit_context", node))(WILD, WILD, WILD, WILD);
  ((void_call)entry("__verbs_log", node))(WILD, WILD, WILD, WILD);
  FAILS_WITH_NULL(EOPNOTSUPP,
                  ((pointer_call)entry("verbs_open_device", node))(WILD, WILD, WILD, WILD));
  FAILS_WITH_ERRNO_VALUE(EOPNOTSUPP,
                         ((int_call)entry("ibv_cmd_alloc_pd", node))(WILD, WILD, WILD, WILD));
  FAILS_WITH_ERRNO_VALUE(EOPNOTSUPP,
                         ((int_call)entry("execute_ioctl", node))(WILD, WILD, WILD, WILD));
  FAILS_WITH_MINUS_ONE(EINVAL,
                       ((int_call)entry("ibv_query_gid_type", node))(WILD, WILD, WILD, WILD));
  CHECK(flag && !*flag);
  CHECK(attrs && attrs(3, NULL) == 3);
}

static void sockets(void) {
  char byte = 0;

  FAILS_WITH_MINUS_ONE(ENOSYS, rsocket(AF_INET, SOCK_STREAM, 0));
  FAILS_WITH_MINUS_ONE(ENOSYS, rsend(3, &byte, 1, 0));
  FAILS_WITH_MINUS_ONE(ENOSYS, rrecv(3, &byte, 1, 0));
  FAILS_WITH_MINUS_ONE(ENOSYS, rpoll(NULL, 0, 0));
  FAILS_WITH_MINUS_ONE(ENOSYS, rselect(0, NULL, NULL, NULL, NULL));
  FAILS_WITH_MINUS_ONE(ENOSYS, riomap(3, &byte, 1, 0, 0, -1));
  CHECK(riowrite(3, &byte, 1, 0, 0) == (size_t)-1);
  FAILS_WITH_MINUS_ONE(ENOSYS, rfcntl(3, 1));
  FAILS_WITH_MINUS_ONE(ENOSYS, rclose(3));
}

static void without_device(void) {
  char buffer[64];
  int (*read_file)(const char*, const char*, char*, size_t) =
      (int (*)(const char*, const char*, char*, size_t))entry("ibv_read_sysfs_file", "IBVERBS_1.0");

  CHECK(strcmp(ibv_wc_status_str(IBV_WC_WR_FLUSH_ERR), "Work Request Flushed Error") == 0);
  CHECK(strcmp(ibv_wc_status_str((enum ibv_wc_status) - 1), "unknown") == 0);
  CHECK(strcmp(ibv_port_state_str(IBV_PORT_ACTIVE), "active") == 0);
  CHECK(strcmp(rdma_event_str(RDMA_CM_EVENT_ESTABLISHED), "RDMA_CM_EVENT_ESTABLISHED") == 0);
  CHECK(ibv_rate_to_mbps(IBV_RATE_100_GBPS) == 103125);
  CHECK(mult_to_ibv_rate(4) == IBV_RATE_10_GBPS);
  CHECK(ibv_fork_init() == 0);
  CHECK(ibv_is_fork_initialized() == IBV_FORK_UNNEEDED);
  CHECK(read_file("/proc/sys/kernel", "ostype", buffer, sizeof(buffer)) == 5 &&
        strcmp(buffer, "Linux") == 0);
  FAILS_WITH_MINUS_ONE(ENOENT, read_file("/proc/sys", "none/such", buffer, 1));
}

int main(void) {
  library = dlopen("libibverbs.so.1", RTLD_NOW);
  CHECK(library != NULL);
  if (!library) return 1;
  first_release();
  providers_node();
  sockets();
  without_device();
  return conclude();
}
