// SPDX-License-Identifier: MIT
// Moves data between two hosts over a reliable connection and compares every byte. It uses nothing
// but verbs, and a TCP connection on which the two say who they are and take turns, so that it runs
// over any RDMA device, in the kernel's guest as well as over airdma.
//
//   bulk DEVICE GID_INDEX send|write|read MEBIBYTES PORT [SERVER]
//
// Each MiB is cut into work requests of irregular lengths, the same at both sides.
#include <arpa/inet.h>
#include <infiniband/verbs.h>
#include <netdb.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

enum { kChunk = 1 << 20, kWords = kChunk / 8, kMostPieces = 64, kPsn = 0xfffff0 };

struct Peer {
  uint32_t qpn;
  uint32_t rkey;
  uint64_t addr;
  union ibv_gid gid;
};

struct Piece {
  uint32_t offset;
  uint32_t length;
};

static struct ibv_context* context;
static struct ibv_pd* pd;
static struct ibv_cq* cq;
static struct ibv_qp* qp;
static struct ibv_mr* mr;
static uint64_t* memory;
static int control = -1;

static void check(int ok, const char* what) {
  if (ok) return;
  fprintf(stderr, "bulk: %s failed\n", what);
  exit(1);
}

// splitmix64: each word differs from its neighbours and from the same word of another chunk.
static uint64_t word(uint64_t index) {
  uint64_t z = (index + 1) * 0x9e3779b97f4a7c15u;
  z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
  z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
  return z ^ (z >> 31);
}

static void fill(uint64_t chunk) {
  for (uint64_t i = 0; i < kWords; ++i) memory[i] = word(chunk * kWords + i);
}

static void compare(uint64_t chunk) {
  for (uint64_t i = 0; i < kWords; ++i) {
    if (memory[i] == word(chunk * kWords + i)) continue;
    fprintf(stderr, "bulk: chunk %lu differs at byte %lu\n", (unsigned long)chunk,
            (unsigned long)(8 * i));
    exit(1);
  }
}

static int cut(uint64_t chunk, struct Piece* pieces) {
  int count = 0;
  uint32_t offset = 0;
  while (offset < kChunk) {
    uint32_t length = 1 + (uint32_t)(word(chunk + (uint64_t)count * 77) % 100000);
    if (length > kChunk - offset || count == kMostPieces - 1) length = kChunk - offset;
    pieces[count++] = (struct Piece){offset, length};
    offset += length;
  }
  return count;
}

static void open_device(const char* name) {
  struct ibv_device** list = ibv_get_device_list(NULL);
  check(list != NULL, "ibv_get_device_list");
  for (struct ibv_device** device = list; *device != NULL; ++device) {
    if (strcmp(ibv_get_device_name(*device), name) == 0) context = ibv_open_device(*device);
  }
  ibv_free_device_list(list);
  check(context != NULL, "opening the device");
  memory = aligned_alloc(4096, kChunk);
  check(memory != NULL, "aligned_alloc");
  pd = ibv_alloc_pd(context);
  check(pd != NULL, "ibv_alloc_pd");
  mr = ibv_reg_mr(pd, memory, kChunk,
                  IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ);
  check(mr != NULL, "ibv_reg_mr");
  cq = ibv_create_cq(context, 2 * kMostPieces, NULL, NULL, 0);
  check(cq != NULL, "ibv_create_cq");
  struct ibv_qp_init_attr attr = {.send_cq = cq,
                                  .recv_cq = cq,
                                  .qp_type = IBV_QPT_RC,
                                  .sq_sig_all = 1,
                                  .cap = {.max_send_wr = kMostPieces,
                                          .max_recv_wr = kMostPieces,
                                          .max_send_sge = 1,
                                          .max_recv_sge = 1}};
  qp = ibv_create_qp(pd, &attr);
  check(qp != NULL, "ibv_create_qp");
}

