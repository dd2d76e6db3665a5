// SPDX-License-Identifier: MIT
// Contexts by their command descriptor, and objects by their numbers within it. The kernel shares
// its objects with every process that holds the descriptor; these objects are this process's own,
// so a descriptor of another process is known for what it is and refused.
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <string_view>

#include "verbs/api.h"
#include "verbs/limits.h"
#include "verbs/open_context.h"
#include "verbs/region.h"
#include "verbs/shared_handles.h"

namespace airdma::verbs {
namespace {

constexpr const char* kFileName = "airdma-context";

struct FileIdentity {
  dev_t device = 0;
  ino_t inode = 0;
  bool operator==(const FileIdentity&) const = default;
};

Result<FileIdentity> identity_of(int fd) {
  struct stat status{};
  if (::fstat(fd, &status) != 0) return fail(errno, "fstat");
  return FileIdentity{status.st_dev, status.st_ino};
}

/// Whether the descriptor was made by open_command_file(), in whatever process.
bool is_command_file(int fd) {
  char path[32];
  char target[64] = {};
  std::snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
  const ssize_t length = ::readlink(path, target, sizeof target - 1);
  if (length <= 0) return false;
  return std::string_view(target).starts_with(std::string_view("/memfd:airdma-context"));
}

/// The context whose descriptor `fd` is a duplicate of. EINVAL for the descriptor itself.
Result<Context*> context_of(State& all, int fd) {
  const auto wanted = identity_of(fd);
  if (!wanted) return std::unexpected(wanted.error());
  Context* found = nullptr;
  bool itself = false;
  all.contexts.for_each([&](Context& context) {
    const auto here = identity_of(context.command.get());
    if (!here || *here != *wanted) return;
    found = &context;
    itself |= context.command.get() == fd;
  });
  if (itself) return fail(EINVAL);
  if (found != nullptr) return found;
  return fail(is_command_file(fd) ? EOPNOTSUPP : EINVAL);
}

/// The first object of the group that `is_it(object)` is true of and whose number this is.
template <class Object, class IsIt>
Object* find_numbered(State& all, ObjectPool<Object>& pool, std::uint64_t group,
                      std::uint32_t number, IsIt is_it) {
  Object* found = nullptr;
  pool.for_each([&](Object& object) {
    if (found != nullptr || object.pub.handle != number || !is_it(object)) return;
    const Context* context = all.contexts.find(object.pub.context);
    if (context != nullptr && context->group == group) found = &object;
  });
  return found;
}

template <class Object, class IsSame>
std::vector<Object*> collect(ObjectPool<Object>& pool, IsSame is_same) {
  std::vector<Object*> found;
  pool.for_each([&](Object& object) {
    if (is_same(object)) found.push_back(&object);
  });
  return found;
}

}  // namespace

std::vector<Pd*> shared_handles(State& all, Pd& pd) {
  if (!pd.shared) return {&pd};
  return collect(all.pds, [&](const Pd& other) { return other.shared && other.id == pd.id; });
}

std::vector<Mr*> shared_handles(State& all, Mr& mr) {
  if (!mr.shared) return {&mr};
  return collect(all.mrs, [&](const Mr& other) { return other.region == mr.region; });
}

std::vector<Dm*> shared_handles(State& all, Dm& dm) {
  return collect(all.dms, [&](const Dm& other) { return other.memory == dm.memory; });
}

Result<io::Fd> open_command_file() {
  io::Fd file(::memfd_create(kFileName, MFD_CLOEXEC));
  if (!file) return fail(errno, "memfd_create");
  return file;
}

Result<ibv_context*> import_device(int cmd_fd) {
  State& all = state();
  std::unique_lock lock(all.control);
  const auto original = context_of(all, cmd_fd);
  if (!original) return std::unexpected(original.error());
  Device* device = (*original)->device;
  const std::uint64_t group = (*original)->group;
  lock.unlock();
  // Of the caller from here on only when it succeeds.
  return open_context(*device, group, [cmd_fd] { return Result<io::Fd>(io::Fd(cmd_fd)); });
}

Result<ibv_pd*> import_pd(ibv_context* handle, uint32_t pd_handle) {
  if (find_object(handle) == nullptr) return fail(EINVAL);
  State& all = state();
  std::lock_guard lock(all.control);
  Context* context = all.contexts.find(handle);
  if (context == nullptr) return fail(EINVAL);
  Pd* original = find_numbered(all, all.pds, context->group, pd_handle,
                               [](const Pd& pd) { return pd.base == nullptr; });
  if (original == nullptr) return fail(EINVAL);
  DeviceUse& use = all.use_of(*context);
  if (use.pds >= kMaxProtectionDomains) return fail(ENOMEM);
  Pd* pd = all.pds.create();
  if (pd == nullptr) return fail(ENOMEM);
  ++use.pds;
  pd->context = context;
  pd->id = original->id;
  pd->pub = {.context = handle, .handle = pd_handle};
  pd->shared = original->shared = true;
  return &pd->pub;
}

// A handle that something still uses, or the last one of its object, stays until its context is
// closed, because this call cannot say so.
void unimport_pd(ibv_pd* handle) {
  if (find_object(handle) == nullptr) return;
  State& all = state();
  std::lock_guard lock(all.control);
  Pd* pd = all.pds.find(handle);
  if (pd == nullptr || pd->users != 0 || shared_handles(all, *pd).size() == 1) return;
  end_domain(all, *pd);
}

Result<ibv_mr*> import_mr(ibv_pd* handle, uint32_t mr_handle) {
  if (find_object(handle) == nullptr) return fail(EINVAL);
  State& all = state();
  std::lock_guard lock(all.control);
  Pd* pd = all.pds.find(handle);
  if (pd == nullptr) return fail(EINVAL);
  Mr* original = find_numbered(all, all.mrs, pd->context->group, mr_handle,
                               [&](const Mr& mr) { return !mr.closing && mr.pd->id == pd->id; });
  if (original == nullptr) return fail(EINVAL);
  Mr* mr = all.mrs.create();
  if (mr == nullptr) return fail(ENOMEM);
  ++pd->users;
  mr->pd = pd;
  mr->region = original->region;
  mr->backing = original->backing;
  mr->shared = original->shared = true;
  mr->pub = original->pub;
  mr->pub.context = pd->pub.context;
  mr->pub.pd = &pd->pub;
  mr->pub.addr = nullptr;  // as ibv_import_mr(3) has it
  return &mr->pub;
}

void unimport_mr(ibv_mr* handle) {
  if (find_object(handle) == nullptr) return;
  State& all = state();
  std::lock_guard lock(all.control);
  Mr* mr = all.mrs.find(handle);
  if (mr == nullptr || mr->closing || shared_handles(all, *mr).size() == 1) return;
  end_handle(all, *mr);
}

Result<ibv_dm*> import_dm(ibv_context* handle, uint32_t dm_handle) {
  if (find_object(handle) == nullptr) return fail(EINVAL);
  State& all = state();
  std::lock_guard lock(all.control);
  Context* context = all.contexts.find(handle);
  if (context == nullptr) return fail(EINVAL);
  Dm* original =
      find_numbered(all, all.dms, context->group, dm_handle, [](const Dm&) { return true; });
  if (original == nullptr) return fail(EINVAL);
  Dm* dm = all.dms.create();
  if (dm == nullptr) return fail(ENOMEM);
  dm->device = context->device;
  dm->memory = original->memory;
  dm->pub = original->pub;
  dm->pub.context = handle;
  return &dm->pub;
}

void unimport_dm(ibv_dm* handle) {
  if (find_object(handle) == nullptr) return;
  State& all = state();
  std::lock_guard lock(all.control);
  Dm* dm = all.dms.find(handle);
  if (dm == nullptr || shared_handles(all, *dm).size() == 1) return;
  all.dms.destroy(dm);
}

}  // namespace airdma::verbs
