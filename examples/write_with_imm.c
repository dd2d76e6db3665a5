// SPDX-License-Identifier: MIT
//
// write_with_imm: writing into another program's memory, and telling it so.
//
//   server:  airdma run -- write_with_imm -s [-a ADDRESS] [-p PORT]
//   client:  airdma run -- write_with_imm -c  -a ADDRESS  [-p PORT]
//
// Read connect.c first: the steps that it explains are only named here. New are three things.
//
//   RDMA WRITE       One side writes straight into memory of the other. The other program is not
//                    asked and takes no part; its memory just changes. For that it must have
//                    allowed it (REMOTE_WRITE) and told where the memory is: an address and a
//                    key, the "rkey". Here both travel as private data while connecting.
//   ... with IMM     A plain WRITE is silent. WITH_IMM also carries 32 bits ("immediate data") that
//                    use up one posted receive of the other side and so give it a completion: the
//                    data is in place now. We put the number of bytes into them.
//   Two ways to      Polling asks again and again: the fastest answer, at the price of a busy
//   learn of it      processor. Events let the program sleep. Round 1 polls, round 2 sleeps.
//
// In each round the client writes into the server's memory and the server writes back.
#include <arpa/inet.h>
#include <errno.h>
#include <netdb.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <infiniband/verbs.h>
#include <rdma/rdma_cma.h>

#define DEFAULT_PORT "7472"
#define BUFFER_BYTES 4096
#define TIMEOUT_MS 2000

// What one side tells the other about its buffer, in network byte order. It crosses the network:
// so its layout is fixed, without padding, and not a struct of pointers.
struct buffer_note {
  uint8_t address[8];
  uint8_t rkey[4];
  uint8_t bytes[4];
};

struct remote_buffer {
  uint64_t address;
  uint32_t rkey;
  uint32_t bytes;
};

enum wait_mode { POLL, SLEEP };

struct side {
  const char* name;
  struct rdma_event_channel* events;
  struct rdma_cm_id* listener;
  struct rdma_cm_id* id;
  struct ibv_pd* pd;
  struct ibv_comp_channel* completions;
  struct ibv_cq* cq;
  struct ibv_mr* source_mr;
  struct ibv_mr* target_mr;
  struct remote_buffer remote;  // the other side's target
  char source[BUFFER_BYTES];    // what we write to the other side is taken from here
  char target[BUFFER_BYTES];    // the other side writes here
};

// ---- Small helpers, as in connect.c -------------------------------------------------------------

static void say(const struct side* side, const char* step, const char* why) {
  printf("%s: %-28s %s\n", side->name, step, why);
  fflush(stdout);
}

static void die(const char* call, int error) {
  fprintf(stderr, "%s: %s\n", call, strerror(error));
  exit(EXIT_FAILURE);
}

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

// ---- Address and rkey as private data -----------------------------------------------------------

static void put_big_endian(uint8_t* out, int bytes, uint64_t value) {
  for (int i = bytes - 1; i >= 0; --i, value >>= 8) out[i] = (uint8_t)value;
}
static uint64_t get_big_endian(const uint8_t* in, int bytes) {
  uint64_t value = 0;
  for (int i = 0; i < bytes; ++i) value = value << 8 | in[i];
  return value;
}

// The parameters of rdma_connect() and rdma_accept(): both carry our note to the other side.
static struct rdma_conn_param describe_target(const struct side* side, struct buffer_note* note) {
  put_big_endian(note->address, 8, (uintptr_t)side->target);
  put_big_endian(note->rkey, 4, side->target_mr->rkey);
  put_big_endian(note->bytes, 4, BUFFER_BYTES);
  struct rdma_conn_param parameters = {.private_data = note,
                                       .private_data_len = sizeof *note,
                                       .retry_count = 7,
                                       .rnr_retry_count = 7};
  printf("%s: %-28s address %p, rkey 0x%x, %d bytes\n", side->name, "our target is at",
         (void*)side->target, side->target_mr->rkey, BUFFER_BYTES);
  return parameters;
}

