// SPDX-License-Identifier: MIT
// What the connection manager's files share about RoCE devices. With Control::mutex held.
#pragma once

#include <infiniband/verbs.h>

#include <cstdint>

#include "base/result.h"
#include "verbs/cm_state.h"

namespace airdma::cm {

/// Q_Key of datagrams, unless the program says otherwise (RDMA_UDP_QKEY).
inline constexpr std::uint32_t kDefaultQkey = 0x01234567;

// Ports of RoCE devices (cm_ib_listen.cc).
/// Takes the address's port in the id's port space; 0: any. EADDRINUSE.
Status lease_port(Id& id, const io::Address& local);
/// A port for an active side, which nobody else has to respect.
std::uint16_t some_port();
/// Whether requests of RoCE devices can come to the id.
[[nodiscard]] bool may_listen_ib(const Id& id);
Status listen_ib(Id& id);
void stop_listening_ib(Id& id);
/// A REQ or SIDR_REQ for a listener.
void take_ib_request(Id& listener, const ibcm::Event& event);

// Paths and queue pairs (cm_ib_path.cc).
/// The id's addresses as GIDs, where programs look for them.
void name_gids(Id& id);
/// The id's path in the same place, as the kernel's RDMA CM makes one up for RoCE.
void show_path(Id& id);
/// With which a peer begins to send.
Psn random_psn();
/// From the id's source address to its destination.
model::AddressVector path_of(const Id& id);
/// Port 0.
io::Address address_of(const model::Gid& gid, std::uint32_t scope);
/// A path as programs have it.
Result<ibv_ah_attr> ah_attr_of(const Id& id, const model::AddressVector& path);
/// Attributes of a move, as far as the connection knows them.
Status fill_attributes(const Id& id, ibv_qp_type type, ibv_qp_attr& attr, int& mask);
/// The id's own queue pair to RTR and RTS.
Status start_queue_pair(Id& id);
/// RESET to RTS.
Status start_datagrams(ibv_qp* qp, std::uint32_t qkey);
void flush_queue_pair(Id& id);

// Multicast (cm_multicast.cc).
/// The queue pair is about to go.
void detach_groups(Id& id);
void leave_groups(Id& id);

}  // namespace airdma::cm
