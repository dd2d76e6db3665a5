// SPDX-License-Identifier: MIT
// A stream of messages over libfabric's tcp provider: what airdma's bandwidth is compared with, as
// fi_pingpong has only one message under way. Both ends ask their completion queue without pause,
// and up to kWindow messages are outstanding.
//
//   bench_fabric_peer PORT BYTES                     server: receives until the client is done
//   bench_fabric_peer PORT BYTES ADDRESS SECONDS     client: prints GB/s (decimal)
#include <rdma/fabric.h>
#include <rdma/fi_cm.h>
#include <rdma/fi_domain.h>
#include <rdma/fi_endpoint.h>
#include <rdma/fi_eq.h>
#include <rdma/fi_errno.h>

#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <vector>

namespace {

using Clock = std::chrono::steady_clock;

constexpr std::size_t kWindow = 16;

void check(ssize_t result, const char* what) {
  if (result >= 0) return;
  std::fprintf(stderr, "bench_fabric_peer: %s: %s\n", what, fi_strerror(static_cast<int>(-result)));
  std::_Exit(1);
}

fi_info* find(const char* address, const char* port) {
  fi_info* hints = fi_allocinfo();
  hints->ep_attr->type = FI_EP_MSG;
  hints->caps = FI_MSG;
  hints->mode = 0;
  hints->domain_attr->mr_mode = FI_MR_LOCAL | FI_MR_ALLOCATED | FI_MR_VIRT_ADDR | FI_MR_PROV_KEY;
  hints->fabric_attr->prov_name = strdup("tcp");
  fi_info* info = nullptr;
  check(
      fi_getinfo(FI_VERSION(1, 9), address, port, address == nullptr ? FI_SOURCE : 0, hints, &info),
      "fi_getinfo");
  fi_freeinfo(hints);
  return info;
}

/// One end of a connection with `kWindow` buffers of `bytes`.
class Stream {
 public:
  Stream(fid_fabric* fabric, fid_eq* events, fi_info* info, std::size_t bytes)
      : events_(events), bytes_(bytes), memory_(kWindow * bytes, 'x') {
    check(fi_domain(fabric, info, &domain_, nullptr), "fi_domain");
    fi_cq_attr attributes{};
    attributes.format = FI_CQ_FORMAT_CONTEXT;
    attributes.size = 4 * kWindow;
    check(fi_cq_open(domain_, &attributes, &queue_, nullptr), "fi_cq_open");
    check(fi_mr_reg(domain_, memory_.data(), memory_.size(), FI_SEND | FI_RECV, 0, 0, 0, &region_,
                    nullptr),
          "fi_mr_reg");
    check(fi_endpoint(domain_, info, &endpoint_, nullptr), "fi_endpoint");
    check(fi_ep_bind(endpoint_, &events->fid, 0), "fi_ep_bind");
    check(fi_ep_bind(endpoint_, &queue_->fid, FI_SEND | FI_RECV), "fi_ep_bind");
    check(fi_enable(endpoint_), "fi_enable");
  }

  fid_ep* endpoint() const { return endpoint_; }

  void wait_until_connected() const {
    std::uint32_t event = 0;
    fi_eq_cm_entry entry{};
    check(fi_eq_sread(events_, &event, &entry, sizeof entry, -1, 0), "fi_eq_sread");
    if (event != FI_CONNECTED) check(-FI_ECONNREFUSED, "connection");
  }

  void receive(std::size_t slot) {
    while (true) {
      const ssize_t rc =
          fi_recv(endpoint_, at(slot), bytes_, fi_mr_desc(region_), 0, context(slot));
      if (rc != -FI_EAGAIN) return check(rc, "fi_recv");
      progress();
    }
  }

  void send(std::size_t slot, std::size_t bytes) {
    while (true) {
      const ssize_t rc = fi_send(endpoint_, at(slot), bytes, fi_mr_desc(region_), 0, context(slot));
      if (rc != -FI_EAGAIN) return check(rc, "fi_send");
      progress();
    }
  }

