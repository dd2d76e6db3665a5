// SPDX-License-Identifier: MIT
// Non-blocking, never connected UDP sockets, made for RoCEv2: every datagram goes out whole, with
// "don't fragment" and an IPv4 identification that is known (0; the index of the segment when one
// call sends several), because the packet's CRC covers these fields. A connected socket, or one
// that may fragment, would get identifications of the kernel's choice.
#pragma once

#include <sys/socket.h>
#include <sys/uio.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>

#include "base/bytes.h"
#include "base/result.h"
#include "io/address.h"
#include "io/fd.h"

struct sock_filter;

namespace airdma::io {

/// Where datagrams go and what their IP headers say, in the form that the kernel takes.
class UdpPath {
 public:
  struct Fields {
    Address source;                  // an address of this host
    Address destination;             // of the same family, with its port
    unsigned interface_index = 0;    // to leave by; 0: as routed
    std::uint8_t traffic_class = 0;  // the whole byte
    std::uint8_t hop_limit = 0;      // 0: the system's default
    std::uint32_t flow_label = 0;    // IPv6
  };
  explicit UdpPath(const Fields& fields);

 private:
  friend class UdpSocket;
  Address destination_;
  alignas(cmsghdr) std::array<std::byte, 128> control_;
  std::size_t control_bytes_ = 0;
};

/// One datagram, or several of `segment_bytes` each, the last of which may be shorter. Its pieces
/// are not changed (iovec has no const form).
struct UdpMessage {
  std::span<iovec> pieces;
  std::uint16_t segment_bytes = 0;  // 0: one datagram
};

/// What arrived by one reception: datagrams of one sender, of equal size but for the last.
struct UdpArrival {
  Bytes data;
  std::size_t segment_bytes = 0;
  std::array<std::uint8_t, 16> source;       // IPv4 as ::ffff:a.b.c.d
  std::array<std::uint8_t, 16> destination;  // the address it was sent to
  std::uint16_t source_port = 0;             // host order
  unsigned interface_index = 0;              // where it came in
  std::uint8_t traffic_class = 0;
  std::uint8_t hop_limit = 0;
  std::uint32_t flow_label = 0;  // IPv6
};

/// Memory for receptions, 64 KiB each.
class UdpInbox {
 public:
  static constexpr std::size_t kSlots = 8;
  static constexpr std::size_t kSlotBytes = 64 * 1024;
  UdpInbox();
  ~UdpInbox();
  UdpInbox(const UdpInbox&) = delete;
  UdpInbox& operator=(const UdpInbox&) = delete;

 private:
  friend class UdpSocket;
  struct Slots;
  std::unique_ptr<Slots> slots_;
};

class UdpSocket {
 public:
  /// Limits of one send with segments: the kernel's number in all versions, and the bytes an IP
  /// packet holds of either family.
  static constexpr std::size_t kMaxSegments = 64;
  static constexpr std::size_t kMaxBytes = 65507;
  /// Messages that one send() takes.
  static constexpr std::size_t kMaxMessages = 16;

  UdpSocket() = default;
  /// Bound to all addresses of a family; IPv6 sockets do not speak IPv4. Port 0: the kernel
  /// chooses. `shared`: with the other sockets of this user that ask for it. Errors: EADDRINUSE
  /// (another user has the port, or one who does not share), EAFNOSUPPORT, EMFILE.
  static Result<UdpSocket> open(int family, std::uint16_t port, bool shared);

  [[nodiscard]] int fd() const { return fd_.get(); }
  [[nodiscard]] explicit operator bool() const { return static_cast<bool>(fd_); }
  void close() { fd_.reset(); }
  /// In host order.
  [[nodiscard]] std::uint16_t port() const { return port_; }
  /// As the kernel counts, with its overhead.
  [[nodiscard]] std::size_t receive_buffer_bytes() const;

  /// How many of the messages (kMaxMessages at most) were sent, at least one. Errors are those of
  /// the first: EAGAIN and ENOBUFS (full, now), EMSGSIZE (longer than the path carries, or segments
  /// that are), EIO (this path takes no segments), EFAULT, ENETUNREACH, EHOSTUNREACH, EPERM,
  /// EINVAL (the source is no address of this host).
  Result<std::size_t> send(const UdpPath& path, std::span<const UdpMessage> messages);

  /// What has arrived, in the inbox until its next use; nothing when there is nothing. `arrivals`
  /// holds the result, and no more are taken than it has room for.
  std::span<UdpArrival> receive(UdpInbox& inbox, std::span<UdpArrival> arrivals);

  /// Members get what is sent to a group; a process that did not join gets none of it. Errors:
  /// ENOBUFS (too many groups), ENODEV, EADDRINUSE (a member already).
  Status join(const Address& group, unsigned interface_index);
  Status leave(const Address& group, unsigned interface_index);

  /// Lets the sockets that share a port be chosen by a classic BPF program over the datagram, which
  /// returns the index of one in the order of their binding. (When one is closed, the last takes
  /// its index.) Any of them may set it, for all.
  Status steer(std::span<const sock_filter> program);

 private:
  UdpSocket(Fd fd, int family, std::uint16_t port)
      : fd_(std::move(fd)), family_(family), port_(port) {}

  Fd fd_;
  int family_ = 0;
  std::uint16_t port_ = 0;
};

}  // namespace airdma::io
