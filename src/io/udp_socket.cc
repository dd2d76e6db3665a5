// SPDX-License-Identifier: MIT
#include "io/udp_socket.h"

#include <linux/filter.h>
#include <netinet/in.h>
#include <netinet/udp.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

#include "io/raw_calls.h"

#ifndef UDP_SEGMENT
#define UDP_SEGMENT 103
#endif
#ifndef UDP_GRO
#define UDP_GRO 104
#endif
#ifndef UDP_NO_CHECK6_RX
#define UDP_NO_CHECK6_RX 102
#endif
#ifndef IPV6_MULTICAST_ALL
#define IPV6_MULTICAST_ALL 29
#endif
#ifndef IPV6_FLOWINFO
#define IPV6_FLOWINFO 11
#endif
#ifndef IPV6_FLOWINFO_SEND
#define IPV6_FLOWINFO_SEND 33
#endif

namespace airdma::io {
namespace {

// A window of some megabytes for the packets of many queue pairs; the kernel gives what its limit
// allows.
constexpr int kReceiveBuffer = 8 * 1024 * 1024;
constexpr int kSendBuffer = 4 * 1024 * 1024;
constexpr std::size_t kControlBytes = 192;

Status set_int(int fd, int level, int option, int value) {
  if (::setsockopt(fd, level, option, &value, sizeof value) < 0) return fail(errno, "setsockopt");
  return {};
}

// What an older kernel may not know and what is no condition of correct work.
void try_int(int fd, int level, int option, int value) {
  [[maybe_unused]] const Status status = set_int(fd, level, option, value);
}

Status prepare_v4(int fd) {
  if (auto status = set_int(fd, IPPROTO_IP, IP_MTU_DISCOVER, IP_PMTUDISC_DO); !status) {
    return status;
  }
  if (auto status = set_int(fd, IPPROTO_IP, IP_PKTINFO, 1); !status) return status;
  try_int(fd, IPPROTO_IP, IP_RECVTOS, 1);
  try_int(fd, IPPROTO_IP, IP_RECVTTL, 1);
  try_int(fd, IPPROTO_IP, IP_MULTICAST_ALL, 0);
  return {};
}

Status prepare_v6(int fd) {
  if (auto status = set_int(fd, IPPROTO_IPV6, IPV6_V6ONLY, 1); !status) return status;
  if (auto status = set_int(fd, IPPROTO_IPV6, IPV6_MTU_DISCOVER, IPV6_PMTUDISC_DO); !status) {
    return status;
  }
  if (auto status = set_int(fd, IPPROTO_IPV6, IPV6_RECVPKTINFO, 1); !status) return status;
  try_int(fd, IPPROTO_IPV6, IPV6_DONTFRAG, 1);
  try_int(fd, IPPROTO_IPV6, IPV6_RECVTCLASS, 1);
  try_int(fd, IPPROTO_IPV6, IPV6_RECVHOPLIMIT, 1);
  try_int(fd, IPPROTO_IPV6, IPV6_FLOWINFO, 1);
  try_int(fd, IPPROTO_IPV6, IPV6_FLOWINFO_SEND, 1);
  try_int(fd, IPPROTO_IPV6, IPV6_MULTICAST_ALL, 0);
  // The kernel's own RoCE driver sends checksum 0 over IPv6, too. The ICRC covers the packet.
  try_int(fd, IPPROTO_UDP, UDP_NO_CHECK6_RX, 1);
  return {};
}

void enlarge_buffers(int fd) {
  // The first is the privileged form, for a process that happens to be.
  if (!set_int(fd, SOL_SOCKET, SO_RCVBUFFORCE, kReceiveBuffer)) {
    try_int(fd, SOL_SOCKET, SO_RCVBUF, kReceiveBuffer);
  }
  try_int(fd, SOL_SOCKET, SO_SNDBUF, kSendBuffer);
}

template <class Value>
void add_control(std::span<std::byte> control, std::size_t& used, int level, int type,
                 const Value& value) {
  auto* const header = reinterpret_cast<cmsghdr*>(control.data() + used);
  *header = {};
  header->cmsg_level = level;
  header->cmsg_type = type;
  header->cmsg_len = CMSG_LEN(sizeof value);
  std::memcpy(CMSG_DATA(header), &value, sizeof value);
  used += CMSG_SPACE(sizeof value);
}

}  // namespace

UdpPath::UdpPath(const Fields& fields) : destination_(fields.destination) {
  if (destination_.family() == AF_INET) {
    in_pktinfo info{};
    info.ipi_ifindex = static_cast<int>(fields.interface_index);
    info.ipi_spec_dst = reinterpret_cast<const sockaddr_in*>(fields.source.raw())->sin_addr;
    add_control(control_, control_bytes_, IPPROTO_IP, IP_PKTINFO, info);
    add_control(control_, control_bytes_, IPPROTO_IP, IP_TOS, int{fields.traffic_class});
    if (fields.hop_limit != 0) {
      add_control(control_, control_bytes_, IPPROTO_IP, IP_TTL, int{fields.hop_limit});
    }
    return;
  }
  in6_pktinfo info{};
  info.ipi6_ifindex = fields.interface_index;
  info.ipi6_addr = reinterpret_cast<const sockaddr_in6*>(fields.source.raw())->sin6_addr;
  reinterpret_cast<sockaddr_in6*>(destination_.raw())->sin6_flowinfo = htonl(fields.flow_label);
  add_control(control_, control_bytes_, IPPROTO_IPV6, IPV6_PKTINFO, info);
  add_control(control_, control_bytes_, IPPROTO_IPV6, IPV6_TCLASS, int{fields.traffic_class});
  if (fields.hop_limit != 0) {
    add_control(control_, control_bytes_, IPPROTO_IPV6, IPV6_HOPLIMIT, int{fields.hop_limit});
  }
}

// --- UdpInbox ---

struct UdpInbox::Slots {
  struct Control {
    alignas(cmsghdr) std::array<std::byte, kControlBytes> bytes;
  };
  std::array<mmsghdr, kSlots> headers;
  std::array<iovec, kSlots> pieces;
  std::array<sockaddr_storage, kSlots> names;
  std::array<Control, kSlots> controls;
  alignas(64) std::array<std::byte, kSlots * kSlotBytes> memory;

