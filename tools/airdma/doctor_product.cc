// SPDX-License-Identifier: MIT
#include <dlfcn.h>
#include <fmt/core.h>
#include <fmt/ranges.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <sstream>
#include <string>
#include <vector>

#include "airdma/doctor_checks.h"
#include "airdma/launch.h"
#include "airdma/verbs_library.h"

namespace airdma::tool {
namespace {

Finding check_libraries() {
  const std::string directory = library_directory();
  if (const auto problem = library_problem(directory)) return {Verdict::kFail, *problem};
  for (const char* name : kLibraries) {
    const std::string path = directory + "/" + name;
    if (::dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL) == nullptr) {
      return {Verdict::kFail, ::dlerror()};
    }
  }
  return {Verdict::kOk, "libibverbs.so.1 and librdmacm.so.1 in " + directory};
}

Finding check_devices() {
  const VerbsLibrary verbs = VerbsLibrary::load(library_directory());
  if (!verbs.problem.empty()) return {Verdict::kFail, verbs.problem};
  int count = 0;
  ibv_device** devices = verbs.get_device_list(&count);
  if (devices == nullptr) return {Verdict::kFail, "ibv_get_device_list fails"};
  std::vector<std::string> names;
  for (int i = 0; i < count; ++i) names.emplace_back(verbs.get_device_name(devices[i]));
  verbs.free_device_list(devices);
  if (names.empty()) return {Verdict::kFail, "none: no network interface is up"};
  return {Verdict::kOk, fmt::format("{}", fmt::join(names, ", "))};
}

Finding check_rdma_hardware() {
  std::error_code error;
  std::vector<std::string> names;
  std::filesystem::directory_iterator entry("/sys/class/infiniband", error);
  for (; !error && entry != std::filesystem::directory_iterator(); entry.increment(error)) {
    names.push_back(entry->path().filename().string());
  }
  if (names.empty()) return {Verdict::kOk, "none, none needed"};
  return {Verdict::kOk,
          fmt::format("{}: programs under airdma run do not see it", fmt::join(names, ", "))};
}

std::string find_program(const std::string& name) {
  const char* path = std::getenv("PATH");
  std::istringstream folders(path != nullptr ? path : "");
  for (std::string folder; std::getline(folders, folder, ':');) {
    const std::string candidate = folder + "/" + name;
    if (::access(candidate.c_str(), X_OK) == 0) return candidate;
  }
  return {};
}

Finding check_programs() {
  std::vector<std::string> found;
  std::vector<std::string> privileged;
  for (const char* name : {"rping", "ucmatose", "ibv_devinfo", "ib_write_bw", "qperf"}) {
    const std::string path = find_program(name);
    struct stat info {};
    if (path.empty() || ::stat(path.c_str(), &info) != 0) continue;
    found.emplace_back(name);
    if ((info.st_mode & (S_ISUID | S_ISGID)) != 0) privileged.emplace_back(name);
  }
  if (!privileged.empty()) {
    return {Verdict::kWarn, fmt::format("the loader ignores airdma run for setuid programs: {}",
                                        fmt::join(privileged, ", "))};
  }
  if (found.empty()) {
    return {Verdict::kWarn,
            "none of the usual ones in PATH (Debian: rdmacm-utils, ibverbs-utils, perftest)"};
  }
  return {Verdict::kOk, fmt::format("in PATH: {}", fmt::join(found, ", "))};
}

Finding check_preload() {
  const char* preload = std::getenv("LD_PRELOAD");
  if (preload != nullptr && *preload != '\0') {
    return {Verdict::kWarn, fmt::format("LD_PRELOAD={} is loaded before airdma", preload)};
  }
  return {Verdict::kOk, "no LD_PRELOAD"};
}

constexpr Check kChecks[] = {
    {"libraries", check_libraries},
    {"devices", check_devices},
    {"RDMA hardware", check_rdma_hardware},
    {"programs", check_programs},
    {"loader", check_preload},
};

}  // namespace

std::span<const Check> product_checks() { return kChecks; }

}  // namespace airdma::tool
