// SPDX-License-Identifier: MIT
// getaddrinfo for RDMA: the C library's resolver, with queue pair types and port spaces for socket
// types and protocols. One result, as programs know it.
#include <errno.h>
#include <netdb.h>
#include <stdlib.h>
#include <string.h>

#include <memory>

#include "verbs/cm_api.h"

namespace airdma::cm {
namespace {

struct FreeResolved {
  void operator()(addrinfo* list) const { ::freeaddrinfo(list); }
};
using Resolved = std::unique_ptr<addrinfo, FreeResolved>;

struct FreeResult {
  void operator()(rdma_addrinfo* res) const { freeaddrinfo(res); }
};
using Result = std::unique_ptr<rdma_addrinfo, FreeResult>;

int failed(int error) {
  errno = error;
  return -1;
}

addrinfo resolver_hints(const rdma_addrinfo& hints) {
  addrinfo result{};
  if ((hints.ai_flags & RAI_PASSIVE) != 0) result.ai_flags |= AI_PASSIVE;
  if ((hints.ai_flags & RAI_NUMERICHOST) != 0) result.ai_flags |= AI_NUMERICHOST;
  if ((hints.ai_flags & RAI_FAMILY) != 0) result.ai_family = hints.ai_family;
  switch (hints.ai_qp_type) {
    case IBV_QPT_RC:
    case IBV_QPT_UC:
    case IBV_QPT_XRC_SEND:
    case IBV_QPT_XRC_RECV:
      result.ai_socktype = SOCK_STREAM;
      break;
    case IBV_QPT_UD:
      result.ai_socktype = SOCK_DGRAM;
      break;
  }
  switch (hints.ai_port_space) {
    case RDMA_PS_TCP:
      result.ai_protocol = IPPROTO_TCP;
      break;
    case RDMA_PS_IPOIB:
    case RDMA_PS_UDP:
      result.ai_protocol = IPPROTO_UDP;
      break;
    case RDMA_PS_IB:
      if (hints.ai_qp_type != IBV_QPT_UD) result.ai_protocol = IPPROTO_TCP;
      break;
  }
  return result;
}

/// False without memory.
bool copy_address(sockaddr*& to, socklen_t& to_length, const sockaddr* from, socklen_t length) {
  to = static_cast<sockaddr*>(::malloc(length));
  if (to == nullptr) return false;
  ::memcpy(to, from, length);
  to_length = length;
  return true;
}

bool take_resolved(rdma_addrinfo& res, const addrinfo& found, const rdma_addrinfo& hints) {
  res.ai_family = found.ai_family;
  res.ai_qp_type = hints.ai_qp_type;
  if (res.ai_qp_type == 0) {
    res.ai_qp_type = found.ai_socktype == SOCK_DGRAM ? IBV_QPT_UD : IBV_QPT_RC;
  }
  res.ai_port_space = hints.ai_port_space;
  if (res.ai_port_space == 0) {
    res.ai_port_space = found.ai_socktype == SOCK_DGRAM ? RDMA_PS_UDP : RDMA_PS_TCP;
  }
  const bool passive = (hints.ai_flags & RAI_PASSIVE) != 0;
  char*& name = passive ? res.ai_src_canonname : res.ai_dst_canonname;
  if (found.ai_canonname != nullptr) name = ::strdup(found.ai_canonname);
  return passive ? copy_address(res.ai_src_addr, res.ai_src_len, found.ai_addr, found.ai_addrlen)
                 : copy_address(res.ai_dst_addr, res.ai_dst_len, found.ai_addr, found.ai_addrlen);
}

/// Without a name to resolve the hints are the answer.
bool take_hints(rdma_addrinfo& res, const rdma_addrinfo& hints) {
  res.ai_family = hints.ai_family;
  res.ai_qp_type = hints.ai_qp_type;
  res.ai_port_space = hints.ai_port_space;
  if (hints.ai_dst_len == 0 || hints.ai_dst_addr == nullptr) return true;
  return copy_address(res.ai_dst_addr, res.ai_dst_len, hints.ai_dst_addr, hints.ai_dst_len);
}

bool take_source(rdma_addrinfo& res, const rdma_addrinfo& hints) {
  if (res.ai_src_len != 0 || hints.ai_src_len == 0 || hints.ai_src_addr == nullptr) return true;
  return copy_address(res.ai_src_addr, res.ai_src_len, hints.ai_src_addr, hints.ai_src_len);
}

}  // namespace

int getaddrinfo(const char* node, const char* service, const rdma_addrinfo* hints,
                rdma_addrinfo** out) {
  if (out == nullptr || (node == nullptr && service == nullptr && hints == nullptr)) {
    return failed(EINVAL);
  }
  const rdma_addrinfo none{};
  const rdma_addrinfo& wanted = hints != nullptr ? *hints : none;
  Result res(static_cast<rdma_addrinfo*>(::calloc(1, sizeof(rdma_addrinfo))));
  if (!res) return failed(ENOMEM);
  res->ai_flags = wanted.ai_flags;
  if (node != nullptr || service != nullptr) {
    const addrinfo resolver = resolver_hints(wanted);
    addrinfo* list = nullptr;
    if (const int error = ::getaddrinfo(node, service, &resolver, &list); error != 0) return error;
    const Resolved found(list);
    if (!take_resolved(*res, *found, wanted)) return failed(ENOMEM);
  } else if (!take_hints(*res, wanted)) {
    return failed(ENOMEM);
  }
  if (!take_source(*res, wanted)) return failed(ENOMEM);
  *out = res.release();
  return 0;
}

void freeaddrinfo(rdma_addrinfo* res) {
  while (res != nullptr) {
    rdma_addrinfo* next = res->ai_next;
    ::free(res->ai_src_addr);
    ::free(res->ai_dst_addr);
    ::free(res->ai_src_canonname);
    ::free(res->ai_dst_canonname);
    ::free(res->ai_route);
    ::free(res->ai_connect);
    ::free(res);
    res = next;
  }
}

}  // namespace airdma::cm