  void prepare(std::size_t i) {
    pieces[i] = {memory.data() + i * kSlotBytes, kSlotBytes};
    headers[i].msg_len = 0;
    msghdr& header = headers[i].msg_hdr;
    header = {};
    header.msg_name = &names[i];
    header.msg_namelen = sizeof names[i];
    header.msg_iov = &pieces[i];
    header.msg_iovlen = 1;
    header.msg_control = controls[i].bytes.data();
    header.msg_controllen = kControlBytes;
  }
};

// Without a value: the pages of what is not used cost nothing.
UdpInbox::UdpInbox() : slots_(new Slots) {
  for (std::size_t i = 0; i < kSlots; ++i) slots_->prepare(i);
}
UdpInbox::~UdpInbox() = default;

// --- UdpSocket ---

Result<UdpSocket> UdpSocket::open(int family, std::uint16_t port, bool shared) {
  Fd fd(::socket(family, SOCK_DGRAM | SOCK_NONBLOCK | SOCK_CLOEXEC, IPPROTO_UDP));
  if (!fd) return fail(errno, "socket");
  if (shared) {
    if (auto status = set_int(fd.get(), SOL_SOCKET, SO_REUSEPORT, 1); !status) {
      return std::unexpected(status.error());
    }
  }
  const auto status = family == AF_INET ? prepare_v4(fd.get()) : prepare_v6(fd.get());
  if (!status) return std::unexpected(status.error());
  try_int(fd.get(), IPPROTO_UDP, UDP_GRO, 1);
  enlarge_buffers(fd.get());
  Address name = Address::any(family, port);
  if (::bind(fd.get(), name.raw(), name.length()) < 0) return fail(errno, "bind");
  socklen_t length = sizeof(sockaddr_storage);
  if (::getsockname(fd.get(), name.raw(), &length) < 0) return fail(errno, "getsockname");
  return UdpSocket(std::move(fd), family, name.port());
}

std::size_t UdpSocket::receive_buffer_bytes() const {
  int bytes = 0;
  socklen_t length = sizeof bytes;
  if (::getsockopt(fd_.get(), SOL_SOCKET, SO_RCVBUF, &bytes, &length) < 0) return 0;
  return static_cast<std::size_t>(bytes);
}

Result<std::size_t> UdpSocket::send(const UdpPath& path, std::span<const UdpMessage> messages) {
  struct Control {
    alignas(cmsghdr) std::array<std::byte, 128 + CMSG_SPACE(sizeof(std::uint16_t))> bytes;
  };
  std::array<mmsghdr, kMaxMessages> headers;
  std::array<Control, kMaxMessages> controls;
  const std::size_t count = std::min(messages.size(), kMaxMessages);
  for (std::size_t i = 0; i < count; ++i) {
    std::memcpy(controls[i].bytes.data(), path.control_.data(), path.control_bytes_);
    std::size_t used = path.control_bytes_;
    if (messages[i].segment_bytes != 0) {
      add_control(controls[i].bytes, used, IPPROTO_UDP, UDP_SEGMENT, messages[i].segment_bytes);
    }
    headers[i] = {};
    msghdr& header = headers[i].msg_hdr;
    header.msg_name = const_cast<sockaddr*>(path.destination_.raw());
    header.msg_namelen = path.destination_.length();
    header.msg_iov = messages[i].pieces.data();
    header.msg_iovlen = messages[i].pieces.size();
    header.msg_control = controls[i].bytes.data();
    header.msg_controllen = used;
  }
  for (;;) {
    const int sent = raw::send_messages(fd_.get(), headers.data(), static_cast<unsigned>(count),
                                        MSG_DONTWAIT | MSG_NOSIGNAL);
    if (sent > 0) return static_cast<std::size_t>(sent);
    if (sent < 0 && errno == EINTR) continue;
    return fail(sent < 0 ? errno : EAGAIN, "sendmmsg");
  }
}

namespace {

int control_int(const cmsghdr* header) {
  int value = 0;
  std::memcpy(&value, CMSG_DATA(header), std::min(sizeof value, header->cmsg_len - CMSG_LEN(0)));
  return value;
}

void read_v4(const cmsghdr* header, UdpArrival& arrival) {
  if (header->cmsg_type == IP_PKTINFO) {
    in_pktinfo info;
    std::memcpy(&info, CMSG_DATA(header), sizeof info);
    std::memcpy(arrival.destination.data() + 12, &info.ipi_addr, 4);
    arrival.interface_index = static_cast<unsigned>(info.ipi_ifindex);
  } else if (header->cmsg_type == IP_TOS) {  // one byte, unlike all others
    arrival.traffic_class = *CMSG_DATA(header);
  } else if (header->cmsg_type == IP_TTL) {
    arrival.hop_limit = static_cast<std::uint8_t>(control_int(header));
  }
}

void read_v6(const cmsghdr* header, UdpArrival& arrival) {
  if (header->cmsg_type == IPV6_PKTINFO) {
    in6_pktinfo info;
    std::memcpy(&info, CMSG_DATA(header), sizeof info);
    std::memcpy(arrival.destination.data(), &info.ipi6_addr, 16);
    arrival.interface_index = info.ipi6_ifindex;
  } else if (header->cmsg_type == IPV6_TCLASS) {
    arrival.traffic_class = static_cast<std::uint8_t>(control_int(header));
  } else if (header->cmsg_type == IPV6_HOPLIMIT) {
    arrival.hop_limit = static_cast<std::uint8_t>(control_int(header));
  } else if (header->cmsg_type == IPV6_FLOWINFO) {
    arrival.flow_label = ntohl(static_cast<std::uint32_t>(control_int(header))) & 0xfffffu;
  }
}

void read_source(const sockaddr_storage& name, UdpArrival& arrival) {
  if (name.ss_family == AF_INET) {
    const auto& in = reinterpret_cast<const sockaddr_in&>(name);
    arrival.source = {0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff};
    std::memcpy(arrival.source.data() + 12, &in.sin_addr, 4);
    arrival.source_port = ntohs(in.sin_port);
    arrival.destination = {0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff};
    return;
  }
  const auto& in6 = reinterpret_cast<const sockaddr_in6&>(name);
  std::memcpy(arrival.source.data(), &in6.sin6_addr, 16);
  arrival.source_port = ntohs(in6.sin6_port);
}

UdpArrival read_arrival(msghdr& header, Bytes data) {
  UdpArrival arrival{};
  arrival.data = data;
  arrival.segment_bytes = data.size();
  read_source(*static_cast<const sockaddr_storage*>(header.msg_name), arrival);
  for (const cmsghdr* item = CMSG_FIRSTHDR(&header); item != nullptr;
       item = CMSG_NXTHDR(&header, const_cast<cmsghdr*>(item))) {
    if (item->cmsg_level == IPPROTO_IP) {
      read_v4(item, arrival);
    } else if (item->cmsg_level == IPPROTO_IPV6) {
      read_v6(item, arrival);
    } else if (item->cmsg_level == IPPROTO_UDP && item->cmsg_type == UDP_GRO) {
      const int segment = control_int(item);
      if (segment > 0) arrival.segment_bytes = static_cast<std::size_t>(segment);
    }
  }
  return arrival;
}

}  // namespace

std::span<UdpArrival> UdpSocket::receive(UdpInbox& inbox, std::span<UdpArrival> arrivals) {
  UdpInbox::Slots& slots = *inbox.slots_;
  const std::size_t room = std::min(arrivals.size(), UdpInbox::kSlots);
  std::size_t whole = 0;
  while (whole == 0) {
    const int count = raw::receive_messages(fd_.get(), slots.headers.data(),
                                            static_cast<unsigned>(room), MSG_DONTWAIT);
    if (count <= 0) break;
    for (std::size_t i = 0; i < static_cast<std::size_t>(count); ++i) {
      msghdr& header = slots.headers[i].msg_hdr;
      const Bytes data(slots.memory.data() + i * UdpInbox::kSlotBytes, slots.headers[i].msg_len);
      if ((header.msg_flags & (MSG_TRUNC | MSG_CTRUNC)) == 0) {
        arrivals[whole++] = read_arrival(header, data);
      }
      slots.prepare(i);
    }
  }
  return arrivals.first(whole);
}

// --- Groups and steering ---

namespace {

Status change_membership(int fd, int v4_option, int v6_option, const Address& group,
                         unsigned interface_index) {
  int rc = 0;
  if (group.family() == AF_INET) {
    ip_mreqn request{};
    request.imr_multiaddr = reinterpret_cast<const sockaddr_in*>(group.raw())->sin_addr;
    request.imr_ifindex = static_cast<int>(interface_index);
    rc = ::setsockopt(fd, IPPROTO_IP, v4_option, &request, sizeof request);
  } else {
    ipv6_mreq request{};
    request.ipv6mr_multiaddr = reinterpret_cast<const sockaddr_in6*>(group.raw())->sin6_addr;
    request.ipv6mr_interface = interface_index;
    rc = ::setsockopt(fd, IPPROTO_IPV6, v6_option, &request, sizeof request);
  }
  if (rc < 0) return fail(errno, "setsockopt");
  return {};
}

}  // namespace

Status UdpSocket::join(const Address& group, unsigned interface_index) {
  return change_membership(fd_.get(), IP_ADD_MEMBERSHIP, IPV6_JOIN_GROUP, group, interface_index);
}

Status UdpSocket::leave(const Address& group, unsigned interface_index) {
  return change_membership(fd_.get(), IP_DROP_MEMBERSHIP, IPV6_LEAVE_GROUP, group, interface_index);
}

Status UdpSocket::steer(std::span<const sock_filter> program) {
  sock_fprog all{};
  all.len = static_cast<unsigned short>(program.size());
  all.filter = const_cast<sock_filter*>(program.data());
  if (::setsockopt(fd_.get(), SOL_SOCKET, SO_ATTACH_REUSEPORT_CBPF, &all, sizeof all) < 0) {
    return fail(errno, "setsockopt");
  }
  return {};
}

}  // namespace airdma::io
