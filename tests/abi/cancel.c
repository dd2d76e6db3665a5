// SPDX-License-Identifier: MIT
// Programs cancel threads that sleep in ibv_get_cq_event and its like. The C library unwinds such
// a thread with its own unwinder, which must find no frame of the library in its way.
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <rdma/rdma_cma.h>
#include <stdatomic.h>
#include <stdio.h>
#include <sys/syscall.h>
#include <unistd.h>

static struct ibv_context* context;
static struct ibv_comp_channel* completions;
static struct rdma_event_channel* events;
static struct rdma_cm_id* listener;
static atomic_int thread_id;

static void* sleep_in_cq_event(void* unused) {
  struct ibv_cq* cq;
  void* cq_context;
  atomic_store(&thread_id, (int)gettid());
  ibv_get_cq_event(completions, &cq, &cq_context);
  return unused;
}

static void* sleep_in_async_event(void* unused) {
  struct ibv_async_event event;
  atomic_store(&thread_id, (int)gettid());
  ibv_get_async_event(context, &event);
  return unused;
}

static void* sleep_in_cm_event(void* unused) {
  struct rdma_cm_event* event;
  atomic_store(&thread_id, (int)gettid());
  rdma_get_cm_event(events, &event);
  return unused;
}

static void* sleep_in_request(void* unused) {
  struct rdma_cm_id* id;
  atomic_store(&thread_id, (int)gettid());
  rdma_get_request(listener, &id);
  return unused;
}

// The kernel says which system call a thread sleeps in.
static int sleeps_in(int id, int call) {
  char path[64];
  char text[16] = "";
  snprintf(path, sizeof path, "/proc/self/task/%d/syscall", id);
  int fd = open(path, O_RDONLY);
  if (fd < 0) return 0;
  long got = read(fd, text, sizeof text - 1);
  close(fd);
  int number = -1;
  return got > 0 && sscanf(text, "%d", &number) == 1 && number == call;
}

static int cancels(const char* name, void* (*sleeper)(void*)) {
  pthread_t thread;
  void* outcome = NULL;
  atomic_store(&thread_id, 0);
  if (pthread_create(&thread, NULL, sleeper, NULL) != 0) return 0;
  while (atomic_load(&thread_id) == 0 || !sleeps_in(atomic_load(&thread_id), SYS_read)) {
  }
  pthread_cancel(thread);
  pthread_join(thread, &outcome);
  printf("%s: %s\n", name, outcome == PTHREAD_CANCELED ? "cancelled" : "NOT cancelled");
  return outcome == PTHREAD_CANCELED;
}

#ifdef SYS_pause
#define PAUSE SYS_pause
#else
#define PAUSE SYS_ppoll
#endif

// rping destroys its event channel under its event thread and exits. Closing a kernel's channel
// leaves the thread asleep; an error instead would make the thread end the program with a failure.
static int leaves_asleep(void) {
  pthread_t thread;
  void* outcome = NULL;
  events = rdma_create_event_channel();
  if (events == NULL) return 0;
  atomic_store(&thread_id, 0);
  if (pthread_create(&thread, NULL, sleep_in_cm_event, NULL) != 0) return 0;
  while (atomic_load(&thread_id) == 0 || !sleeps_in(atomic_load(&thread_id), SYS_read)) {
  }
  rdma_destroy_event_channel(events);
  while (!sleeps_in(atomic_load(&thread_id), PAUSE)) {
  }
  pthread_cancel(thread);
  pthread_join(thread, &outcome);
  return outcome == PTHREAD_CANCELED;
}

int main(void) {
  struct ibv_device** devices = ibv_get_device_list(NULL);
  struct rdma_addrinfo hints = {.ai_flags = RAI_PASSIVE, .ai_port_space = RDMA_PS_TCP};
  struct rdma_addrinfo* address = NULL;
  if (devices == NULL || devices[0] == NULL) return 1;
  context = ibv_open_device(devices[0]);
  completions = ibv_create_comp_channel(context);
  events = rdma_create_event_channel();
  if (completions == NULL || events == NULL) return 1;
  if (rdma_getaddrinfo(NULL, "0", &hints, &address) != 0) return 1;
  if (rdma_create_ep(&listener, address, NULL, NULL) != 0 || rdma_listen(listener, 1) != 0)
    return 1;
  const int right = cancels("ibv_get_cq_event", sleep_in_cq_event) &
                    cancels("ibv_get_async_event", sleep_in_async_event) &
                    cancels("rdma_get_cm_event", sleep_in_cm_event) &
                    cancels("rdma_get_request", sleep_in_request);
  // What a cancelled thread slept on still works.
  fcntl(completions->fd, F_SETFL, O_NONBLOCK);
  struct ibv_cq* cq;
  void* cq_context;
  if (ibv_get_cq_event(completions, &cq, &cq_context) != -1 || errno != EAGAIN) return 1;
  rdma_destroy_ep(listener);
  rdma_freeaddrinfo(address);
  rdma_destroy_event_channel(events);
  ibv_destroy_comp_channel(completions);
  ibv_close_device(context);
  ibv_free_device_list(devices);
  return right && leaves_asleep() ? 0 : 1;
}
