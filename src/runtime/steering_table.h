// SPDX-License-Identifier: MIT
// How the kernel is told which of the processes that share UDP port 4791 a packet is for. A classic
// BPF program looks at the destination queue pair number and returns the owner's index among the
// sockets of the port. The table it is made of is in no file and no memory that is shared: it is
// the set of abstract socket names that the processes hold, which the kernel keeps true whoever
// dies.
//   airdma/udp/<block>/<IPv4 index>/<IPv6 index>    a process's numbers and sockets; '-' for none
//   airdma/cmo/<service>/<block>                    a service of the connection manager, in hex
// docs/decisions/0010 tells the whole of it.
#pragma once

#include <linux/filter.h>

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace airdma::runtime {

/// A process's sockets among those of the port, in the order that the kernel keeps.
struct SteeringIndices {
  std::optional<std::uint32_t> v4;
  std::optional<std::uint32_t> v6;
  friend bool operator==(const SteeringIndices&, const SteeringIndices&) = default;
};

struct SteeringTable {
  struct Block {
    std::uint32_t block = 0;
    SteeringIndices indices;
    std::string name;  // of the socket that says so
    friend bool operator==(const Block&, const Block&) = default;
  };
  struct Service {
    std::uint32_t service = 0;  // port space << 16 | port
    std::uint32_t block = 0;
    friend bool operator==(const Service&, const Service&) = default;
  };
  std::vector<Block> blocks;
  std::vector<Service> services;

  /// As it stands in this network namespace now.
  static SteeringTable read();
  /// Takes a name in; others than the two kinds change nothing.
  void add(std::string_view name);
  void sort();
  friend bool operator==(const SteeringTable&, const SteeringTable&) = default;

  static std::string name_of(std::uint32_t block, const SteeringIndices& indices);
  static std::string name_of(const Service& service);
};

/// A packet that a process sends to itself, to learn the index of its own socket: the program gives
/// it to the index it names, whatever the table says. Its first byte is no opcode that packets use.
struct SteeringProbe {
  static constexpr std::uint16_t kMark = 0xffa1;
  static constexpr std::size_t kBytes = 20;

  std::uint16_t index = 0;
  std::uint64_t sender = 0;  // a random number of the process's
  std::uint64_t round = 0;

  void write(std::byte (&packet)[kBytes]) const;
  /// Nothing when it is another packet.
  static std::optional<SteeringProbe> read(const std::byte* packet, std::size_t bytes);
};

/// The program for the sockets of one family. What it does not know is left to the kernel's choice,
/// and requests for unknown services go to any of the sockets.
std::vector<sock_filter> steering_program(const SteeringTable& table, bool v6);

}  // namespace airdma::runtime
