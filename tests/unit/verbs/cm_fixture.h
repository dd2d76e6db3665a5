// SPDX-License-Identifier: MIT
// Both ends of connections over loopback, inside one program.
#pragma once

#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <stdlib.h>

#include <cstring>
#include <string>
#include <utility>

#include "verbs/cm_api.h"

namespace airdma::cm {

template <class T>
int code_of(const Result<T>& result) {
  return result ? 0 : result.error().code;
}

/// An event by value; `type` is -1 when none came.
struct Seen {
  int type = -1;
  int status = 0;
  rdma_cm_id* id = nullptr;
  rdma_cm_id* listen_id = nullptr;
  int responder_resources = 0;
  int initiator_depth = 0;
  std::string private_data;
};

class EventChannel {
 public:
  EventChannel() : channel_(create_event_channel().value()) {}
  ~EventChannel() { destroy_event_channel(channel_); }
  EventChannel(const EventChannel&) = delete;
  EventChannel& operator=(const EventChannel&) = delete;

  [[nodiscard]] rdma_event_channel* get() const { return channel_; }
  [[nodiscard]] bool readable(int timeout_ms = 0) const {
    pollfd entry{channel_->fd, POLLIN, 0};
    return ::poll(&entry, 1, timeout_ms) == 1;
  }
  /// Waits as long as a broken program may take to be noticed.
  rdma_cm_event* fetch() {
    if (!readable(20'000)) return nullptr;
    rdma_cm_event* event = nullptr;
    EXPECT_TRUE(get_cm_event(channel_, &event));
    return event;
  }
  Seen next() {
    rdma_cm_event* event = fetch();
    if (event == nullptr) return {};
    const rdma_conn_param& conn = event->param.conn;
    Seen seen{event->event,
              event->status,
              event->id,
              event->listen_id,
              conn.responder_resources,
              conn.initiator_depth,
              std::string(static_cast<const char*>(conn.private_data), conn.private_data_len)};
    EXPECT_TRUE(ack_cm_event(event));
    return seen;
  }

 private:
  rdma_event_channel* channel_;
};

inline sockaddr_storage address(const char* text, std::uint16_t port = 0) {
  sockaddr_storage storage{};
  auto& v4 = reinterpret_cast<sockaddr_in&>(storage);
  auto& v6 = reinterpret_cast<sockaddr_in6&>(storage);
  if (::inet_pton(AF_INET, text, &v4.sin_addr) == 1) {
    v4.sin_family = AF_INET;
    v4.sin_port = htons(port);
  } else if (::inet_pton(AF_INET6, text, &v6.sin6_addr) == 1) {
    v6.sin6_family = AF_INET6;
    v6.sin6_port = htons(port);
  }
  return storage;
}
inline sockaddr* raw(sockaddr_storage& storage) { return reinterpret_cast<sockaddr*>(&storage); }

inline ibv_qp_init_attr small_qp() {
  ibv_qp_init_attr attr{};
  attr.cap = {.max_send_wr = 4,
              .max_recv_wr = 4,
              .max_send_sge = 1,
              .max_recv_sge = 1,
              .max_inline_data = 0};
  attr.qp_type = IBV_QPT_RC;
  return attr;
}

inline rdma_conn_param param(const std::string& data, std::uint8_t depth = 4) {
  rdma_conn_param result{};
  result.private_data = data.data();
  result.private_data_len = static_cast<std::uint8_t>(data.size());
  result.responder_resources = depth;
  result.initiator_depth = depth;
  return result;
}

/// As long as it lives, rdma_cm takes iWARP devices for addresses.
class PreferIwarp {
 public:
  PreferIwarp() { ::setenv("AIRDMA_CM", "iwarp", 1); }
  ~PreferIwarp() { ::unsetenv("AIRDMA_CM"); }
  PreferIwarp(const PreferIwarp&) = delete;
  PreferIwarp& operator=(const PreferIwarp&) = delete;
};

/// Over iWARP, where a test asks for nothing else.
class CmTest : public testing::Test {
 protected:
  static rdma_cm_id* new_id(const EventChannel& channel, void* context = nullptr) {
    rdma_cm_id* id = nullptr;
    EXPECT_TRUE(create_id(channel.get(), &id, context, RDMA_PS_TCP));
    return id;
  }
  static Status give_qp(rdma_cm_id* id) {
    auto attr = small_qp();
    return create_qp(id, nullptr, &attr);
  }
  static void drop(rdma_cm_id* id) {
    if (id == nullptr) return;
    destroy_qp(id);
    EXPECT_TRUE(destroy_id(id));
  }

  /// `server_` listens at `host`; its port is in port_.
  void start_listening(const char* host = "127.0.0.1", int backlog = 8) {
    listener_ = new_id(server_);
    auto local = address(host);
    ASSERT_TRUE(bind_addr(listener_, raw(local)));
    ASSERT_TRUE(listen(listener_, backlog));
    port_ = ntohs(get_src_port(listener_));
  }
  /// An id with a QP whose route to the listener is resolved.
  rdma_cm_id* new_client(EventChannel& channel, const char* host = "127.0.0.1") {
    rdma_cm_id* id = new_id(channel);
    auto peer = address(host, port_);
    EXPECT_EQ(code_of(resolve_addr(id, nullptr, raw(peer), 1000)), 0);
    EXPECT_EQ(channel.next().type, RDMA_CM_EVENT_ADDR_RESOLVED);
    EXPECT_TRUE(resolve_route(id, 1000));
    EXPECT_EQ(channel.next().type, RDMA_CM_EVENT_ROUTE_RESOLVED);
    EXPECT_EQ(code_of(give_qp(id)), 0);
    return id;
  }
  /// Up to the request at the passive side, in passive_.
  void request(const std::string& data = "") {
    client_ = new_client(client_channel_);
    auto wanted = param(data);
    ASSERT_TRUE(connect(client_, &wanted));
    const Seen seen = server_.next();
    ASSERT_EQ(seen.type, RDMA_CM_EVENT_CONNECT_REQUEST);
    passive_ = seen.id;
    ASSERT_TRUE(give_qp(passive_));
  }
  void establish_connection() {
    start_listening();
    request();
    ASSERT_TRUE(accept(passive_, nullptr));
    ASSERT_EQ(client_channel_.next().type, RDMA_CM_EVENT_ESTABLISHED);
    ASSERT_EQ(server_.next().type, RDMA_CM_EVENT_ESTABLISHED);
  }

  void TearDown() override {
    drop(std::exchange(passive_, nullptr));
    drop(std::exchange(client_, nullptr));
    drop(std::exchange(listener_, nullptr));
  }

  PreferIwarp iwarp_;
  EventChannel server_;
  EventChannel client_channel_;
  rdma_cm_id* listener_ = nullptr;
  rdma_cm_id* client_ = nullptr;
  rdma_cm_id* passive_ = nullptr;
  std::uint16_t port_ = 0;
};

}  // namespace airdma::cm
