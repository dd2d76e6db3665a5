// SPDX-License-Identifier: MIT
// The devices that ids are bound to: one context and one protection domain each, opened when first
// needed and kept for the life of the process, because ids hand them to the program.
#include <errno.h>
#include <fcntl.h>
#include <net/if.h>

#include <algorithm>

#include "verbs/api.h"
#include "verbs/cm_api.h"
#include "verbs/cm_state.h"
#include "verbs/device.h"
#include "verbs/internal.h"
#include "verbs/preference.h"

namespace airdma::cm {
namespace {

std::uint8_t depth_limit(int reads) {
  // 255 means "the maximum" in the API, so it is not a limit itself.
  return static_cast<std::uint8_t>(std::clamp(reads, 0, RDMA_MAX_RESP_RES - 1));
}

Status open(Device& device, verbs::Device& found) {
  auto context = verbs::open_device(&found.pub);
  if (!context) return std::unexpected(context.error());
  auto pd = verbs::alloc_pd(*context);
  ibv_device_attr attr{};
  Status queried = pd ? verbs::query_device(*context, &attr) : std::unexpected(pd.error());
  if (!queried) {
    [[maybe_unused]] const auto closed = verbs::close_device(*context);
    return queried;
  }
  device.transport = found.transport;
  device.device = &found;
  device.context = *context;
  device.pd = *pd;
  device.max_responder_resources = depth_limit(attr.max_qp_rd_atom);
  device.max_initiator_depth = depth_limit(attr.max_qp_init_rd_atom);
  return {};
}

bool alive(const Device& device) {
  return verbs::is_live(device.context) && verbs::is_live(device.pd);
}

/// Null when the interface's device was not opened yet, or its context was closed: a program may
/// close what it was shown.
Device* known_device(const std::string& interface, verbs::Transport transport) {
  for (Device& device : control().devices) {
    if (device.interface != interface || device.transport != transport) continue;
    return alive(device) ? &device : nullptr;
  }
  return nullptr;
}

Result<const Device*> device_for(verbs::Device& found) {
  if (const Device* known = known_device(found.interface, found.transport)) return known;
  Device fresh;
  fresh.interface = found.interface;
  if (auto opened = open(fresh, found); !opened) return std::unexpected(opened.error());
  return &control().devices.emplace_front(fresh);
}

Result<const Device*> look_up(const io::Address& local, verbs::Transport transport) {
  const auto index = io::interface_of(local);
  if (!index) return std::unexpected(index.error());
  char name[IF_NAMESIZE];
  if (::if_indextoname(*index, name) == nullptr) return fail(errno == ENXIO ? ENODEV : errno);
  if (const Device* known = known_device(name, transport)) return known;
  auto devices = verbs::list_devices();
  if (!devices) return std::unexpected(devices.error());
  for (verbs::Device* device : *devices) {
    if (device->transport == transport && device->interface == name) return device_for(*device);
  }
  return fail(ENODEV);
}

bool same(const io::Address& one, const io::Address& other) {
  return one.same_host(other) && one.scope() == other.scope();
}

const Device* known_owner(const io::Address& local, verbs::Transport transport) {
  for (const auto& [address, device] : control().owners) {
    if (same(address, local) && device->transport == transport && alive(*device)) return device;
  }
  return nullptr;
}

/// Few, because they are searched one by one.
template <class Value>
void remember(std::vector<std::pair<io::Address, Value>>& known, const io::Address& address,
              const Value& value) {
  constexpr std::size_t kMost = 64;
  if (known.size() == kMost) known.clear();
  known.emplace_back(address, value);
}

}  // namespace

void check_host() {
  Control& all = control();
  const auto generation = io::AddressWatch::get().generation();
  if (generation != io::AddressWatch::kUnwatched && generation == all.host_generation) return;
  all.host_generation = generation;
  all.owners.clear();
  all.sources.clear();
  all.has_roce.reset();
}

Result<io::Address> source_towards(const io::Address& destination) {
  for (const auto& [known, source] : control().sources) {
    if (same(known, destination)) return source;
  }
  auto source = io::source_for(destination, {});
  if (source) remember(control().sources, destination, *source);
  return source;
}

Result<const Device*> device_at(const io::Address& local, verbs::Transport transport) {
  const io::Address address = local.unmapped();
  if (const Device* known = known_owner(address, transport)) return known;
  auto found = look_up(address, transport);
  if (found) remember(control().owners, address, *found);
  return found;
}

Result<const Device*> device_at(const io::Address& local) {
  const bool iwarp = verbs::prefers_iwarp();
  auto device = device_at(local, iwarp ? verbs::Transport::kIwarp : verbs::Transport::kRoce);
  if (device || device.error().code != ENODEV) return device;
  return device_at(local, iwarp ? verbs::Transport::kRoce : verbs::Transport::kIwarp);
}

bool has_roce() {
  std::optional<bool>& known = control().has_roce;
  if (known) return *known;
  const auto devices = verbs::list_devices();
  if (!devices) return false;
  known = std::ranges::any_of(*devices, [](const verbs::Device* device) { return device->roce(); });
  return *known;
}

void use_device(Id& id, const Device& device) {
  id.device = &device;
  id.pub.verbs = device.context;
  id.pub.pd = device.pd;
  id.pub.port_num = 1;
}

Result<ibv_xrcd*> xrc_domain_of(const Device& wanted) {
  for (Device& device : control().devices) {
    if (&device != &wanted) continue;
    if (device.xrc_domain != nullptr) return device.xrc_domain;
    ibv_xrcd_init_attr attr{};
    attr.comp_mask = IBV_XRCD_INIT_ATTR_FD | IBV_XRCD_INIT_ATTR_OFLAGS;
    attr.fd = -1;
    attr.oflags = O_CREAT;
    auto opened = verbs::open_xrcd(device.context, &attr);
    if (opened) device.xrc_domain = *opened;
    return opened;
  }
  return fail(EINVAL);
}

Result<ibv_context**> get_devices(int* num_devices) {
  std::lock_guard lock(control().mutex);
  auto devices = verbs::list_devices();
  if (!devices) return std::unexpected(devices.error());
  if (devices->empty()) return fail(ENODEV);
  auto** list = static_cast<ibv_context**>(::calloc(devices->size() + 1, sizeof(ibv_context*)));
  if (list == nullptr) return fail(ENOMEM);
  int count = 0;
  for (verbs::Device* device : *devices) {
    auto opened = device_for(*device);
    if (!opened) {
      ::free(list);
      return std::unexpected(opened.error());
    }
    list[count++] = (*opened)->context;
  }
  if (num_devices != nullptr) *num_devices = count;
  return list;
}

void free_devices(ibv_context** list) { ::free(list); }

}  // namespace airdma::cm
