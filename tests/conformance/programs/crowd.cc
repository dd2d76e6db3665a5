// SPDX-License-Identifier: MIT
// crowd serve PORT | crowd connect PORT COUNT [deaf]
// Many connections under load in both directions: each side keeps four SENDs of a numbered,
// patterned message in flight on each, and compares every message that arrives. A deaf client never
// posts a receive. From standard input: "status" prints one line, "hush" ends the sending, "stop"
// ends it and then the connections; its end ends the program. The exit status is 1 when a message
// was wrong.
//
// A connection counts as ended when DISCONNECTED was heard and every request that was posted has
// completed, flushed or not.
#include <fcntl.h>
#include <infiniband/verbs.h>
#include <netinet/in.h>
#include <poll.h>
#include <rdma/rdma_cma.h>
#include <unistd.h>

#include <cerrno>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string_view>
#include <vector>

#include "small_rdma.h"

namespace {

constexpr unsigned kMost = 256;  // connections
constexpr unsigned kReceives = 8;
constexpr unsigned kSends = 4;
constexpr std::size_t kSlotBytes = 2048;
constexpr unsigned kSlots = kReceives + kSends;

struct Connection {
  rdma_cm_id* id = nullptr;
  std::uint64_t next_sent = 0;
  std::uint64_t next_received = 0;
  unsigned posted = 0;  // requests that have not completed
  unsigned sending = 0;
  bool established = false;
  bool disconnected = false;
};

struct Crowd {
  rdma_event_channel* events = nullptr;
  ibv_context* verbs = nullptr;
  ibv_pd* pd = nullptr;
  ibv_comp_channel* channel = nullptr;
  ibv_cq* cq = nullptr;
  ibv_mr* mr = nullptr;
  std::vector<std::uint8_t> memory;
  Connection connections[kMost];
  bool deaf = false;
  bool hushed = false;
  bool stopping = false;
  bool more = false;      // completions than were taken
  int kept_free[4] = {};  // for a completion channel, where descriptors are few
  std::uint64_t messages = 0, flushed = 0;
  unsigned established = 0, disconnected = 0, ended = 0, failed = 0, wrong = 0;
};

void must(bool good, const char* what) {
  if (good) return;
  std::perror(what);
  std::exit(3);
}

std::size_t length_of(std::uint64_t number) { return 16 + number * 97 % 2000; }

void write_message(std::uint8_t* at, std::uint64_t number) {
  std::memcpy(at, &number, sizeof number);
  const std::size_t bytes = length_of(number);
  for (std::size_t i = sizeof number; i < bytes; ++i) {
    at[i] = static_cast<std::uint8_t>(number * 31 + i);
  }
}

bool is_message(const std::uint8_t* at, std::size_t bytes, std::uint64_t number) {
  std::uint8_t expected[kSlotBytes];
  if (bytes != length_of(number)) return false;
  write_message(expected, number);
  return std::memcmp(at, expected, bytes) == 0;
}

std::uint64_t number_of(const Crowd& crowd, const Connection& c) {
  return static_cast<std::uint64_t>(&c - crowd.connections);
}

std::uint8_t* slot_memory(Crowd& crowd, std::uint64_t wr_id) {
  return crowd.memory.data() + wr_id * kSlotBytes;
}

// wr_id: connection times slots, plus the slot; receives come first.
void post_receive(Crowd& crowd, Connection& c, std::uint64_t wr_id) {
  if (small::post_receive(c.id->qp, crowd.mr, slot_memory(crowd, wr_id), kSlotBytes, wr_id) == 0) {
    ++c.posted;
  }
}

void post_message(Crowd& crowd, Connection& c, std::uint64_t wr_id) {
  if (crowd.hushed || crowd.stopping || c.disconnected) return;
  write_message(slot_memory(crowd, wr_id), c.next_sent);
  if (small::post_send(c.id->qp, crowd.mr, slot_memory(crowd, wr_id), length_of(c.next_sent),
                       wr_id) != 0) {
    return;
  }
  ++c.next_sent;
  ++c.posted;
  ++c.sending;
}

void prepare(Crowd& crowd, ibv_context* verbs) {
  if (crowd.pd != nullptr) return;
  crowd.verbs = verbs;
  crowd.memory.resize(kMost * kSlots * kSlotBytes);
  for (const int fd : crowd.kept_free) ::close(fd);
  must((crowd.pd = ibv_alloc_pd(verbs)) != nullptr, "ibv_alloc_pd");
  must((crowd.channel = ibv_create_comp_channel(verbs)) != nullptr, "ibv_create_comp_channel");
  crowd.cq = ibv_create_cq(verbs, kMost * kSlots, nullptr, crowd.channel, 0);
  must(crowd.cq != nullptr, "ibv_create_cq");
  must(::fcntl(crowd.channel->fd, F_SETFL, O_NONBLOCK) == 0, "fcntl");
  must(ibv_req_notify_cq(crowd.cq, 0) == 0, "ibv_req_notify_cq");
  crowd.mr = ibv_reg_mr(crowd.pd, crowd.memory.data(), crowd.memory.size(), IBV_ACCESS_LOCAL_WRITE);
  must(crowd.mr != nullptr, "ibv_reg_mr");
}

bool make_queue_pair(Crowd& crowd, Connection& c) {
  prepare(crowd, c.id->verbs);
  ibv_qp_init_attr attr = small::rc_attributes(crowd.cq, kReceives);
  if (rdma_create_qp(c.id, crowd.pd, &attr) != 0) return false;
  const std::uint64_t first = number_of(crowd, c) * kSlots;
  for (unsigned i = 0; i < kReceives && !crowd.deaf; ++i) post_receive(crowd, c, first + i);
  return true;
}

void release(Connection& c) {
  if (c.id->qp != nullptr) rdma_destroy_qp(c.id);
  rdma_destroy_id(c.id);
  c = {};
}

void end_if_over(Crowd& crowd, Connection& c) {
  if (c.id == nullptr || !c.disconnected || c.posted != 0) return;
  release(c);
  ++crowd.ended;
}

void on_request(Crowd& crowd, rdma_cm_id* id) {
  rdma_conn_param parameters{};
  for (Connection& c : crowd.connections) {
    if (c.id != nullptr) continue;
    c.id = id;
    id->context = &c;
    if (make_queue_pair(crowd, c) && rdma_accept(id, &parameters) == 0) return;
    ++crowd.failed;
    release(c);
    return;
  }
  ++crowd.failed;
  rdma_destroy_id(id);
}

void on_route(Crowd& crowd, Connection& c) {
  rdma_conn_param parameters{};
  if (make_queue_pair(crowd, c) && rdma_connect(c.id, &parameters) == 0) return;
  ++crowd.failed;
}

void on_established(Crowd& crowd, Connection& c) {
  ++crowd.established;
  c.established = true;
  const std::uint64_t first = number_of(crowd, c) * kSlots + kReceives;
  for (unsigned i = 0; i < kSends; ++i) post_message(crowd, c, first + i);
}

void on_cm_event(Crowd& crowd) {
  rdma_cm_event* event = nullptr;
  if (rdma_get_cm_event(crowd.events, &event) != 0) return;
  rdma_cm_id* id = event->id;
  const rdma_cm_event_type type = event->event;
  rdma_ack_cm_event(event);
  if (type == RDMA_CM_EVENT_CONNECT_REQUEST) return on_request(crowd, id);
  auto& c = *static_cast<Connection*>(id->context);
  if (type == RDMA_CM_EVENT_ADDR_RESOLVED) {
    if (rdma_resolve_route(id, 1000) != 0) ++crowd.failed;
  } else if (type == RDMA_CM_EVENT_ROUTE_RESOLVED) {
    on_route(crowd, c);
  } else if (type == RDMA_CM_EVENT_ESTABLISHED) {
    on_established(crowd, c);
  } else if (type == RDMA_CM_EVENT_DISCONNECTED) {
    ++crowd.disconnected;
    c.disconnected = true;
    end_if_over(crowd, c);
  } else {
    ++crowd.failed;
  }
}

void on_completion(Crowd& crowd, const ibv_wc& wc) {
  Connection& c = crowd.connections[wc.wr_id / kSlots];
  const bool receive = wc.wr_id % kSlots < kReceives;
  --c.posted;
  if (!receive) --c.sending;
  if (wc.status != IBV_WC_SUCCESS) {
    ++crowd.flushed;
    return end_if_over(crowd, c);
  }
  if (!receive) return post_message(crowd, c, wc.wr_id);
  if (!is_message(slot_memory(crowd, wc.wr_id), wc.byte_len, c.next_received)) ++crowd.wrong;
  ++c.next_received;
  ++crowd.messages;
  post_receive(crowd, c, wc.wr_id);
}

// Not until the queue is empty: under load it never is, and other events wait.
void on_completions(Crowd& crowd) {
  ibv_cq* cq = nullptr;
  void* context = nullptr;
  if (ibv_get_cq_event(crowd.channel, &cq, &context) == 0) {
    ibv_ack_cq_events(cq, 1);
    must(ibv_req_notify_cq(cq, 0) == 0, "ibv_req_notify_cq");
  }
  ibv_wc wc[256];
  const int count = ibv_poll_cq(crowd.cq, 256, wc);
  for (int i = 0; i < count; ++i) on_completion(crowd, wc[i]);
  crowd.more = count == 256;
}

void disconnect_quiet(Crowd& crowd) {
  for (Connection& c : crowd.connections) {
    if (c.established && !c.disconnected && c.sending == 0) {
      c.established = false;
      rdma_disconnect(c.id);
    }
  }
}

void status(const Crowd& crowd) {
  std::printf(
      "status established=%u disconnected=%u ended=%u failed=%u messages=%lu flushed=%lu "
      "wrong=%u\n",
      crowd.established, crowd.disconnected, crowd.ended, crowd.failed, crowd.messages,
      crowd.flushed, crowd.wrong);
}

/// False at the end of standard input.
bool on_command(Crowd& crowd) {
  char text[256];
  const ssize_t got = ::read(0, text, sizeof text);
  if (got <= 0) return false;
  std::string_view lines(text, static_cast<std::size_t>(got));
  for (std::size_t end; (end = lines.find('\n')) != lines.npos; lines.remove_prefix(end + 1)) {
    if (lines.substr(0, end) == "hush") crowd.hushed = true;
    if (lines.substr(0, end) == "stop") crowd.stopping = true;
    if (lines.substr(0, end) == "status") status(crowd);
  }
  return true;
}

void run(Crowd& crowd) {
  must(::fcntl(crowd.events->fd, F_SETFL, O_NONBLOCK) == 0, "fcntl");
  for (;;) {
    pollfd fds[3] = {{0, POLLIN, 0},
                     {crowd.events->fd, POLLIN, 0},
                     {crowd.channel != nullptr ? crowd.channel->fd : -1, POLLIN, 0}};
    must(::poll(fds, 3, crowd.more ? 0 : -1) >= 0, "poll");
    if (fds[0].revents != 0 && !on_command(crowd)) return;
    if (fds[1].revents != 0) on_cm_event(crowd);
    if (fds[2].revents != 0 || crowd.more) on_completions(crowd);
    if (crowd.stopping) disconnect_quiet(crowd);
  }
}

void serve(Crowd& crowd, std::uint16_t port) {
  rdma_cm_id* listener = nullptr;
  sockaddr_in address = small::loopback(port);
  must(rdma_create_id(crowd.events, &listener, nullptr, RDMA_PS_TCP) == 0, "rdma_create_id");
  must(rdma_bind_addr(listener, reinterpret_cast<sockaddr*>(&address)) == 0, "rdma_bind_addr");
  must(rdma_listen(listener, kMost) == 0, "rdma_listen");
  run(crowd);
  rdma_destroy_id(listener);
}

void connect(Crowd& crowd, std::uint16_t port, unsigned count) {
  sockaddr_in address = small::loopback(port);
  for (unsigned i = 0; i < count && i < kMost; ++i) {
    Connection& c = crowd.connections[i];
    must(rdma_create_id(crowd.events, &c.id, &c, RDMA_PS_TCP) == 0, "rdma_create_id");
    if (rdma_resolve_addr(c.id, nullptr, reinterpret_cast<sockaddr*>(&address), 1000) == 0)
      continue;
    must(errno == EMFILE, "rdma_resolve_addr");
    ++crowd.failed;
    release(c);
  }
  run(crowd);
}

void clean_up(Crowd& crowd) {
  for (Connection& c : crowd.connections) {
    if (c.id != nullptr) release(c);
  }
  if (crowd.mr != nullptr) must(ibv_dereg_mr(crowd.mr) == 0, "ibv_dereg_mr");
  if (crowd.cq != nullptr) must(ibv_destroy_cq(crowd.cq) == 0, "ibv_destroy_cq");
  if (crowd.channel != nullptr) {
    must(ibv_destroy_comp_channel(crowd.channel) == 0, "ibv_destroy_comp_channel");
  }
  if (crowd.pd != nullptr) must(ibv_dealloc_pd(crowd.pd) == 0, "ibv_dealloc_pd");
  rdma_destroy_event_channel(crowd.events);
}

}  // namespace

int main(int argc, char** argv) {
  static Crowd crowd;
  const bool server = argc == 3 && std::strcmp(argv[1], "serve") == 0;
  const bool client = argc >= 4 && std::strcmp(argv[1], "connect") == 0;
  if (!server && !client) {
    std::fprintf(stderr, "usage: crowd serve PORT | crowd connect PORT COUNT [deaf]\n");
    return 2;
  }
  std::setvbuf(stdout, nullptr, _IOLBF, 0);
  must((crowd.events = rdma_create_event_channel()) != nullptr, "rdma_create_event_channel");
  for (int& fd : crowd.kept_free) must((fd = ::open("/dev/null", O_RDONLY)) >= 0, "/dev/null");
  const auto port = static_cast<std::uint16_t>(std::atoi(argv[2]));
  if (server) {
    serve(crowd, port);
  } else {
    crowd.deaf = argc > 4 && std::strcmp(argv[4], "deaf") == 0;
    connect(crowd, port, static_cast<unsigned>(std::atoi(argv[3])));
  }
  status(crowd);
  clean_up(crowd);
  return crowd.wrong == 0 ? 0 : 1;
}
