// SPDX-License-Identifier: MIT
//
// connect: one RDMA connection from beginning to end, every call explained.
//
//   server:  airdma run -- connect -s [-a ADDRESS] [-p PORT]
//   client:  airdma run -- connect -c  -a ADDRESS  [-p PORT]
//
// RDMA has two interfaces, and a program uses both:
//
//   rdma_*  (librdmacm)   finds the other machine and makes a connection, much like sockets.
//                         What happens is told through an "event channel".
//   ibv_*   (libibverbs)  moves data over the connection. One does not call send() and wait: one
//                         posts a work request to a queue, the device does the work meanwhile,
//                         and a "completion" says later that it is done and how it went.
//
// The program connects, sends one message each way and disconnects. Read server() and client()
// first; the functions above them are the steps both share. Nothing here knows about airdma: the
// same program runs on an RDMA network card.
#include <errno.h>
#include <netdb.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <infiniband/verbs.h>
#include <rdma/rdma_cma.h>

#define DEFAULT_PORT "7471"
#define MESSAGE_BYTES 256
#define TIMEOUT_MS 2000

// Everything that one side owns, in the order in which it comes to exist. Teardown goes backwards.
struct side {
  const char* name;
  struct rdma_event_channel* events;     // where news of connections arrive
  struct rdma_cm_id* listener;           // server only: the id that listens
  struct rdma_cm_id* id;                 // the connection itself, as a socket is for TCP
  struct ibv_pd* pd;                     // protection domain: what may be used together
  struct ibv_comp_channel* completions;  // where one can sleep until a completion exists
  struct ibv_cq* cq;                     // completion queue: what is done
  struct ibv_mr* send_mr;                // memory that the device may read
  struct ibv_mr* receive_mr;             // memory that the device may write
  char send_buffer[MESSAGE_BYTES];
  char receive_buffer[MESSAGE_BYTES];
};

// ---- Small helpers ------------------------------------------------------------------------------

static void say(const struct side* side, const char* step, const char* why) {
  printf("%s: %-28s %s\n", side->name, step, why);
  fflush(stdout);
}

static void die(const char* call, int error) {
  fprintf(stderr, "%s: %s\n", call, strerror(error));
  exit(EXIT_FAILURE);
}

// rdma_* functions answer -1 and set errno; ibv_* functions that return int return the error
// itself; functions that return a pointer return NULL and set errno.
static void check_rdma(int result, const char* call) {
  if (result != 0) die(call, errno);
}
static void check_ibv(int result, const char* call) {
  if (result != 0) die(call, result);
}
static void* check_pointer(void* result, const char* call) {
  if (result == NULL) die(call, errno);
  return result;
}

// ---- Connection events --------------------------------------------------------------------------

// Waits for the next connection event, which must be `expected`, and returns the id it concerns.
//
// rdma_get_cm_event() hands out an event that the library still owns. rdma_ack_cm_event() gives
// it back, and with it everything inside the event: so what is needed is copied out before. An
// event that is never acknowledged makes rdma_destroy_id() wait for ever, and that is deliberate:
// it keeps the id alive as long as somebody may still be looking at an event about it.
static struct rdma_cm_id* expect_event(struct side* side, enum rdma_cm_event_type expected,
                                       const char* why) {
  struct rdma_cm_event* event;
  check_rdma(rdma_get_cm_event(side->events, &event), "rdma_get_cm_event");

  enum rdma_cm_event_type type = event->event;
  int status = event->status;
  struct rdma_cm_id* id = event->id;
  check_rdma(rdma_ack_cm_event(event), "rdma_ack_cm_event");

  if (type != expected) {
    // For example RDMA_CM_EVENT_REJECTED when nobody listens. What status means depends on the
    // network then: a reason of InfiniBand's connection manager over RoCE (8: no such service), a
    // negative errno over iWARP.
    fprintf(stderr, "%s: got %s (status %d) instead of %s\n", side->name, rdma_event_str(type),
            status, rdma_event_str(expected));
    exit(EXIT_FAILURE);
  }
  say(side, rdma_event_str(type) + strlen("RDMA_CM_EVENT_"), why);
  return id;
}

// ---- What a connection needs before it can carry data -------------------------------------------

