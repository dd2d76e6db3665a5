// SPDX-License-Identifier: MIT
// airdma's libibverbs.so.1, loaded by path: this program must show airdma's devices whatever the
// loader's path says.
#pragma once

#include <infiniband/verbs.h>

#include <string>

namespace airdma::tool {

/// The functions of the library that this program calls; null when not loaded.
struct VerbsLibrary {
  decltype(&::ibv_get_device_list) get_device_list = nullptr;
  decltype(&::ibv_free_device_list) free_device_list = nullptr;
  decltype(&::ibv_get_device_name) get_device_name = nullptr;
  decltype(&::ibv_get_device_guid) get_device_guid = nullptr;
  decltype(&::ibv_open_device) open_device = nullptr;
  decltype(&::ibv_close_device) close_device = nullptr;
  int (*query_port)(ibv_context*, std::uint8_t, ibv_port_attr*) = nullptr;
  decltype(&::ibv_query_gid) query_gid = nullptr;

  std::string problem;  // why it could not be loaded; empty when it was

  /// Loads the library for the rest of this process's life.
  [[nodiscard]] static VerbsLibrary load(const std::string& directory);
};

}  // namespace airdma::tool
