// SPDX-License-Identifier: MIT
// Linked against libibverbs and librdmacm (and, if PROVIDERS, libmlx5 and libefa) by the names
// every program uses; run with airdma's folder in front. Both names must be one object, the
// right one, however a program comes to it: two copies would not know each other's objects.
// Argument: the folder.
#include <dlfcn.h>
#include <infiniband/verbs.h>
#include <limits.h>
#include <rdma/rdma_cma.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#ifdef PROVIDERS
#include <infiniband/efadv.h>
#include <infiniband/mlx5dv.h>
#endif

static int failures;

static void check(int good, const char* what) {
  if (!good) {
    printf("failed: %s\n", what);
    failures++;
  }
}

// Number of files mapped as code that are named like ours; `folder` must hold all of them.
static int mapped_libraries(const char* folder) {
  char line[PATH_MAX + 128];
  int count = 0;
  FILE* maps = fopen("/proc/self/maps", "re");

  if (!maps) return -1;
  while (fgets(line, sizeof(line), maps)) {
    if (!strstr(line, "libibverbs.so") && !strstr(line, "librdmacm.so")) continue;
    if (!strstr(line, folder)) count = 1000;
    if (strstr(line, " r-xp ")) count++;
  }
  fclose(maps);
  return count;
}

static void* base_of(void* function) {
  Dl_info info;

  return dladdr(function, &info) ? info.dli_fbase : NULL;
}

int main(int argc, char** argv) {
  char folder[PATH_MAX];
  struct ibv_device** list;
  void *verbs, *cm;
  int count = -1;

  if (argc != 2 || !realpath(argv[1], folder)) return 2;
  check(base_of((void*)ibv_open_device) == base_of((void*)rdma_create_id),
        "functions of both libraries are in one object");
  check(mapped_libraries(folder) == 1, "one object of the folder is mapped, and no other");

  verbs = dlopen("libibverbs.so.1", RTLD_NOW | RTLD_LOCAL);
  cm = dlopen("librdmacm.so.1", RTLD_NOW | RTLD_LOCAL);
  check(verbs && verbs == cm, "dlopen by either name gives the same object");
  check(mapped_libraries(folder) == 1, "dlopen maps no second one");
  if (verbs) {
    check(dlsym(verbs, "rdma_create_id") != NULL, "dlsym finds the other half");
    check(dlsym(verbs, "ibv_alloc_pd") == dlvsym(verbs, "ibv_alloc_pd", "IBVERBS_1.1"),
          "a name without a version is today's entry");
    check(dlvsym(verbs, "ibv_alloc_pd", "IBVERBS_1.0") != dlsym(verbs, "ibv_alloc_pd"),
          "the first release's entry is another");
  }

  list = ibv_get_device_list(&count);
  check(list && count >= 0, "devices are listed");
#ifdef PROVIDERS
  check(base_of((void*)mlx5dv_is_supported) && base_of((void*)efadv_query_device),
        "providers are loaded");
  if (list)
    for (int i = 0; list[i]; i++)
      check(!mlx5dv_is_supported(list[i]), "no device of ours is a provider's");
#endif
  if (list) ibv_free_device_list(list);
  return failures ? 1 : 0;
}
