// SPDX-License-Identifier: MIT
#include "io/address_watch.h"

#include <linux/netlink.h>
#include <linux/rtnetlink.h>
#include <sys/socket.h>
#include <sys/stat.h>

#include <cerrno>
#include <cstdint>
#include <utility>

#include "base/process_global.h"
#include "io/raw_calls.h"

namespace airdma::io {
namespace {

constexpr std::uint32_t group(rtnetlink_groups number) { return 1u << (number - 1); }

constexpr std::uint32_t kGroups = group(RTNLGRP_LINK) | group(RTNLGRP_IPV4_IFADDR) |
                                  group(RTNLGRP_IPV6_IFADDR) | group(RTNLGRP_IPV4_ROUTE) |
                                  group(RTNLGRP_IPV6_ROUTE) | group(RTNLGRP_IPV4_RULE) |
                                  group(RTNLGRP_IPV6_RULE);

Fd open_watch() {
  Fd socket(::socket(AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC | SOCK_NONBLOCK, NETLINK_ROUTE));
  sockaddr_nl name{};
  name.nl_family = AF_NETLINK;
  name.nl_groups = kGroups;
  if (!socket || ::bind(socket.get(), reinterpret_cast<sockaddr*>(&name), sizeof name) < 0) {
    return {};
  }
  return socket;
}

/// A network namespace's name; all zero where there is no /proc to ask.
struct Namespace {
  dev_t device = 0;
  ino_t inode = 0;
};

Namespace ask_for_namespace() {
  struct stat here{};
  ::stat("/proc/thread-self/ns/net", &here);
  return {here.st_dev, here.st_ino};
}

// Of a thread that stays where it is.
thread_local bool stays = false;
thread_local Namespace home;

enum class Drained : std::uint8_t { kNothing, kSome, kBroken };

// What has changed does not matter. ENOBUFS says that more came than the socket could keep.
Drained drain(const Fd& socket) {
  bool nothing = true;
  for (char byte = 0;; nothing = false) {
    const ssize_t got = raw::receive(socket.get(), &byte, 1, MSG_DONTWAIT);
    if (got >= 0 || errno == ENOBUFS || errno == EINTR) continue;
    if (errno != EAGAIN) return Drained::kBroken;
    return nothing ? Drained::kNothing : Drained::kSome;
  }
}

}  // namespace

AddressWatch& AddressWatch::get() { return ProcessGlobal<AddressWatch>::get(); }

void AddressWatch::this_thread_stays() {
  home = ask_for_namespace();
  stays = true;
}

AddressWatch::Generation AddressWatch::generation() {
  std::lock_guard lock(mutex_);
  // A socket stays in the namespace that it was made in; setns() and unshare() move the thread that
  // calls them, and nothing tells of it.
  const Namespace here = stays ? home : ask_for_namespace();
  const bool moved = here.inode != namespace_inode_ || here.device != namespace_device_;
  if (socket_ && !moved && unchanged()) return generation_;
  if (!socket_ || moved) {
    socket_ = open_watch();
    if (!socket_) return kUnwatched;
    namespace_device_ = here.device;
    namespace_inode_ = here.inode;
  }
  return ++generation_;
}

bool AddressWatch::unchanged() { return drain(socket_) == Drained::kNothing; }

AddressEvents::AddressEvents() : socket_(open_watch()) {}

bool AddressEvents::consume() { return drain(socket_) == Drained::kSome; }

}  // namespace airdma::io