// The completion channel and queue. They belong to the device (id->verbs), which is known as soon
// as the id is bound to one: on the client after ADDR_RESOLVED, on the server in CONNECT_REQUEST.
static void create_completion_queue(struct side* side) {
  side->pd = check_pointer(ibv_alloc_pd(side->id->verbs), "ibv_alloc_pd");
  say(side, "ibv_alloc_pd", "memory and queues of one protection domain may be combined");

  side->completions =
      check_pointer(ibv_create_comp_channel(side->id->verbs), "ibv_create_comp_channel");
  say(side, "ibv_create_comp_channel", "so that we can sleep instead of polling");

  // 4 entries: at most one send and one receive are outstanding here. A queue that is too small
  // for what is posted overflows, and that is fatal: size it for the worst case.
  side->cq =
      check_pointer(ibv_create_cq(side->id->verbs, 4, NULL, side->completions, 0), "ibv_create_cq");
  say(side, "ibv_create_cq", "finished work requests will be listed here");

  // A channel only tells of a completion when it was asked to, once per request. Ask now, before
  // anything can complete.
  check_ibv(ibv_req_notify_cq(side->cq, 0), "ibv_req_notify_cq");
  say(side, "ibv_req_notify_cq", "wake us at the next completion");
}

// The queue pair is the end of the connection: a send queue and a receive queue.
static void create_queue_pair(struct side* side) {
  struct ibv_qp_init_attr attributes = {
      .send_cq = side->cq,
      .recv_cq = side->cq,    // one queue for both; a program may use two
      .qp_type = IBV_QPT_RC,  // reliable connection: in order, nothing lost
      .cap = {.max_send_wr = 1, .max_recv_wr = 1, .max_send_sge = 1, .max_recv_sge = 1},
  };
  // rdma_create_qp() also moves the queue pair through its first states, so that receives can be
  // posted at once. With ibv_create_qp() we would call ibv_modify_qp() ourselves.
  check_rdma(rdma_create_qp(side->id, side->pd, &attributes), "rdma_create_qp");
  say(side, "rdma_create_qp", "a send queue and a receive queue for this connection");
}

// The device only touches registered memory. The access flags are promises about what it may do:
// reading for a send needs none, writing what arrives needs LOCAL_WRITE. Neither lets the other
// machine in by itself; that would be REMOTE_WRITE and REMOTE_READ (see write_with_imm.c).
static void register_memory(struct side* side) {
  side->send_mr =
      check_pointer(ibv_reg_mr(side->pd, side->send_buffer, MESSAGE_BYTES, 0), "ibv_reg_mr (send)");
  side->receive_mr = check_pointer(
      ibv_reg_mr(side->pd, side->receive_buffer, MESSAGE_BYTES, IBV_ACCESS_LOCAL_WRITE),
      "ibv_reg_mr (receive)");
  say(side, "ibv_reg_mr, twice", "the device may read one buffer and write the other");
}

// A message needs a receive that waits for it. Posting it before the connection exists means that
// no message can come too early, however fast the other side is.
static void post_receive(struct side* side) {
  struct ibv_sge piece = {.addr = (uintptr_t)side->receive_buffer,
                          .length = MESSAGE_BYTES,
                          .lkey = side->receive_mr->lkey};
  struct ibv_recv_wr request = {.wr_id = 1, .sg_list = &piece, .num_sge = 1};
  struct ibv_recv_wr* bad_request;  // of a list of requests, the first that was not accepted
  check_ibv(ibv_post_recv(side->id->qp, &request, &bad_request), "ibv_post_recv");
  say(side, "ibv_post_recv", "a buffer waits before a message can arrive");
}

static void build_resources(struct side* side) {
  create_completion_queue(side);
  create_queue_pair(side);
  register_memory(side);
  post_receive(side);
}

// ---- Moving data --------------------------------------------------------------------------------

static void post_send(struct side* side, const char* text) {
  snprintf(side->send_buffer, MESSAGE_BYTES, "%s", text);
  struct ibv_sge piece = {.addr = (uintptr_t)side->send_buffer,
                          .length = (uint32_t)strlen(side->send_buffer) + 1,
                          .lkey = side->send_mr->lkey};
  struct ibv_send_wr request = {
      .wr_id = 2,  // comes back in the completion; the program chooses it
      .sg_list = &piece,
      .num_sge = 1,
      .opcode = IBV_WR_SEND,
      .send_flags = IBV_SEND_SIGNALED,  // we want a completion; without it only errors give one
  };
  struct ibv_send_wr* bad_request;
  check_ibv(ibv_post_send(side->id->qp, &request, &bad_request), "ibv_post_send");
  say(side, "ibv_post_send", text);
}

