// SPDX-License-Identifier: MIT
#include "airdma/verbs_library.h"

#include <dlfcn.h>
#include <fmt/core.h>

namespace airdma::tool {
namespace {

template <class Function>
void resolve(void* handle, const char* name, Function& function, std::string& problem) {
  function = reinterpret_cast<Function>(::dlsym(handle, name));
  if (function == nullptr && problem.empty()) problem = fmt::format("it lacks {}", name);
}

}  // namespace

VerbsLibrary VerbsLibrary::load(const std::string& directory) {
  VerbsLibrary library;
  void* handle = ::dlopen((directory + "/libibverbs.so.1").c_str(), RTLD_NOW | RTLD_LOCAL);
  if (handle == nullptr) {
    library.problem = ::dlerror();
    return library;
  }
  std::string& problem = library.problem;
  resolve(handle, "ibv_get_device_list", library.get_device_list, problem);
  resolve(handle, "ibv_free_device_list", library.free_device_list, problem);
  resolve(handle, "ibv_get_device_name", library.get_device_name, problem);
  resolve(handle, "ibv_get_device_guid", library.get_device_guid, problem);
  resolve(handle, "ibv_open_device", library.open_device, problem);
  resolve(handle, "ibv_close_device", library.close_device, problem);
  resolve(handle, "ibv_query_port", library.query_port, problem);
  resolve(handle, "ibv_query_gid", library.query_gid, problem);
  return library;
}

}  // namespace airdma::tool