// Some networks pad private data with zeros, so its length is a lower bound to check, no more.
static void learn_remote(struct side* side, const struct rdma_conn_param* parameters) {
  if (parameters->private_data_len < sizeof(struct buffer_note)) {
    fprintf(stderr, "%s: the other side did not say where to write\n", side->name);
    exit(EXIT_FAILURE);
  }
  const struct buffer_note* note = parameters->private_data;
  side->remote.address = get_big_endian(note->address, 8);
  side->remote.rkey = (uint32_t)get_big_endian(note->rkey, 4);
  side->remote.bytes = (uint32_t)get_big_endian(note->bytes, 4);
  printf("%s: %-28s address 0x%llx, rkey 0x%x, %u bytes\n", side->name, "the other's target is at",
         (unsigned long long)side->remote.address, side->remote.rkey, side->remote.bytes);
}

// Waits for `expected`. With `learn`, reads the private data, before the event and the memory in
// it go back to the library.
static struct rdma_cm_id* expect_event(struct side* side, enum rdma_cm_event_type expected,
                                       int learn) {
  struct rdma_cm_event* event;
  check_rdma(rdma_get_cm_event(side->events, &event), "rdma_get_cm_event");
  if (event->event != expected) {
    fprintf(stderr, "%s: got %s (status %d) instead of %s\n", side->name,
            rdma_event_str(event->event), event->status, rdma_event_str(expected));
    exit(EXIT_FAILURE);
  }
  struct rdma_cm_id* id = event->id;
  say(side, rdma_event_str(expected) + strlen("RDMA_CM_EVENT_"), "");
  if (learn) learn_remote(side, &event->param.conn);
  check_rdma(rdma_ack_cm_event(event), "rdma_ack_cm_event");
  return id;
}

// ---- Resources ----------------------------------------------------------------------------------

// A receive without memory: a WRITE_WITH_IMM puts its data where the writer said, and needs the
// receive only to announce itself.
static void post_empty_receive(struct side* side) {
  struct ibv_recv_wr request = {.wr_id = 1};
  struct ibv_recv_wr* bad_request;
  check_ibv(ibv_post_recv(side->id->qp, &request, &bad_request), "ibv_post_recv");
}

static void build_resources(struct side* side) {
  side->pd = check_pointer(ibv_alloc_pd(side->id->verbs), "ibv_alloc_pd");
  side->completions =
      check_pointer(ibv_create_comp_channel(side->id->verbs), "ibv_create_comp_channel");
  side->cq =
      check_pointer(ibv_create_cq(side->id->verbs, 8, NULL, side->completions, 0), "ibv_create_cq");
  struct ibv_qp_init_attr attributes = {
      .send_cq = side->cq,
      .recv_cq = side->cq,
      .qp_type = IBV_QPT_RC,
      .cap = {.max_send_wr = 2, .max_recv_wr = 2, .max_send_sge = 1, .max_recv_sge = 1},
  };
  check_rdma(rdma_create_qp(side->id, side->pd, &attributes), "rdma_create_qp");
  side->source_mr =
      check_pointer(ibv_reg_mr(side->pd, side->source, BUFFER_BYTES, 0), "ibv_reg_mr (source)");
  // REMOTE_WRITE lets those in who know the rkey; it needs LOCAL_WRITE as well.
  side->target_mr = check_pointer(ibv_reg_mr(side->pd, side->target, BUFFER_BYTES,
                                             IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE),
                                  "ibv_reg_mr (target)");
  // One receive for each write that will come: one per round.
  post_empty_receive(side);
  post_empty_receive(side);
  say(side, "resources", "domain, channel, queues, two buffers, two receives");
}