// Sleeps until the channel reports the completion queue, then asks for the next report.
static void sleep_on_channel(struct side* side) {
  struct ibv_cq* cq;
  void* context;
  check_rdma(ibv_get_cq_event(side->completions, &cq, &context), "ibv_get_cq_event");
  // Events of a channel are counted: ibv_destroy_cq() waits until each is acknowledged. Doing it
  // in batches is cheaper, one at a time is simpler.
  ibv_ack_cq_events(cq, 1);
  check_ibv(ibv_req_notify_cq(cq, 0), "ibv_req_notify_cq");
}

// Returns when the work request of kind `opcode` is complete; `length` is set for a receive.
//
// The order matters: look into the queue first, sleep only when it is empty. And because
// sleep_on_channel() asks for the next report before we look again, a completion that arrives in
// between is either seen by ibv_poll_cq() or reported: it cannot be missed.
static void wait_for_completion(struct side* side, enum ibv_wc_opcode opcode, uint32_t* length) {
  struct ibv_wc completion;
  for (;;) {
    int found = ibv_poll_cq(side->cq, 1, &completion);
    if (found < 0) die("ibv_poll_cq", EIO);
    if (found == 0) {
      sleep_on_channel(side);
      continue;
    }
    // Always look at the status first: of a failed request only status, wr_id and qp_num count.
    if (completion.status != IBV_WC_SUCCESS) {
      fprintf(stderr, "%s: work request %llu failed: %s\n", side->name,
              (unsigned long long)completion.wr_id, ibv_wc_status_str(completion.status));
      exit(EXIT_FAILURE);
    }
    if (completion.opcode != opcode) continue;  // our send's, while we wait for the answer
    if (length != NULL) *length = completion.byte_len;
    return;
  }
}

static void receive_message(struct side* side) {
  uint32_t length = 0;
  wait_for_completion(side, IBV_WC_RECV, &length);
  printf("%s: %-28s %u bytes: \"%.*s\"\n", side->name, "received", length,
         (int)strnlen(side->receive_buffer, length), side->receive_buffer);
}

// ---- The end ------------------------------------------------------------------------------------

// In the reverse of the order of creation: nothing may be destroyed while something else uses it,
// and the library refuses (EBUSY) when one tries.
static void destroy_resources(struct side* side) {
  rdma_destroy_qp(side->id);
  say(side, "rdma_destroy_qp", "first: it uses the queue, the memory and the domain");
  check_ibv(ibv_dereg_mr(side->send_mr), "ibv_dereg_mr (send)");
  check_ibv(ibv_dereg_mr(side->receive_mr), "ibv_dereg_mr (receive)");
  say(side, "ibv_dereg_mr, twice", "the buffers are ours alone again");
  check_ibv(ibv_destroy_cq(side->cq), "ibv_destroy_cq");
  say(side, "ibv_destroy_cq", "no queue pair reports to it any more");
  check_ibv(ibv_destroy_comp_channel(side->completions), "ibv_destroy_comp_channel");
  say(side, "ibv_destroy_comp_channel", "no queue reports to it any more");
  check_ibv(ibv_dealloc_pd(side->pd), "ibv_dealloc_pd");
  say(side, "ibv_dealloc_pd", "nothing is left in it");
  check_rdma(rdma_destroy_id(side->id), "rdma_destroy_id");
  say(side, "rdma_destroy_id", "the connection's id");
  if (side->listener != NULL) {
    check_rdma(rdma_destroy_id(side->listener), "rdma_destroy_id (listener)");
    say(side, "rdma_destroy_id", "the listener");
  }
  rdma_destroy_event_channel(side->events);
  say(side, "rdma_destroy_event_channel", "last: no id sends events to it any more");
}

// ---- The two programs ---------------------------------------------------------------------------

static void open_event_channel(struct side* side, struct rdma_cm_id** id) {
  side->events = check_pointer(rdma_create_event_channel(), "rdma_create_event_channel");
  say(side, "rdma_create_event_channel", "all news of connections arrive here");
  // RDMA_PS_TCP is the port space for reliable connections. The last but one argument is the
  // program's own pointer, found again as id->context.
  check_rdma(rdma_create_id(side->events, id, NULL, RDMA_PS_TCP), "rdma_create_id");
  say(side, "rdma_create_id", "the id is to RDMA what a socket is to TCP");
}