static void connect_qp(const struct Peer* peer, uint8_t gid_index) {
  struct ibv_port_attr port;
  check(ibv_query_port(context, 1, &port) == 0, "ibv_query_port");
  struct ibv_qp_attr attr = {
      .qp_state = IBV_QPS_INIT,
      .port_num = 1,
      .qp_access_flags = IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ,
  };
  int mask = IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS;
  check(ibv_modify_qp(qp, &attr, mask) == 0, "INIT");
  attr = (struct ibv_qp_attr){
      .qp_state = IBV_QPS_RTR,
      .path_mtu = port.active_mtu,
      .dest_qp_num = peer->qpn,
      .rq_psn = kPsn,
      .max_dest_rd_atomic = 4,
      .min_rnr_timer = 12,
      .ah_attr = {.is_global = 1,
                  .port_num = 1,
                  .grh = {.dgid = peer->gid, .sgid_index = gid_index, .hop_limit = 64}}};
  mask = IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN |
         IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER;
  check(ibv_modify_qp(qp, &attr, mask) == 0, "RTR");
  attr = (struct ibv_qp_attr){.qp_state = IBV_QPS_RTS,
                              .timeout = 16,
                              .retry_cnt = 7,
                              .rnr_retry = 7,
                              .sq_psn = kPsn,
                              .max_rd_atomic = 4};
  mask = IBV_QP_STATE | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_SQ_PSN |
         IBV_QP_MAX_QP_RD_ATOMIC;
  check(ibv_modify_qp(qp, &attr, mask) == 0, "RTS");
}

static int accept_one(const char* port) {
  const int one = 1;
  const int listener = socket(AF_INET6, SOCK_STREAM, 0);
  check(listener >= 0, "socket");
  setsockopt(listener, SOL_SOCKET, SO_REUSEADDR, &one, sizeof one);
  struct sockaddr_in6 any = {.sin6_family = AF_INET6, .sin6_port = htons((uint16_t)atoi(port))};
  check(bind(listener, (struct sockaddr*)&any, sizeof any) == 0, "bind");
  check(listen(listener, 1) == 0, "listen");
  const int fd = accept(listener, NULL, NULL);
  close(listener);
  return fd;
}

static int connect_to(const char* host, const char* port) {
  struct addrinfo* found;
  const struct addrinfo hints = {.ai_socktype = SOCK_STREAM, .ai_flags = AI_NUMERICHOST};
  check(getaddrinfo(host, port, &hints, &found) == 0, "getaddrinfo");
  const int fd = socket(found->ai_family, SOCK_STREAM, 0);
  check(fd >= 0 && connect(fd, found->ai_addr, found->ai_addrlen) == 0, "connect");
  freeaddrinfo(found);
  return fd;
}

static void give_turn(void) { check(write(control, "t", 1) == 1, "telling the peer"); }

static void take_turn(void) {
  char turn;
  check(read(control, &turn, 1) == 1, "hearing from the peer");
}

static struct Peer exchange(uint8_t gid_index) {
  struct Peer mine = {.qpn = qp->qp_num, .rkey = mr->rkey, .addr = (uintptr_t)memory};
  struct Peer its;
  check(ibv_query_gid(context, 1, gid_index, &mine.gid) == 0, "ibv_query_gid");
  check(write(control, &mine, sizeof mine) == (ssize_t)sizeof mine, "telling the peer who we are");
  check(recv(control, &its, sizeof its, MSG_WAITALL) == (ssize_t)sizeof its, "meeting the peer");
  return its;
}

static void await_completions(int count) {
  while (count > 0) {
    struct ibv_wc wc;
    const int got = ibv_poll_cq(cq, 1, &wc);
    check(got >= 0, "ibv_poll_cq");
    if (got == 0) continue;
    if (wc.status != IBV_WC_SUCCESS) {
      fprintf(stderr, "bulk: completion with %s\n", ibv_wc_status_str(wc.status));
      exit(1);
    }
    --count;
  }
}

