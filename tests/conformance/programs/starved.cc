// SPDX-License-Identifier: MIT
// starved memory [FIRST [LAST]] | starved descriptors: creates, connects, moves data and destroys
// while memory runs out at the first, second, ... allocation, until a whole run meets no failure.
// With scarce.so preloaded. Every failure must be an error of the call or an event, nothing may
// crash, hang or leak.
//
// Or while the process may have 4, 5, ... descriptors, until they are enough.
//
// Both ends are this program's: a listener and a client on one thread, one event channel each, so
// that whatever fails, the other end is seen to end too.
#include <dlfcn.h>
#include <infiniband/verbs.h>
#include <malloc.h>
#include <netinet/in.h>
#include <poll.h>
#include <rdma/rdma_cma.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <initializer_list>

#include "small_rdma.h"

namespace {

int patience_ms = 3000;
constexpr std::size_t kBytes = 4096;

void (*arm)(long, int) = nullptr;
int (*disarm)() = nullptr;

struct Side {
  rdma_event_channel* events = nullptr;
  rdma_cm_id* id = nullptr;
  ibv_pd* pd = nullptr;
  ibv_comp_channel* channel = nullptr;
  ibv_cq* cq = nullptr;
  ibv_mr* mr = nullptr;
  char* memory = nullptr;
};

const char* failing_call = "";
long current = 0;  // the allocation that fails now
int wrongs = 0;
bool few_descriptors = false;

/// Says what is wrong and goes on, to find what else is.
bool wrong(const char* what) {
  std::printf("WRONG allocation %ld, after %s: %s\n", current, failing_call, what);
  ++wrongs;
  return false;
}

/// A call that may fail, but only for want of what runs out.
bool ok(bool good, const char* call) {
  failing_call = call;
  if (good) return true;
  if (errno == (few_descriptors ? EMFILE : ENOMEM)) return false;
  if (errno == EAGAIN) return false;  // no memory for a thread
  return wrong(std::strerror(errno));
}

bool make_objects(Side& side) {
  side.memory = static_cast<char*>(std::aligned_alloc(64, kBytes));
  if (side.memory == nullptr) return false;
  ibv_context* verbs = side.id->verbs;
  if (!ok((side.pd = ibv_alloc_pd(verbs)) != nullptr, "ibv_alloc_pd")) return false;
  if (!ok((side.channel = ibv_create_comp_channel(verbs)) != nullptr, "ibv_create_comp_channel")) {
    return false;
  }
  side.cq = ibv_create_cq(verbs, 16, nullptr, side.channel, 0);
  if (!ok(side.cq != nullptr, "ibv_create_cq")) return false;
  side.mr = ibv_reg_mr(side.pd, side.memory, kBytes,
                       IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ);
  if (!ok(side.mr != nullptr, "ibv_reg_mr")) return false;
  ibv_qp_init_attr attr = small::rc_attributes(side.cq, 4);
  return ok(rdma_create_qp(side.id, side.pd, &attr) == 0, "rdma_create_qp");
}

void destroy(Side& side) {
  if (side.id != nullptr && side.id->qp != nullptr) rdma_destroy_qp(side.id);
  if (side.mr != nullptr) ibv_dereg_mr(side.mr);
  if (side.cq != nullptr) ibv_destroy_cq(side.cq);
  if (side.channel != nullptr) ibv_destroy_comp_channel(side.channel);
  if (side.pd != nullptr) ibv_dealloc_pd(side.pd);
  if (side.id != nullptr) rdma_destroy_id(side.id);
  if (side.events != nullptr) rdma_destroy_event_channel(side.events);
  std::free(side.memory);
  side = {};
}

bool begin(Side& side) {
  if (!ok((side.events = rdma_create_event_channel()) != nullptr, "rdma_create_event_channel")) {
    return false;
  }
  return ok(rdma_create_id(side.events, &side.id, nullptr, RDMA_PS_TCP) == 0, "rdma_create_id");
}

/// The next event's type; negative when none came: something was lost with the memory.
int next_event(Side& side, rdma_cm_id** id) {
  pollfd fd{side.events->fd, POLLIN, 0};
  if (::poll(&fd, 1, patience_ms) != 1) {
    wrong("no event came");
    return -1;
  }
  rdma_cm_event* event = nullptr;
  if (!ok(rdma_get_cm_event(side.events, &event) == 0, "rdma_get_cm_event")) return -1;
  const int type = event->event;
  if (id != nullptr) *id = event->id;
  rdma_ack_cm_event(event);
  return type;
}

bool resolve(Side& client, const sockaddr_in& address) {
  sockaddr_in target = address;
  if (!ok(rdma_resolve_addr(client.id, nullptr, reinterpret_cast<sockaddr*>(&target), 1000) == 0,
          "rdma_resolve_addr") ||
      next_event(client, nullptr) != RDMA_CM_EVENT_ADDR_RESOLVED) {
    return false;
  }
  return ok(rdma_resolve_route(client.id, 1000) == 0, "rdma_resolve_route") &&
         next_event(client, nullptr) == RDMA_CM_EVENT_ROUTE_RESOLVED;
}

bool listen(Side& listener, sockaddr_in& address) {
  address = small::loopback(0);
  if (!ok(rdma_bind_addr(listener.id, reinterpret_cast<sockaddr*>(&address)) == 0,
          "rdma_bind_addr") ||
      !ok(rdma_listen(listener.id, 4) == 0, "rdma_listen")) {
    return false;
  }
  address.sin_port = rdma_get_src_port(listener.id);
  return true;
}

/// Waits at both ends at once for what comes first. 0: the listener's, 1: the client's; -1: none.
int who_hears(Side& listener, Side& client) {
  pollfd fds[2] = {{listener.events->fd, POLLIN, 0}, {client.events->fd, POLLIN, 0}};
  if (::poll(fds, 2, patience_ms) < 1) {
    // A listener without descriptors leaves connections in the kernel's queue until it has some.
    if (!few_descriptors) wrong("nobody hears of the connection");
    return -1;
  }
  return fds[0].revents != 0 ? 0 : 1;
}

bool connect(Side& listener, Side& client, Side& server) {
  rdma_conn_param parameters{};
  parameters.responder_resources = parameters.initiator_depth = 1;
  if (!ok(rdma_connect(client.id, &parameters) == 0, "rdma_connect")) return false;
  bool established = false;
  bool accepted = false;
  while (!established || !accepted) {
    const int who = who_hears(listener, client);
    if (who < 0) return false;
    if (who == 1) {
      if (next_event(client, nullptr) != RDMA_CM_EVENT_ESTABLISHED) return false;
      established = true;
      continue;
    }
    rdma_cm_id* id = nullptr;
    const int type = next_event(listener, &id);
    if (type == RDMA_CM_EVENT_CONNECT_REQUEST) {
      server.id = id;
      if (!make_objects(server)) return false;
      if (!ok(rdma_accept(server.id, &parameters) == 0, "rdma_accept")) return false;
    } else if (type == RDMA_CM_EVENT_ESTABLISHED) {
      accepted = true;
    } else {
      return false;
    }
  }
  return true;
}

bool completes(Side& side) {
  ibv_wc wc{};
  for (;;) {
    const int count = ibv_poll_cq(side.cq, 1, &wc);
    if (count == 1) return wc.status == IBV_WC_SUCCESS;
    if (count < 0) return false;
    // A notification may be an earlier completion's, so more than one wait may be needed.
    pollfd fd{side.channel->fd, POLLIN, 0};
    if (::poll(&fd, 1, patience_ms) != 1) return wrong("no completion came");
    ibv_cq* cq = nullptr;
    void* context = nullptr;
    if (ibv_get_cq_event(side.channel, &cq, &context) == 0) ibv_ack_cq_events(cq, 1);
    if (ibv_req_notify_cq(side.cq, 0) != 0) return false;
  }
}

bool move_data(Side& from, Side& to) {
  if (!ok(small::post_receive(to.id->qp, to.mr, to.memory, kBytes, 1) == 0, "ibv_post_recv")) {
    return false;
  }
  if (ibv_req_notify_cq(to.cq, 0) != 0 || ibv_req_notify_cq(from.cq, 0) != 0) return false;
  std::memset(from.memory, 'x', kBytes);
  std::memset(to.memory, 0, kBytes);
  if (small::post_send(from.id->qp, from.mr, from.memory, kBytes, 2) != 0) return false;
  if (!completes(from) || !completes(to)) return false;
  if (std::memcmp(from.memory, to.memory, kBytes) == 0) return true;
  return wrong("a receive that succeeded holds other bytes");
}

struct Outcome {
  bool good;
  bool starved;
};

Outcome one_run() {
  Side listener, client, server;
  sockaddr_in address{};
  const bool good = begin(listener) && listen(listener, address) && begin(client) &&
                    resolve(client, address) && make_objects(client) &&
                    connect(listener, client, server) && move_data(client, server) &&
                    move_data(server, client);
  const bool starved = disarm() != 0;
  if (!good && !starved && !few_descriptors) wrong("failed although memory was there");
  destroy(client);
  destroy(server);
  destroy(listener);
  return {good, starved};
}

int open_descriptors() {
  int open = 0;
  for (int fd = 0; fd < 1024; ++fd) open += ::dup2(fd, fd) == fd;
  return open;
}

/// The nth allocation of a fresh process fails. A child of fork() is one, as far as the library
/// goes: its pools are empty, its threads not started. False when none failed.
bool fresh_run(long nth) {
  const pid_t child = ::fork();
  if (child == 0) {
    current = nth;
    wrongs = 0;
    arm(nth, 0);
    const bool starved = one_run().starved;
    ::_exit(wrongs != 0 ? 1 : starved ? 0 : 2);
  }
  int status = 0;
  ::waitpid(child, &status, 0);
  if (!WIFEXITED(status) || WEXITSTATUS(status) == 1) {
    current = nth;
    wrong("a fresh process ended badly");
  }
  return !WIFEXITED(status) || WEXITSTATUS(status) != 2;
}

void steady_run(int rounds) {
  const int before = open_descriptors();
  const auto used = ::mallinfo2().uordblks;
  for (int i = 0; i < rounds; ++i) one_run();
  int after = open_descriptors();
  // A stream that its program has left goes on until its last byte is out.
  for (int looks = 0; looks < 1000 && after > before; ++looks) {
    ::usleep(1000);
    after = open_descriptors();
  }
  const long more = static_cast<long>(::mallinfo2().uordblks) - static_cast<long>(used);
  std::printf("ended: %d descriptors, %d before, %ld bytes more\n", after, before, more);
  if (after > before) wrong("descriptors are left");
  if (more > 100L * rounds) wrong("memory is left");
}

void run_out_of_memory(long first, long last) {
  long fresh = 0;
  for (long nth = first; nth <= last && fresh_run(nth); ++nth) fresh = nth;
  std::printf("in a fresh process: %ld allocations, each failed once\n", fresh);
  for (const int all : {0, 1}) {
    long nth = first;
    for (; nth <= last; ++nth) {
      current = nth;
      failing_call = "";
      arm(nth, all);
      if (!one_run().starved) break;
    }
    std::printf("%s: %ld allocations, each failed once\n", all ? "and all after it" : "one",
                nth - 1);
  }
  arm(0, 0);
}

void run_out_of_descriptors() {
  few_descriptors = true;
  patience_ms = 300;
  rlimit former{};
  ::getrlimit(RLIMIT_NOFILE, &former);
  bool good = false;
  for (current = 4; current < 64 && !good; ++current) {
    rlimit few = former;
    few.rlim_cur = static_cast<rlim_t>(current);
    ::setrlimit(RLIMIT_NOFILE, &few);
    good = one_run().good;
  }
  std::printf("%ld descriptors are enough\n", current - 1);
  few_descriptors = false;
  patience_ms = 3000;
  ::setrlimit(RLIMIT_NOFILE, &former);
  if (!good) wrong("64 descriptors are not enough");
}

}  // namespace

int main(int argc, char** argv) {
  std::setvbuf(stdout, nullptr, _IOLBF, 256);
  arm = reinterpret_cast<void (*)(long, int)>(::dlsym(RTLD_DEFAULT, "scarce_arm"));
  disarm = reinterpret_cast<int (*)()>(::dlsym(RTLD_DEFAULT, "scarce_disarm"));
  if (arm == nullptr || disarm == nullptr || argc < 2) {
    std::printf("usage: LD_PRELOAD=scarce.so starved memory [FIRST [LAST]] | descriptors\n");
    return 2;
  }
  if (std::strcmp(argv[1], "memory") == 0) {
    run_out_of_memory(argc > 2 ? std::atol(argv[2]) : 1, argc > 3 ? std::atol(argv[3]) : 100000);
  } else {
    run_out_of_descriptors();
  }
  for (int i = 0; i < 100; ++i) one_run();  // slots of pools rest before they are used again
  steady_run(200);
  return wrongs == 0 ? 0 : 1;
}