static void server(struct sockaddr* address) {
  struct side side = {.name = "server"};
  open_event_channel(&side, &side.listener);

  check_rdma(rdma_bind_addr(side.listener, address), "rdma_bind_addr");
  say(&side, "rdma_bind_addr", "an address of this machine and a port");
  check_rdma(rdma_listen(side.listener, 1), "rdma_listen");
  say(&side, "rdma_listen", "wait for clients; at most 1 request in the queue");

  // The request comes with an id of its own for the new connection, as accept() returns a new
  // socket. The listener goes on listening.
  side.id = expect_event(&side, RDMA_CM_EVENT_CONNECT_REQUEST, "a client asks; here is a new id");
  build_resources(&side);

  // NULL: let the library choose the parameters, and send no private data along.
  check_rdma(rdma_accept(side.id, NULL), "rdma_accept");
  say(&side, "rdma_accept", "tell the client that we are ready");
  expect_event(&side, RDMA_CM_EVENT_ESTABLISHED, "both sides agree: data may flow");

  receive_message(&side);
  post_send(&side, "hello client, your message arrived");
  wait_for_completion(&side, IBV_WC_SEND, NULL);
  say(&side, "send completed", "the buffer may be used again");

  expect_event(&side, RDMA_CM_EVENT_DISCONNECTED, "the client has hung up");
  // Our half of the farewell: on InfiniBand and RoCE the client waits for it.
  check_rdma(rdma_disconnect(side.id), "rdma_disconnect");
  say(&side, "rdma_disconnect", "our half of the farewell");
  destroy_resources(&side);
}

static void client(struct sockaddr* address) {
  struct side side = {.name = "client"};
  open_event_channel(&side, &side.id);

  // Which local device leads to that address? The answer comes as an event.
  check_rdma(rdma_resolve_addr(side.id, NULL, address, TIMEOUT_MS), "rdma_resolve_addr");
  say(&side, "rdma_resolve_addr", "which device leads there?");
  expect_event(&side, RDMA_CM_EVENT_ADDR_RESOLVED, "the id has a device now");
  check_rdma(rdma_resolve_route(side.id, TIMEOUT_MS), "rdma_resolve_route");
  say(&side, "rdma_resolve_route", "by which path?");
  expect_event(&side, RDMA_CM_EVENT_ROUTE_RESOLVED, "the path is known");

  build_resources(&side);
  struct rdma_conn_param parameters = {.retry_count = 7, .rnr_retry_count = 7};
  check_rdma(rdma_connect(side.id, &parameters), "rdma_connect");
  say(&side, "rdma_connect", "ask the server");
  expect_event(&side, RDMA_CM_EVENT_ESTABLISHED, "the server accepted: data may flow");

  // The side that connects speaks first. On iWARP this is a rule (RFC 5044 7.1): the server may
  // not send before it has seen something of the client's.
  post_send(&side, "hello server");
  receive_message(&side);

  check_rdma(rdma_disconnect(side.id), "rdma_disconnect");
  say(&side, "rdma_disconnect", "that was all");
  expect_event(&side, RDMA_CM_EVENT_DISCONNECTED, "the connection is gone on both sides");
  destroy_resources(&side);
}

// ---- Command line -------------------------------------------------------------------------------

// getaddrinfo() would take any number, and keep its lower 16 bits.
static int good_port(const char* text) {
  char* end;
  long number = strtol(text, &end, 10);
  return *text != '\0' && *end == '\0' && number > 0 && number <= 65535;
}

static int usage(const char* program) {
  fprintf(stderr, "usage: %s -s [-a ADDRESS] [-p PORT]\n       %s -c -a ADDRESS [-p PORT]\n",
          program, program);
  return 2;
}

int main(int argc, char** argv) {
  char role = 0;
  const char* host = NULL;
  const char* port = DEFAULT_PORT;
  for (int option; (option = getopt(argc, argv, "sca:p:")) != -1;) {
    if (option == 's' || option == 'c')
      role = (char)option;
    else if (option == 'a')
      host = optarg;
    else if (option == 'p')
      port = optarg;
    else
      return usage(argv[0]);
  }
  if (role == 0 || (role == 'c' && host == NULL)) return usage(argv[0]);
  if (!good_port(port)) {
    fprintf(stderr, "%s: not a port: a number from 1 to 65535 is needed\n", port);
    return usage(argv[0]);
  }

  // Without -a the server takes every address. "::" takes IPv4 clients as well as IPv6 ones.
  struct addrinfo hints = {.ai_socktype = SOCK_STREAM, .ai_flags = AI_PASSIVE};
  struct addrinfo* found;
  int error = getaddrinfo(host != NULL ? host : "::", port, &hints, &found);
  if (error != 0) {
    fprintf(stderr, "%s: %s\n", host != NULL ? host : "::", gai_strerror(error));
    return EXIT_FAILURE;
  }
  if (role == 's')
    server(found->ai_addr);
  else
    client(found->ai_addr);
  freeaddrinfo(found);
  return EXIT_SUCCESS;
}