static void destroy_resources(struct side* side) {
  rdma_destroy_qp(side->id);
  check_ibv(ibv_dereg_mr(side->source_mr), "ibv_dereg_mr (source)");
  check_ibv(ibv_dereg_mr(side->target_mr), "ibv_dereg_mr (target)");
  check_ibv(ibv_destroy_cq(side->cq), "ibv_destroy_cq");
  check_ibv(ibv_destroy_comp_channel(side->completions), "ibv_destroy_comp_channel");
  check_ibv(ibv_dealloc_pd(side->pd), "ibv_dealloc_pd");
  check_rdma(rdma_destroy_id(side->id), "rdma_destroy_id");
  if (side->listener != NULL) check_rdma(rdma_destroy_id(side->listener), "rdma_destroy_id");
  rdma_destroy_event_channel(side->events);
  say(side, "destroyed", "everything, in the reverse order");
}

// ---- Writing ------------------------------------------------------------------------------------

static void write_to_other(struct side* side, const char* text) {
  snprintf(side->source, BUFFER_BYTES, "%s", text);
  uint32_t bytes = (uint32_t)strlen(side->source) + 1;
  if (bytes > side->remote.bytes) {
    fprintf(stderr, "%s: %u bytes do not fit into the other's target of %u\n", side->name, bytes,
            side->remote.bytes);
    exit(EXIT_FAILURE);
  }

  struct ibv_sge piece = {
      .addr = (uintptr_t)side->source, .length = bytes, .lkey = side->source_mr->lkey};
  struct ibv_send_wr request = {
      .wr_id = 2,
      .sg_list = &piece,
      .num_sge = 1,
      .opcode = IBV_WR_RDMA_WRITE_WITH_IMM,
      .send_flags = IBV_SEND_SIGNALED,
      .imm_data = htonl(bytes),  // carried as it is, so both sides must agree on a byte order
      .wr.rdma = {.remote_addr = side->remote.address, .rkey = side->remote.rkey},
  };
  struct ibv_send_wr* bad_request;
  check_ibv(ibv_post_send(side->id->qp, &request, &bad_request), "ibv_post_send");
  say(side, "RDMA_WRITE_WITH_IMM", text);
}

// ---- Learning of completions --------------------------------------------------------------------

static void sleep_on_channel(struct side* side) {
  struct ibv_cq* cq;
  void* context;
  check_rdma(ibv_get_cq_event(side->completions, &cq, &context), "ibv_get_cq_event");
  ibv_ack_cq_events(cq, 1);
  check_ibv(ibv_req_notify_cq(cq, 0), "ibv_req_notify_cq");
}

// Takes one completion out of the queue. POLL asks until there is one. SLEEP asks once and then
// sleeps; it needs a notification that was requested before, see play_round().
static struct ibv_wc next_completion(struct side* side, enum wait_mode mode) {
  struct ibv_wc completion;
  int found;
  while ((found = ibv_poll_cq(side->cq, 1, &completion)) == 0) {
    if (mode == SLEEP) sleep_on_channel(side);
  }
  if (found < 0) die("ibv_poll_cq", EIO);
  if (completion.status != IBV_WC_SUCCESS) {
    fprintf(stderr, "%s: work request %llu failed: %s\n", side->name,
            (unsigned long long)completion.wr_id, ibv_wc_status_str(completion.status));
    exit(EXIT_FAILURE);
  }
  return completion;
}

// The completion of the other side's write: its receive is used up, the data is in our memory.
static void print_what_was_written(struct side* side, const struct ibv_wc* completion) {
  uint32_t bytes = ntohl(completion->imm_data);
  if (!(completion->wc_flags & IBV_WC_WITH_IMM) || bytes == 0 || bytes > BUFFER_BYTES) {
    fprintf(stderr, "%s: no usable immediate data\n", side->name);
    exit(EXIT_FAILURE);
  }
  printf("%s: %-28s immediate %u, so %u bytes: \"%.*s\"\n", side->name, "our memory was written",
         bytes, bytes, (int)strnlen(side->target, bytes), side->target);
  fflush(stdout);
}