  /// Waits, asking without pause, for a completion; its slot. False at the end of the stream.
  bool completed(std::size_t& slot) {
    fi_cq_entry entry{};
    for (;;) {
      const ssize_t got = fi_cq_read(queue_, &entry, 1);
      if (got == 1) break;
      if (got == -FI_EAVAIL) return false;
      if (got != -FI_EAGAIN) check(got, "fi_cq_read");
    }
    slot = reinterpret_cast<std::uintptr_t>(entry.op_context) - 1;
    return true;
  }

 private:
  char* at(std::size_t slot) { return memory_.data() + slot * bytes_; }
  static void* context(std::size_t slot) { return reinterpret_cast<void*>(slot + 1); }
  void progress() const { fi_cq_read(queue_, nullptr, 0); }

  fid_eq* events_;
  std::size_t bytes_;
  std::vector<char> memory_;
  fid_domain* domain_ = nullptr;
  fid_cq* queue_ = nullptr;
  fid_mr* region_ = nullptr;
  fid_ep* endpoint_ = nullptr;
};

fid_fabric* open_fabric(fi_info* info, fid_eq** events) {
  fid_fabric* fabric = nullptr;
  check(fi_fabric(info->fabric_attr, &fabric, nullptr), "fi_fabric");
  fi_eq_attr attributes{};
  attributes.wait_obj = FI_WAIT_UNSPEC;
  check(fi_eq_open(fabric, &attributes, events, nullptr), "fi_eq_open");
  return fabric;
}

/// Receives until the client goes.
void serve(const char* port, std::size_t bytes) {
  fi_info* info = find(nullptr, port);
  fid_eq* events = nullptr;
  fid_fabric* fabric = open_fabric(info, &events);
  fid_pep* listener = nullptr;
  check(fi_passive_ep(fabric, info, &listener, nullptr), "fi_passive_ep");
  check(fi_pep_bind(listener, &events->fid, 0), "fi_pep_bind");
  check(fi_listen(listener), "fi_listen");
  std::uint32_t event = 0;
  fi_eq_cm_entry entry{};
  check(fi_eq_sread(events, &event, &entry, sizeof entry, -1, 0), "fi_eq_sread");
  Stream stream(fabric, events, entry.info, bytes);
  for (std::size_t slot = 0; slot < kWindow; ++slot) stream.receive(slot);
  check(fi_accept(stream.endpoint(), nullptr, 0), "fi_accept");
  stream.wait_until_connected();
  std::size_t slot = 0;
  while (stream.completed(slot)) stream.receive(slot);
}

double stream_to(const char* address, const char* port, std::size_t bytes, double seconds) {
  fi_info* info = find(address, port);
  fid_eq* events = nullptr;
  fid_fabric* fabric = open_fabric(info, &events);
  Stream stream(fabric, events, info, bytes);
  check(fi_connect(stream.endpoint(), info->dest_addr, nullptr, 0), "fi_connect");
  stream.wait_until_connected();
  const auto start = Clock::now();
  const auto end = start + std::chrono::duration<double>(seconds);
  for (std::size_t slot = 0; slot < kWindow; ++slot) stream.send(slot, bytes);
  std::uint64_t sent = 0;
  for (std::size_t slot = 0; Clock::now() < end; ++sent) {
    if (!stream.completed(slot)) check(-FI_EIO, "stream");
    stream.send(slot, bytes);
  }
  const double gigabytes = static_cast<double>(sent * bytes) / 1e9;
  return gigabytes / std::chrono::duration<double>(Clock::now() - start).count();
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 3 && argc != 5) {
    std::fprintf(stderr, "usage: bench_fabric_peer PORT BYTES [ADDRESS SECONDS]\n");
    return 2;
  }
  const std::size_t bytes = std::stoul(argv[2]);
  if (argc == 3) {
    serve(argv[1], bytes);
  } else {
    std::printf("%.4f\n", stream_to(argv[3], argv[1], bytes, std::stod(argv[4])));
    std::fflush(stdout);
  }
  std::_Exit(0);
}
