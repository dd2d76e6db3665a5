// SPDX-License-Identifier: MIT
// A stream of messages over libfabric's udp;ofi_rxd provider, reliable datagrams in user space over
// UDP: what RoCEv2's bandwidth and message rate are compared with. Both ends ask their completion
// queue without pause.
//
//   bench_fabric_rdm_peer PORT BYTES WINDOW                    server: receives until it is ended
//   bench_fabric_rdm_peer PORT BYTES WINDOW ADDRESS SECONDS    client: prints messages per second
//
// The server listens on the TCP port of the same number when it is ready, and for nothing else.
#include <netinet/in.h>
#include <rdma/fabric.h>
#include <rdma/fi_cm.h>
#include <rdma/fi_domain.h>
#include <rdma/fi_endpoint.h>
#include <rdma/fi_errno.h>
#include <sys/socket.h>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <vector>

namespace {

using Clock = std::chrono::steady_clock;

void check(ssize_t result, const char* what) {
  if (result >= 0) return;
  std::fprintf(stderr, "bench_fabric_rdm_peer: %s: %s\n", what,
               fi_strerror(static_cast<int>(-result)));
  std::_Exit(1);
}

fi_info* find(const char* address, const char* port) {
  fi_info* hints = fi_allocinfo();
  hints->ep_attr->type = FI_EP_RDM;
  hints->caps = FI_MSG;
  hints->mode = 0;
  hints->domain_attr->mr_mode = FI_MR_LOCAL | FI_MR_ALLOCATED | FI_MR_VIRT_ADDR | FI_MR_PROV_KEY;
  hints->fabric_attr->prov_name = strdup("udp;ofi_rxd");
  fi_info* info = nullptr;
  const std::uint64_t flags = address == nullptr ? FI_SOURCE : 0;
  check(fi_getinfo(FI_VERSION(1, 9), address == nullptr ? "127.0.0.1" : address, port, flags, hints,
                   &info),
        "fi_getinfo");
  fi_freeinfo(hints);
  return info;
}

/// One end, with `window` buffers of `bytes`.
class End {
 public:
  End(fi_info* info, std::size_t bytes, std::size_t window)
      : bytes_(bytes), memory_(window * bytes, 'x') {
    check(fi_fabric(info->fabric_attr, &fabric_, nullptr), "fi_fabric");
    check(fi_domain(fabric_, info, &domain_, nullptr), "fi_domain");
    fi_cq_attr queue{};
    queue.format = FI_CQ_FORMAT_CONTEXT;
    queue.size = 4 * window;
    check(fi_cq_open(domain_, &queue, &queue_, nullptr), "fi_cq_open");
    fi_av_attr addresses{};
    addresses.type = FI_AV_TABLE;
    check(fi_av_open(domain_, &addresses, &addresses_, nullptr), "fi_av_open");
    check(fi_mr_reg(domain_, memory_.data(), memory_.size(), FI_SEND | FI_RECV, 0, 0, 0, &region_,
                    nullptr),
          "fi_mr_reg");
    check(fi_endpoint(domain_, info, &endpoint_, nullptr), "fi_endpoint");
    check(fi_ep_bind(endpoint_, &queue_->fid, FI_SEND | FI_RECV), "fi_ep_bind");
    check(fi_ep_bind(endpoint_, &addresses_->fid, 0), "fi_ep_bind");
    check(fi_enable(endpoint_), "fi_enable");
  }

  fi_addr_t peer(const void* address) const {
    fi_addr_t peer = FI_ADDR_UNSPEC;
    if (fi_av_insert(addresses_, address, 1, &peer, 0, nullptr) != 1) check(-FI_EINVAL, "insert");
    return peer;
  }
  void receive(std::size_t slot) {
    while (true) {
      const ssize_t rc =
          fi_recv(endpoint_, at(slot), bytes_, fi_mr_desc(region_), FI_ADDR_UNSPEC, context(slot));
      if (rc != -FI_EAGAIN) return check(rc, "fi_recv");
      progress();
    }
  }
  void send(std::size_t slot, fi_addr_t to) {
    while (true) {
      const ssize_t rc =
          fi_send(endpoint_, at(slot), bytes_, fi_mr_desc(region_), to, context(slot));
      if (rc != -FI_EAGAIN) return check(rc, "fi_send");
      progress();
    }
  }
  /// Waits, asking without pause, for a completion; its slot.
  std::size_t completed() {
    fi_cq_entry entry{};
    for (;;) {
      const ssize_t got = fi_cq_read(queue_, &entry, 1);
      if (got == 1) return reinterpret_cast<std::uintptr_t>(entry.op_context) - 1;
      if (got != -FI_EAGAIN) check(got, "fi_cq_read");
    }
  }

 private:
  char* at(std::size_t slot) { return memory_.data() + slot * bytes_; }
  static void* context(std::size_t slot) { return reinterpret_cast<void*>(slot + 1); }
  void progress() const { fi_cq_read(queue_, nullptr, 0); }

  std::size_t bytes_;
  std::vector<char> memory_;
  fid_fabric* fabric_ = nullptr;
  fid_domain* domain_ = nullptr;
  fid_cq* queue_ = nullptr;
  fid_av* addresses_ = nullptr;
  fid_mr* region_ = nullptr;
  fid_ep* endpoint_ = nullptr;
};

void say_ready(std::uint16_t port) {
  const int listener = socket(AF_INET, SOCK_STREAM, 0);
  const int on = 1;
  setsockopt(listener, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
  sockaddr_in name{};
  name.sin_family = AF_INET;
  name.sin_port = htons(port);
  if (bind(listener, reinterpret_cast<const sockaddr*>(&name), sizeof name) != 0 ||
      listen(listener, 1) != 0) {
    check(-FI_EADDRINUSE, "listen");
  }
}

[[noreturn]] void serve(const char* port, std::size_t bytes, std::size_t window) {
  End end(find(nullptr, port), bytes, window);
  for (std::size_t slot = 0; slot < window; ++slot) end.receive(slot);
  say_ready(static_cast<std::uint16_t>(std::stoul(port)));
  while (true) end.receive(end.completed());
}

double stream_to(const char* address, const char* port, std::size_t bytes, std::size_t window,
                 double seconds) {
  fi_info* info = find(address, port);
  End end(info, bytes, window);
  const fi_addr_t peer = end.peer(info->dest_addr);
  // The first one finds the peer.
  end.send(0, peer);
  (void)end.completed();
  const auto start = Clock::now();
  const auto limit = start + std::chrono::duration<double>(seconds);
  for (std::size_t slot = 0; slot < window; ++slot) end.send(slot, peer);
  std::uint64_t sent = 0;
  for (; Clock::now() < limit; ++sent) end.send(end.completed(), peer);
  return static_cast<double>(sent) / std::chrono::duration<double>(Clock::now() - start).count();
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 4 && argc != 6) {
    std::fprintf(stderr, "usage: bench_fabric_rdm_peer PORT BYTES WINDOW [ADDRESS SECONDS]\n");
    return 2;
  }
  const std::size_t bytes = std::stoul(argv[2]);
  const std::size_t window = std::max(std::stoul(argv[3]), 1ul);
  if (argc == 4) serve(argv[1], bytes, window);
  std::printf("%.1f\n", stream_to(argv[4], argv[1], bytes, window, std::stod(argv[5])));
  std::fflush(stdout);
  std::_Exit(0);
}