// Waits until `writes` of ours are complete and `announcements` of the other's have come.
static void wait_for(struct side* side, enum wait_mode mode, int writes, int announcements) {
  while (writes > 0 || announcements > 0) {
    struct ibv_wc completion = next_completion(side, mode);
    if (completion.opcode == IBV_WC_RECV_RDMA_WITH_IMM) {
      print_what_was_written(side, &completion);
      --announcements;
    } else if (completion.opcode == IBV_WC_RDMA_WRITE) {
      say(side, "write completed", "our source buffer may be used again");
      --writes;
    }
  }
}

static void play_round(struct side* side, enum wait_mode mode, int we_begin) {
  say(side, mode == POLL ? "round 1: polling" : "round 2: events", "");
  // A channel reports only what comes after it was asked. What came before is in the queue, and
  // next_completion() looks there first: so nothing is missed, whichever came first.
  if (mode == SLEEP) check_ibv(ibv_req_notify_cq(side->cq, 0), "ibv_req_notify_cq");

  const char* text = mode == POLL ? "written in round 1" : "written in round 2";
  if (!we_begin) wait_for(side, mode, 0, 1);
  write_to_other(side, text);
  wait_for(side, mode, 1, we_begin ? 1 : 0);
}

// ---- The two programs ---------------------------------------------------------------------------

static void server(struct sockaddr* address) {
  static struct side side = {.name = "server"};
  side.events = check_pointer(rdma_create_event_channel(), "rdma_create_event_channel");
  check_rdma(rdma_create_id(side.events, &side.listener, NULL, RDMA_PS_TCP), "rdma_create_id");
  check_rdma(rdma_bind_addr(side.listener, address), "rdma_bind_addr");
  check_rdma(rdma_listen(side.listener, 1), "rdma_listen");
  say(&side, "rdma_listen", "waiting for a client");

  side.id = expect_event(&side, RDMA_CM_EVENT_CONNECT_REQUEST, 1);
  build_resources(&side);
  struct buffer_note note;
  struct rdma_conn_param parameters = describe_target(&side, &note);
  check_rdma(rdma_accept(side.id, &parameters), "rdma_accept");
  expect_event(&side, RDMA_CM_EVENT_ESTABLISHED, 0);

  play_round(&side, POLL, 0);
  play_round(&side, SLEEP, 0);

  expect_event(&side, RDMA_CM_EVENT_DISCONNECTED, 0);
  check_rdma(rdma_disconnect(side.id), "rdma_disconnect");
  destroy_resources(&side);
}

static void client(struct sockaddr* address) {
  static struct side side = {.name = "client"};
  side.events = check_pointer(rdma_create_event_channel(), "rdma_create_event_channel");
  check_rdma(rdma_create_id(side.events, &side.id, NULL, RDMA_PS_TCP), "rdma_create_id");
  check_rdma(rdma_resolve_addr(side.id, NULL, address, TIMEOUT_MS), "rdma_resolve_addr");
  expect_event(&side, RDMA_CM_EVENT_ADDR_RESOLVED, 0);
  check_rdma(rdma_resolve_route(side.id, TIMEOUT_MS), "rdma_resolve_route");
  expect_event(&side, RDMA_CM_EVENT_ROUTE_RESOLVED, 0);

  build_resources(&side);
  struct buffer_note note;
  struct rdma_conn_param parameters = describe_target(&side, &note);
  check_rdma(rdma_connect(side.id, &parameters), "rdma_connect");
  expect_event(&side, RDMA_CM_EVENT_ESTABLISHED, 1);

  play_round(&side, POLL, 1);
  play_round(&side, SLEEP, 1);

  check_rdma(rdma_disconnect(side.id), "rdma_disconnect");
  expect_event(&side, RDMA_CM_EVENT_DISCONNECTED, 0);
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
