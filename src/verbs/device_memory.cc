// SPDX-License-Identifier: MIT
// Device memory (ibv_alloc_dm): there is no other memory than the host's, so it is pages that no
// address of the program leads to. Regions over it are like all others.
#include <sys/mman.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <set>

#include "verbs/api.h"
#include "verbs/limits.h"
#include "verbs/region.h"
#include "verbs/shared_handles.h"

namespace airdma::verbs {
namespace {

/// Copies go by words, as on the devices whose programs this interface was made for.
constexpr std::size_t kWord = 4;

/// Bytes of whole pages that hold `bytes`.
std::size_t page_bytes(std::size_t bytes) {
  const auto page = static_cast<std::size_t>(::sysconf(_SC_PAGESIZE));
  return (bytes + page - 1) / page * page;
}

/// `bytes` of zeroed pages; pages are aligned enough for every request that is granted.
Result<std::shared_ptr<DeviceMemory>> map_memory(std::size_t bytes) {
  auto memory = std::make_shared<DeviceMemory>();
  void* start = ::mmap(nullptr, page_bytes(bytes), PROT_READ | PROT_WRITE,
                       MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (start == MAP_FAILED) return fail(ENOMEM, "mmap");
  memory->start = static_cast<std::byte*>(start);
  memory->bytes = bytes;
  return memory;
}

/// The memory behind a handle, for an access of these bytes. EINVAL outside of it.
Result<std::shared_ptr<DeviceMemory>> memory_of(const ibv_dm* handle, std::uint64_t offset,
                                                std::size_t length) {
  if (find_object(handle) == nullptr) return fail(EINVAL);
  State& all = state();
  std::lock_guard lock(all.control);
  const Dm* dm = all.dms.find(handle);
  if (dm == nullptr) return fail(EINVAL);
  const std::size_t bytes = dm->memory->bytes;
  if (offset > bytes || length > bytes - offset) return fail(EINVAL);
  return dm->memory;
}

/// A slot's answer: 0 or an errno value.
template <class Copy>
int copy_words(const ibv_dm* dm, std::uint64_t offset, const void* host, std::size_t length,
               Copy copy) noexcept {
  if (length == 0 && find_object(dm) != nullptr) return 0;
  if (host == nullptr || offset % kWord != 0 || length % kWord != 0) return EINVAL;
  const auto memory = memory_of(dm, offset, length);
  if (!memory) return memory.error().code;
  copy((*memory)->start + offset);
  return 0;
}

int copy_to(ibv_dm* dm, uint64_t offset, const void* host, size_t length) noexcept {
  return copy_words(dm, offset, host, length,
                    [&](std::byte* at) { std::memcpy(at, host, length); });
}

int copy_from(void* host, ibv_dm* dm, uint64_t offset, size_t length) noexcept {
  return copy_words(dm, offset, host, length,
                    [&](const std::byte* at) { std::memcpy(host, at, length); });
}

/// What a region keeps of the memory that it is over.
class Use {
 public:
  explicit Use(std::shared_ptr<DeviceMemory> memory) : memory_(std::move(memory)) {
    memory_->regions.fetch_add(1);
  }
  Use(const Use&) = delete;
  Use& operator=(const Use&) = delete;
  ~Use() { memory_->regions.fetch_sub(1); }

 private:
  std::shared_ptr<DeviceMemory> memory_;
};

}  // namespace

DeviceMemory::~DeviceMemory() {
  if (start != nullptr) ::munmap(start, page_bytes(bytes));
}

namespace {

/// Bytes taken on the device.
std::uint64_t used_memory(State& all, const Device& device) {
  std::set<const DeviceMemory*> counted;  // once, however many handles it has
  std::uint64_t used = 0;
  all.dms.for_each([&](const Dm& dm) {
    if (dm.device != &device) return;
    if (counted.insert(dm.memory.get()).second) used += dm.memory->bytes;
  });
  return used;
}

}  // namespace

Result<ibv_dm*> alloc_dm(ibv_context* handle, ibv_alloc_dm_attr* attr) {
  if (device_of(handle) == nullptr || attr == nullptr) return fail(EINVAL);
  if (attr->comp_mask != 0 || attr->length == 0) return fail(EINVAL);
  if (attr->log_align_req > kMaxDeviceMemoryAlignment) return fail(EINVAL);
  State& all = state();
  std::lock_guard lock(all.control);
  const Device* device = device_of(handle);
  if (device == nullptr) return fail(EINVAL);
  if (attr->length > kMaxDeviceMemory - used_memory(all, *device)) return fail(ENOMEM);
  auto memory = map_memory(attr->length);
  if (!memory) return std::unexpected(memory.error());
  Dm* dm = all.dms.create();
  if (dm == nullptr) return fail(ENOMEM);
  dm->device = device;
  dm->memory = std::move(*memory);
  dm->pub = {.context = handle,
             .memcpy_to_dm = copy_to,
             .memcpy_from_dm = copy_from,
             .comp_mask = 0,
             .handle = ++all.next_handle};
  return &dm->pub;
}

Status free_dm(ibv_dm* handle) {
  if (find_object(handle) == nullptr) return fail(EINVAL);
  State& all = state();
  std::lock_guard lock(all.control);
  Dm* dm = all.dms.find(handle);
  if (dm == nullptr) return fail(EINVAL);
  if (dm->memory->regions.load() != 0) return fail(EBUSY);
  for (Dm* each : shared_handles(all, *dm)) all.dms.destroy(each);
  return {};
}

Result<ibv_mr*> reg_dm_mr(ibv_pd* pd, ibv_dm* dm, uint64_t dm_offset, size_t length,
                          unsigned access) {
  if (find_object(pd) == nullptr || find_object(dm) == nullptr) return fail(EINVAL);
  if (pd->context->device != dm->context->device) return fail(EINVAL);
  const auto rights = check_access(access);
  if (!rights) return std::unexpected(rights.error());
  constexpr unsigned kPagesOfPrograms = IBV_ACCESS_ON_DEMAND | IBV_ACCESS_HUGETLB;
  if ((*rights & IBV_ACCESS_ZERO_BASED) == 0 || (*rights & kPagesOfPrograms) != 0) {
    return fail(EINVAL);
  }
  const auto memory = memory_of(dm, dm_offset, length);
  if (!memory) return std::unexpected(memory.error());
  // No address of the program's leads there, so the region has none.
  const auto mr = add_region(pd, {.start = (*memory)->start + dm_offset,
                                  .length = length,
                                  .access = *rights,
                                  .backing = std::make_shared<Use>(*memory),
                                  .fixed = true});
  if (!mr) return std::unexpected(mr.error());
  return &(*mr)->pub;
}

}  // namespace airdma::verbs
