// SPDX-License-Identifier: MIT
// victim PORT [ADDRESS]: a server whose memory hostile peers try to reach.
// Its regions lie in one arena with guard bytes around each. On "check" from standard input it
// compares every byte that no peer may change with what it has put there, and says "intact ..." or
// "CORRUPT ...". It first prints one line with the address and rkey of each region, so that a peer
// can aim. Every second connection it READs 256 bytes from its peer; its answer to a request says
// so in its first byte. On a device with datagrams it has a queue pair for them, too.
#include <arpa/inet.h>
#include <fcntl.h>
#include <infiniband/verbs.h>
#include <netinet/in.h>
#include <poll.h>
#include <rdma/rdma_cma.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string_view>

namespace {

constexpr std::size_t kRegionBytes = 4096;
constexpr std::size_t kGuardBytes = 4096;
constexpr std::size_t kReceiveBytes = 200;
constexpr std::size_t kSlotBytes = 256;  // a receive and guard bytes behind it
constexpr unsigned kReceives = 4;
constexpr unsigned kConnections = 64;
constexpr std::size_t kReadBytes = 256;
// What no peer may ever see: it fills the regions without REMOTE_READ.
constexpr std::string_view kSecret = "SECRET!!";

// Receives of datagrams are slots of `mail`: a route header and the payload.
constexpr std::size_t kGrhBytes = 40;
constexpr std::size_t kDatagramBytes = 200;
constexpr std::size_t kMailSlotBytes = 512;
constexpr unsigned kMailSlots = 8;
constexpr std::uint32_t kQkey = 0x1badf00d;
constexpr std::uint64_t kMailIds = 1u << 24;

enum Region : unsigned {
  kOpen,
  kReadOnly,
  kLocal,
  kForeign,
  kGone,
  kSink,
  kInbox,
  kMail,
  kRegions
};
constexpr const char* kNames[kRegions] = {"open", "read_only", "local", "foreign",
                                          "gone", "sink",      "inbox", "mail"};
static_assert(kMailSlots * kMailSlotBytes == kRegionBytes);

struct Connection {
  rdma_cm_id* id = nullptr;
  bool reads = false;
};

struct Victim {
  std::uint8_t* arena = nullptr;
  std::uint8_t* expected = nullptr;
  std::size_t arena_bytes = 0;
  std::size_t offset[kRegions] = {};
  std::size_t bytes[kRegions] = {};
  ibv_mr* mr[kRegions] = {};
  ibv_pd* pd = nullptr;
  ibv_pd* other_pd = nullptr;
  ibv_comp_channel* completions = nullptr;
  ibv_cq* cq = nullptr;
  rdma_event_channel* events = nullptr;
  Connection connections[kConnections];
  ibv_qp* datagrams = nullptr;
  unsigned mail_slots = 0;  // that are posted
  unsigned long accepted = 0, received = 0, read = 0, async = 0, flushed = 0, mails = 0;
};

[[noreturn]] void give_up(const char* what) {
  std::perror(what);
  std::exit(3);
}

template <class T>
T* must(T* pointer, const char* what) {
  if (pointer == nullptr) give_up(what);
  return pointer;
}

void must(int result, const char* what) {
  if (result != 0) give_up(what);
}

std::uint8_t guard_byte(std::size_t at) { return static_cast<std::uint8_t>(0xC5 ^ (at * 7)); }

void lay_out(Victim& v) {
  std::size_t at = kGuardBytes;
  for (unsigned i = 0; i < kRegions; ++i) {
    v.offset[i] = at;
    v.bytes[i] = i == kInbox ? kConnections * kReceives * kSlotBytes : kRegionBytes;
    at += v.bytes[i] + kGuardBytes;
  }
  v.arena_bytes = at;
  v.arena = static_cast<std::uint8_t*>(
      ::mmap(nullptr, at, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
  if (v.arena == MAP_FAILED) give_up("mmap");
  v.expected = must(static_cast<std::uint8_t*>(std::malloc(at)), "malloc");
  for (std::size_t i = 0; i < at; ++i) v.arena[i] = guard_byte(i);
  for (const Region region : {kLocal, kForeign, kGone}) {
    for (std::size_t i = 0; i < kRegionBytes; ++i) {
      v.arena[v.offset[region] + i] = static_cast<std::uint8_t>(kSecret[i % kSecret.size()]);
    }
  }
  std::memcpy(v.expected, v.arena, at);
}

ibv_mr* register_region(Victim& v, Region region, ibv_pd* pd, int access) {
  return must(ibv_reg_mr(pd, v.arena + v.offset[region], v.bytes[region], access), "ibv_reg_mr");
}

void register_all(Victim& v) {
  const int all = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ;
  v.mr[kOpen] =
      ibv_reg_mr(v.pd, v.arena + v.offset[kOpen], v.bytes[kOpen], all | IBV_ACCESS_REMOTE_ATOMIC);
  if (v.mr[kOpen] == nullptr) v.mr[kOpen] = register_region(v, kOpen, v.pd, all);
  v.mr[kReadOnly] = register_region(v, kReadOnly, v.pd, IBV_ACCESS_REMOTE_READ);
  v.mr[kLocal] = register_region(v, kLocal, v.pd, IBV_ACCESS_LOCAL_WRITE);
  v.mr[kForeign] = register_region(v, kForeign, v.other_pd, all);
  v.mr[kGone] = register_region(v, kGone, v.pd, all);
  v.mr[kSink] = register_region(v, kSink, v.pd, IBV_ACCESS_LOCAL_WRITE);
  v.mr[kInbox] = register_region(v, kInbox, v.pd, IBV_ACCESS_LOCAL_WRITE);
  v.mr[kMail] = register_region(v, kMail, v.pd, IBV_ACCESS_LOCAL_WRITE);
}

/// What peers are told.
void introduce(Victim& v) {
  std::printf("regions");
  for (unsigned i = 0; i < kRegions; ++i) {
    std::printf(" %s=%#lx:%#x", kNames[i], reinterpret_cast<unsigned long>(v.arena + v.offset[i]),
                v.mr[i]->rkey);
  }
  if (v.datagrams != nullptr) std::printf(" datagrams=%#x:%#x", v.datagrams->qp_num, kQkey);
  must(ibv_dereg_mr(v.mr[kGone]), "ibv_dereg_mr");
  std::printf("\n");
}

/// What a peer may change at any time: the open region, the receives, the sink of the READs.
bool may_change(const Victim& v, std::size_t at) {
  const auto inside = [&](Region region) { return at - v.offset[region] < v.bytes[region]; };
  if (inside(kOpen)) return true;
  if (inside(kSink)) return at - v.offset[kSink] < kReadBytes;
  if (inside(kMail)) return (at - v.offset[kMail]) % kMailSlotBytes < kGrhBytes + kDatagramBytes;
  return inside(kInbox) && (at - v.offset[kInbox]) % kSlotBytes < kReceiveBytes;
}

void check(Victim& v) {
  for (std::size_t i = 0; i < v.arena_bytes; ++i) {
    if (v.arena[i] == v.expected[i] || may_change(v, i)) continue;
    std::printf("CORRUPT offset %zu: %#x instead of %#x\n", i, v.arena[i], v.expected[i]);
    return;
  }
  unsigned open = 0;
  for (const Connection& c : v.connections) open += c.id != nullptr;
  std::printf(
      "intact connections=%lu open=%u received=%lu read=%lu flushed=%lu async=%lu mails=%lu\n",
      v.accepted, open, v.received, v.read, v.flushed, v.async, v.mails);
}

void post(const Victim& v, ibv_qp* qp, std::uint64_t wr_id, Region region, std::size_t at,
          std::size_t bytes) {
  ibv_sge sge{reinterpret_cast<std::uint64_t>(v.arena + v.offset[region] + at),
              static_cast<std::uint32_t>(bytes), v.mr[region]->lkey};
  ibv_recv_wr wr{};
  wr.wr_id = wr_id;
  wr.sg_list = &sge;
  wr.num_sge = 1;
  ibv_recv_wr* bad = nullptr;
  ibv_post_recv(qp, &wr, &bad);  // a queue pair in ERR flushes it
}

void post_receive(const Victim& v, ibv_qp* qp, std::uint64_t slot) {
  post(v, qp, slot, kInbox, slot * kSlotBytes, kReceiveBytes);
}

void post_mail(Victim& v, std::uint64_t slot) {
  post(v, v.datagrams, kMailIds + slot, kMail, slot * kMailSlotBytes, kGrhBytes + kDatagramBytes);
  ++v.mail_slots;
}

void start_mail(Victim& v) {
  ibv_qp_attr attr{};
  attr.qp_state = IBV_QPS_INIT;
  attr.port_num = 1;
  attr.qkey = kQkey;
  must(ibv_modify_qp(v.datagrams, &attr,
                     IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_QKEY),
       "ibv_modify_qp to INIT");
  attr.qp_state = IBV_QPS_RTR;
  must(ibv_modify_qp(v.datagrams, &attr, IBV_QP_STATE), "ibv_modify_qp to RTR");
  for (unsigned i = 0; i < kMailSlots; ++i) post_mail(v, i);
}

/// A queue pair for datagrams, where the device has them.
void open_mail(Victim& v, ibv_context* context) {
  if (context->device->transport_type != IBV_TRANSPORT_IB) return;
  ibv_qp_init_attr init{};
  init.send_cq = init.recv_cq = v.cq;
  init.qp_type = IBV_QPT_UD;
  init.cap.max_recv_wr = kMailSlots;
  init.cap.max_recv_sge = 1;
  v.datagrams = must(ibv_create_qp(v.pd, &init), "ibv_create_qp");
  start_mail(v);
}

void post_read(Victim& v, ibv_qp* qp) {
  ibv_sge sge{reinterpret_cast<std::uint64_t>(v.arena + v.offset[kSink]), kReadBytes,
              v.mr[kSink]->lkey};
  ibv_send_wr wr{};
  wr.wr_id = 1u << 20;
  wr.sg_list = &sge;
  wr.num_sge = 1;
  wr.opcode = IBV_WR_RDMA_READ;
  wr.send_flags = IBV_SEND_SIGNALED;
  wr.wr.rdma.remote_addr = 0x1000;
  wr.wr.rdma.rkey = 0x1234;
  ibv_send_wr* bad = nullptr;
  ibv_post_send(qp, &wr, &bad);
}

Connection* free_connection(Victim& v) {
  for (Connection& c : v.connections) {
    if (c.id == nullptr) return &c;
  }
  return nullptr;
}

void on_request(Victim& v, rdma_cm_id* id) {
  Connection* connection = free_connection(v);
  ibv_qp_init_attr attr{};
  attr.send_cq = attr.recv_cq = v.cq;
  attr.qp_type = IBV_QPT_RC;
  attr.cap = {.max_send_wr = 2,
              .max_recv_wr = kReceives,
              .max_send_sge = 1,
              .max_recv_sge = 1,
              .max_inline_data = 0};
  if (connection == nullptr || rdma_create_qp(id, v.pd, &attr) != 0) {
    rdma_reject(id, nullptr, 0);
    rdma_destroy_id(id);
    return;
  }
  *connection = {id, v.accepted % 2 == 1};
  id->context = connection;
  const auto number = static_cast<std::uint64_t>(connection - v.connections);
  for (unsigned i = 0; i < kReceives; ++i) post_receive(v, id->qp, number * kReceives + i);
  rdma_conn_param parameters{};
  parameters.responder_resources = 4;
  parameters.initiator_depth = 4;
  const char reads = connection->reads ? 1 : 0;
  parameters.private_data = &reads;
  parameters.private_data_len = sizeof reads;
  ++v.accepted;
  rdma_accept(id, &parameters);
}

void end_connection(rdma_cm_id* id) {
  auto* connection = static_cast<Connection*>(id->context);
  if (connection == nullptr || connection->id != id) return;
  *connection = {};
  rdma_destroy_qp(id);
  rdma_destroy_id(id);
}

void on_cm_event(Victim& v) {
  rdma_cm_event* event = nullptr;
  if (rdma_get_cm_event(v.events, &event) != 0) return;
  rdma_cm_id* id = event->id;
  const rdma_cm_event_type type = event->event;
  rdma_ack_cm_event(event);
  switch (type) {
    case RDMA_CM_EVENT_CONNECT_REQUEST:
      on_request(v, id);
      break;
    case RDMA_CM_EVENT_ESTABLISHED:
      if (static_cast<Connection*>(id->context)->reads) post_read(v, id->qp);
      break;
    case RDMA_CM_EVENT_DISCONNECTED:
    case RDMA_CM_EVENT_CONNECT_ERROR:
    case RDMA_CM_EVENT_UNREACHABLE:
    case RDMA_CM_EVENT_REJECTED:
      end_connection(id);
      break;
    default:
      break;
  }
}

/// A datagram that is longer than its receive ends the queue pair, which begins anew.
void on_lost_mail(Victim& v, const ibv_wc& wc) {
  if (wc.status != IBV_WC_LOC_LEN_ERR && wc.status != IBV_WC_WR_FLUSH_ERR) {
    std::printf("CORRUPT datagram, status %d\n", wc.status);
  }
  if (v.mail_slots != 0) return;
  ibv_qp_attr attr{};
  attr.qp_state = IBV_QPS_RESET;
  must(ibv_modify_qp(v.datagrams, &attr, IBV_QP_STATE), "ibv_modify_qp to RESET");
  start_mail(v);
}

/// One with a wrong Q_Key or opcode would bring the secret with it.
void on_mail(Victim& v, const ibv_wc& wc) {
  --v.mail_slots;
  if (wc.status != IBV_WC_SUCCESS) return on_lost_mail(v, wc);
  const std::uint64_t slot = wc.wr_id - kMailIds;
  const auto* text =
      reinterpret_cast<const char*>(v.arena + v.offset[kMail]) + slot * kMailSlotBytes + kGrhBytes;
  if (wc.byte_len > kGrhBytes + kDatagramBytes ||
      (wc.byte_len >= kGrhBytes + kSecret.size() &&
       std::string_view(text, kSecret.size()) == kSecret)) {
    std::printf("CORRUPT datagram of %u bytes\n", wc.byte_len);
  }
  ++v.mails;
  post_mail(v, slot);
}

void on_completions(Victim& v) {
  ibv_cq* cq = nullptr;
  void* context = nullptr;
  if (ibv_get_cq_event(v.completions, &cq, &context) != 0) return;
  ibv_ack_cq_events(cq, 1);
  must(ibv_req_notify_cq(cq, 0), "ibv_req_notify_cq");
  ibv_wc wc[16];
  for (int count = 0; (count = ibv_poll_cq(cq, 16, wc)) > 0;) {
    for (int i = 0; i < count; ++i) {
      if (wc[i].wr_id >= kMailIds) {
        on_mail(v, wc[i]);
      } else if (wc[i].status != IBV_WC_SUCCESS) {
        ++v.flushed;
      } else if (wc[i].wr_id >= kConnections * kReceives) {
        ++v.read;
      } else {
        ++v.received;
        Connection& c = v.connections[wc[i].wr_id / kReceives];
        if (c.id != nullptr && c.id->qp != nullptr) post_receive(v, c.id->qp, wc[i].wr_id);
      }
    }
  }
}

void on_async(Victim& v, ibv_context* context) {
  ibv_async_event event{};
  if (ibv_get_async_event(context, &event) != 0) return;
  ++v.async;
  ibv_ack_async_event(&event);
}

/// False at the end of standard input.
bool on_command(Victim& v) {
  char text[64];
  const ssize_t got = ::read(0, text, sizeof text);
  if (got <= 0) return false;
  for (ssize_t i = 0; i < got; ++i) {
    if (text[i] == '\n') check(v);
  }
  return true;
}

rdma_cm_id* start(Victim& v, std::uint16_t port, const char* host) {
  v.events = must(rdma_create_event_channel(), "rdma_create_event_channel");
  rdma_cm_id* listener = nullptr;
  must(rdma_create_id(v.events, &listener, nullptr, RDMA_PS_TCP), "rdma_create_id");
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(port);
  if (::inet_pton(AF_INET, host, &address.sin_addr) != 1) give_up(host);
  must(rdma_bind_addr(listener, reinterpret_cast<sockaddr*>(&address)), "rdma_bind_addr");
  v.pd = must(ibv_alloc_pd(listener->verbs), "ibv_alloc_pd");
  v.other_pd = must(ibv_alloc_pd(listener->verbs), "ibv_alloc_pd");
  v.completions = must(ibv_create_comp_channel(listener->verbs), "ibv_create_comp_channel");
  v.cq = must(ibv_create_cq(listener->verbs, 4096, nullptr, v.completions, 0), "ibv_create_cq");
  must(ibv_req_notify_cq(v.cq, 0), "ibv_req_notify_cq");
  lay_out(v);
  register_all(v);
  open_mail(v, listener->verbs);
  introduce(v);
  must(rdma_listen(listener, 64), "rdma_listen");
  return listener;
}

void serve(Victim& v, ibv_context* context) {
  pollfd fds[4] = {{v.events->fd, POLLIN, 0},
                   {v.completions->fd, POLLIN, 0},
                   {context->async_fd, POLLIN, 0},
                   {0, POLLIN, 0}};
  // Whoever destroys a queue pair takes its events away, also those that poll() has announced.
  for (unsigned i = 0; i < 3; ++i) must(::fcntl(fds[i].fd, F_SETFL, O_NONBLOCK), "fcntl");
  for (;;) {
    if (::poll(fds, 4, -1) < 0) give_up("poll");
    if (fds[1].revents != 0) on_completions(v);
    if (fds[0].revents != 0) on_cm_event(v);
    if (fds[2].revents != 0) on_async(v, context);
    if (fds[3].revents != 0 && !on_command(v)) return;
  }
}

void clean_up(Victim& v, rdma_cm_id* listener) {
  for (Connection& c : v.connections) {
    if (c.id != nullptr) end_connection(c.id);
  }
  if (v.datagrams != nullptr) must(ibv_destroy_qp(v.datagrams), "ibv_destroy_qp");
  for (unsigned i = 0; i < kRegions; ++i) {
    if (i != kGone) must(ibv_dereg_mr(v.mr[i]), "ibv_dereg_mr");
  }
  must(ibv_destroy_cq(v.cq), "ibv_destroy_cq");
  must(ibv_destroy_comp_channel(v.completions), "ibv_destroy_comp_channel");
  must(ibv_dealloc_pd(v.other_pd), "ibv_dealloc_pd");
  must(ibv_dealloc_pd(v.pd), "ibv_dealloc_pd");
  must(rdma_destroy_id(listener), "rdma_destroy_id");
  rdma_destroy_event_channel(v.events);
  std::free(v.expected);
}

}  // namespace

int main(int argc, char** argv) {
  if (argc < 2) {
    std::fprintf(stderr, "usage: victim PORT [ADDRESS]\n");
    return 2;
  }
  std::setvbuf(stdout, nullptr, _IOLBF, 0);
  Victim victim;
  rdma_cm_id* listener = start(victim, static_cast<std::uint16_t>(std::atoi(argv[1])),
                               argc > 2 ? argv[2] : "127.0.0.1");
  serve(victim, listener->verbs);
  check(victim);
  clean_up(victim, listener);
  std::printf("ended\n");
  return 0;
}