static struct ibv_sge sge_of(const struct Piece* piece) {
  return (struct ibv_sge){
      .addr = (uintptr_t)memory + piece->offset, .length = piece->length, .lkey = mr->lkey};
}

static void post_sends(const struct Piece* pieces, int count, enum ibv_wr_opcode opcode,
                       const struct Peer* peer) {
  for (int i = 0; i < count; ++i) {
    struct ibv_sge sge = sge_of(&pieces[i]);
    struct ibv_send_wr wr = {.sg_list = &sge, .num_sge = 1, .opcode = opcode};
    struct ibv_send_wr* bad;
    wr.wr.rdma.remote_addr = peer->addr + pieces[i].offset;
    wr.wr.rdma.rkey = peer->rkey;
    check(ibv_post_send(qp, &wr, &bad) == 0, "ibv_post_send");
  }
}

static void post_receives(const struct Piece* pieces, int count) {
  for (int i = 0; i < count; ++i) {
    struct ibv_sge sge = sge_of(&pieces[i]);
    struct ibv_recv_wr wr = {.sg_list = &sge, .num_sge = 1};
    struct ibv_recv_wr* bad;
    check(ibv_post_recv(qp, &wr, &bad) == 0, "ibv_post_recv");
  }
}

static void serve(enum ibv_wr_opcode opcode, uint64_t chunks) {
  struct Piece pieces[kMostPieces];
  for (uint64_t chunk = 0; chunk < chunks; ++chunk) {
    const int count = cut(chunk, pieces);
    if (opcode == IBV_WR_RDMA_READ) fill(chunk);
    if (opcode != IBV_WR_RDMA_READ) memset(memory, 0, kChunk);
    if (opcode == IBV_WR_SEND) post_receives(pieces, count);
    give_turn();
    take_turn();
    if (opcode == IBV_WR_SEND) await_completions(count);
    if (opcode != IBV_WR_RDMA_READ) compare(chunk);
  }
  give_turn();
}

static void request(enum ibv_wr_opcode opcode, uint64_t chunks, const struct Peer* peer) {
  struct Piece pieces[kMostPieces];
  for (uint64_t chunk = 0; chunk < chunks; ++chunk) {
    const int count = cut(chunk, pieces);
    if (opcode != IBV_WR_RDMA_READ) fill(chunk);
    if (opcode == IBV_WR_RDMA_READ) memset(memory, 0, kChunk);
    take_turn();
    post_sends(pieces, count, opcode, peer);
    await_completions(count);
    if (opcode == IBV_WR_RDMA_READ) compare(chunk);
    give_turn();
  }
  take_turn();
}

int main(int argc, char** argv) {
  if (argc < 6) {
    fprintf(stderr, "usage: bulk DEVICE GID_INDEX send|write|read MEBIBYTES PORT [SERVER]\n");
    return 2;
  }
  const uint8_t gid_index = (uint8_t)atoi(argv[2]);
  const enum ibv_wr_opcode opcode = strcmp(argv[3], "send") == 0    ? IBV_WR_SEND
                                    : strcmp(argv[3], "write") == 0 ? IBV_WR_RDMA_WRITE
                                                                    : IBV_WR_RDMA_READ;
  const uint64_t chunks = (uint64_t)atoll(argv[4]);
  open_device(argv[1]);
  control = argc > 6 ? connect_to(argv[6], argv[5]) : accept_one(argv[5]);
  check(control >= 0, "the control connection");
  const struct Peer peer = exchange(gid_index);
  connect_qp(&peer, gid_index);
  if (argc > 6) {
    request(opcode, chunks, &peer);
  } else {
    serve(opcode, chunks);
  }
  printf("bulk: %s of %lu MiB, every byte right\n", argv[3], (unsigned long)chunks);
  ibv_destroy_qp(qp);
  ibv_destroy_cq(cq);
  ibv_dereg_mr(mr);
  ibv_dealloc_pd(pd);
  ibv_close_device(context);
  close(control);
  free(memory);
  return 0;
}
