// SPDX-License-Identifier: MIT
// What a device says about itself, its port and its addresses. Everything that the interface knows
// is looked up when asked, so that it is current.
#include <endian.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "runtime/progress.h"
#include "verbs/api.h"
#include "verbs/gid_table.h"
#include "verbs/limits.h"
#include "verbs/on_demand.h"
#include "verbs/state.h"

namespace airdma::verbs {
namespace {

constexpr std::uint32_t kVendorPart = 1;
constexpr std::uint32_t kPortCapabilities = 1u << 16 | 1u << 19;  // connection management
constexpr std::uint32_t kRocePortCapabilities = 1u << 16;
constexpr std::uint8_t kPhysicalLinkUp = 5;
constexpr std::uint8_t kPhysicalDisabled = 3;

// A peer may be off the processor for a while before it answers: 4.096 us * 2^12 is 17 ms.
constexpr std::uint8_t kAckDelay = 12;
constexpr std::uint64_t kClockKilohertz = 1'000'000;

struct LinkSpeed {
  std::uint64_t mbps;
  std::uint8_t width;  // 1: 1X, 2: 4X, 16: 2X
  std::uint8_t speed;  // per lane: 1 2.5, 2 5, 8 10.3, 32 25.8, 64 53, 128 106 Gbit/s
};

// How Ethernet speeds are told in terms of lanes; the last one that is not faster counts.
constexpr LinkSpeed kLinkSpeeds[] = {
    {0, 1, 1},        {10'000, 1, 8},   {20'000, 2, 2},   {25'000, 1, 32},   {40'000, 2, 8},
    {50'000, 16, 32}, {100'000, 2, 32}, {200'000, 2, 64}, {400'000, 2, 128},
};

LinkSpeed link_speed(std::uint64_t mbps) {
  LinkSpeed found = kLinkSpeeds[0];
  for (const LinkSpeed& candidate : kLinkSpeeds) {
    if (candidate.mbps <= mbps) found = candidate;
  }
  return found;
}

/// What RoCEv2 has and iWARP has not.
void add_roce(ibv_device_attr& attr) {
  attr.device_cap_flags |= IBV_DEVICE_UD_AV_PORT_ENFORCE | IBV_DEVICE_PORT_ACTIVE_EVENT |
                           IBV_DEVICE_RC_RNR_NAK_GEN | IBV_DEVICE_XRC;
  attr.max_ah = kMaxAddressHandles;
  attr.max_mcast_grp = kMaxMulticastGroups;
  attr.max_mcast_qp_attach = kMaxMulticastMembers;
  attr.max_total_mcast_qp_attach = kMaxMulticastGroups * kMaxMulticastMembers;
  attr.local_ca_ack_delay = kAckDelay;
}

void fill(ibv_device_attr& attr, const Device& device) {
  attr = {};
  std::strcpy(attr.fw_ver, "0.1.0");
  attr.node_guid = device.guid;
  attr.sys_image_guid = device.guid;
  attr.max_mr_size = ~std::uint64_t{0};
  attr.page_size_cap = ~(static_cast<std::uint32_t>(::sysconf(_SC_PAGESIZE)) - 1);
  attr.vendor_id = kVendorId;
  attr.vendor_part_id = kVendorPart;
  attr.max_qp = kMaxQueuePairs;
  attr.max_qp_wr = kMaxWorkRequests;
  attr.device_cap_flags = IBV_DEVICE_CURR_QP_STATE_MOD | IBV_DEVICE_SYS_IMAGE_GUID |
                          IBV_DEVICE_MEM_WINDOW | IBV_DEVICE_MEM_WINDOW_TYPE_2B |
                          IBV_DEVICE_MEM_MGT_EXTENSIONS | IBV_DEVICE_SRQ_RESIZE;
  attr.max_sge = kMaxSges;
  attr.max_sge_rd = kMaxSges;
  attr.max_cq = kMaxCompletionQueues;
  attr.max_cqe = kMaxCompletions;
  attr.max_mr = kMaxRegions;
  attr.max_mw = kMaxWindows;
  attr.max_pd = kMaxProtectionDomains;
  attr.max_qp_rd_atom = kMaxReads;
  attr.max_qp_init_rd_atom = kMaxReads;
  attr.max_res_rd_atom = kMaxReads * kMaxQueuePairs;
  // They are the processor's own instructions, atomic to everything that shares the memory: that is
  // IBV_ATOMIC_GLOB. But no card says more than this, and programs compare with it.
  attr.atomic_cap = IBV_ATOMIC_HCA;
  attr.max_srq = kMaxSharedQueues;
  attr.max_srq_wr = kMaxSharedReceives;
  attr.max_srq_sge = kMaxSges;
  attr.max_pkeys = kPkeyTableLength;
  attr.phys_port_cnt = 1;
  if (device.roce()) add_roce(attr);
}

ibv_port_attr port_attributes(const Device& device) {
  ibv_port_attr attr{};
  const auto interface = device.look();
  const bool active = interface && interface->running;
  const LinkSpeed link = link_speed(interface ? interface->speed_mbps : 0);
  attr.state = active ? IBV_PORT_ACTIVE : IBV_PORT_DOWN;
  attr.phys_state = active ? kPhysicalLinkUp : kPhysicalDisabled;
  attr.max_mtu = IBV_MTU_4096;
  attr.active_mtu = active_mtu(device, interface ? interface->mtu : 0);
  attr.gid_tbl_len = kGidTableLength;
  attr.pkey_tbl_len = kPkeyTableLength;
  attr.port_cap_flags = kPortCapabilities;
  attr.max_msg_sz = static_cast<std::uint32_t>(kMaxMessageBytes);
  attr.active_width = link.width;
  attr.active_speed = link.speed;
  attr.link_layer = IBV_LINK_LAYER_ETHERNET;
  if (device.roce()) {
    attr.port_cap_flags = kRocePortCapabilities;
    attr.max_vl_num = 1;
    attr.flags = IBV_QPF_GRH_REQUIRED;
  }
  return attr;
}

}  // namespace

Status query_device(ibv_context* handle, ibv_device_attr* attr) {
  const Device* device = device_of(handle);
  if (device == nullptr || attr == nullptr) return fail(EINVAL);
  fill(*attr, *device);
  return {};
}

Status query_device_ex(ibv_context* handle, const ibv_query_device_ex_input* input,
                       ibv_device_attr_ex* attr, size_t attr_bytes) {
  const Device* device = device_of(handle);
  if (device == nullptr || attr == nullptr) return fail(EINVAL);
  if (input != nullptr && input->comp_mask != 0) return fail(EINVAL);
  if (attr_bytes < sizeof attr->orig_attr) return fail(EINVAL);
  ibv_device_attr_ex full{};
  fill(full.orig_attr, *device);
  full.device_cap_flags_ex = full.orig_attr.device_cap_flags;
  full.phys_port_cnt_ex = full.orig_attr.phys_port_cnt;
  // Its clock is the host's CLOCK_MONOTONIC, counted in nanoseconds.
  full.completion_timestamp_mask = ~std::uint64_t{0};
  full.hca_core_clock = kClockKilohertz;
  full.max_dm_size = kMaxDeviceMemory;
  fill_on_demand(full, *device);
  std::memset(static_cast<void*>(attr), 0, attr_bytes);
  std::memcpy(static_cast<void*>(attr), &full, std::min(attr_bytes, sizeof full));
  return {};
}

Status query_rt_values(ibv_context* handle, ibv_values_ex* values) {
  if (find_object(handle) == nullptr || values == nullptr) return fail(EINVAL);
  if ((values->comp_mask & ~std::uint32_t{IBV_VALUES_MASK_RAW_CLOCK}) != 0) return fail(EINVAL);
  if (values->comp_mask == 0) return {};
  const auto now = runtime::Progress::now().time_since_epoch();
  const auto seconds = std::chrono::duration_cast<std::chrono::seconds>(now);
  values->raw_clock = {.tv_sec = seconds.count(), .tv_nsec = (now - seconds).count()};
  return {};
}

Status query_port(ibv_context* handle, uint8_t port_num, ibv_port_attr* attr, size_t attr_bytes) {
  const Context* context = find_object(handle);
  if (context == nullptr || attr == nullptr || port_num != 1) return fail(EINVAL);
  const ibv_port_attr full = port_attributes(*context->device);
  std::memset(static_cast<void*>(attr), 0, attr_bytes);
  std::memcpy(static_cast<void*>(attr), &full, std::min(attr_bytes, sizeof full));
  return {};
}

Status query_gid(ibv_context* handle, uint8_t port_num, int index, ibv_gid* gid) {
  const Context* context = find_object(handle);
  if (context == nullptr || gid == nullptr || port_num != 1) return fail(EINVAL);
  if (index < 0 || index >= kGidTableLength) return fail(EINVAL);
  const auto entry = gid_slots(*context->device)[static_cast<std::size_t>(index)];
  *gid = {};
  if (entry) std::memcpy(gid->raw, entry->bytes.data(), sizeof gid->raw);
  return {};
}

Status query_gid_ex(ibv_context* handle, uint32_t port_num, uint32_t gid_index,
                    ibv_gid_entry* entry, uint32_t flags, size_t entry_bytes) {
  const Context* context = find_object(handle);
  if (context == nullptr || entry == nullptr || port_num != 1 || flags != 0) return fail(EINVAL);
  if (gid_index >= kGidTableLength) return fail(EINVAL);
  for (const ibv_gid_entry& used : gid_table(*context->device)) {
    if (used.gid_index != gid_index) continue;
    std::memset(static_cast<void*>(entry), 0, entry_bytes);
    std::memcpy(static_cast<void*>(entry), &used, std::min(entry_bytes, sizeof used));
    return {};
  }
  return fail(ENODATA);
}

Result<ssize_t> query_gid_table(ibv_context* handle, ibv_gid_entry* entries, size_t max_entries,
                                uint32_t flags, size_t entry_bytes) {
  const Context* context = find_object(handle);
  if (context == nullptr || flags != 0) return fail(EINVAL);
  if (entries == nullptr && max_entries != 0) return fail(EINVAL);
  const auto table = gid_table(*context->device);
  if (table.size() > max_entries) return fail(EINVAL);
  auto* out = reinterpret_cast<std::byte*>(entries);
  for (const ibv_gid_entry& entry : table) {
    std::memset(out, 0, entry_bytes);
    std::memcpy(out, &entry, std::min(entry_bytes, sizeof entry));
    out += entry_bytes;
  }
  return static_cast<ssize_t>(table.size());
}

Status query_pkey(ibv_context* handle, uint8_t port_num, int index, __be16* pkey) {
  if (find_object(handle) == nullptr || pkey == nullptr || port_num != 1) return fail(EINVAL);
  if (index < 0 || index >= kPkeyTableLength) return fail(EINVAL);
  *pkey = htobe16(kDefaultPkey);
  return {};
}

Result<int> get_pkey_index(ibv_context* handle, uint8_t port_num, __be16 pkey) {
  if (find_object(handle) == nullptr || port_num != 1) return fail(EINVAL);
  if (be16toh(pkey) != kDefaultPkey) return fail(ENOENT);
  return 0;
}

}  // namespace airdma::verbs
