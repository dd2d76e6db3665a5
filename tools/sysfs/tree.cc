// SPDX-License-Identifier: MIT
#include "sysfs/tree.h"

#include <dlfcn.h>
#include <endian.h>
#include <fcntl.h>
#include <infiniband/verbs.h>
#include <linux/netlink.h>
#include <linux/rtnetlink.h>
#include <net/if.h>
#include <pthread.h>
#include <sys/socket.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <climits>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <mutex>

namespace airdma::sysfs {
namespace {

constexpr std::string_view kRoots[] = {"/sys/class/infiniband", "/sys/class/infiniband_verbs",
                                       "/dev/infiniband"};
constexpr auto kFresh = std::chrono::milliseconds(100);
constexpr unsigned kVerbsMajor = 231;  // as the kernel numbers /dev/infiniband/uverbs0
constexpr unsigned kFirstMinor = 192;
constexpr unsigned kMiscMajor = 10;

/// The functions of <infiniband/verbs.h>, from the library that the program uses or would use.
struct Verbs {
  decltype(&::ibv_free_device_list) free_device_list = nullptr;
  ibv_device** (*get_device_list)(int*) = nullptr;
  decltype(&::ibv_open_device) open_device = nullptr;
  decltype(&::ibv_close_device) close_device = nullptr;
  decltype(&::ibv_query_device) query_device = nullptr;
  decltype(&::_ibv_query_gid_ex) query_gid_ex = nullptr;
  int (*query_port)(ibv_context*, std::uint8_t, _compat_ibv_port_attr*) = nullptr;
  decltype(&::ibv_query_pkey) query_pkey = nullptr;

  [[nodiscard]] bool complete() const {
    return free_device_list != nullptr && get_device_list != nullptr && open_device != nullptr &&
           close_device != nullptr && query_device != nullptr && query_gid_ex != nullptr &&
           query_port != nullptr && query_pkey != nullptr;
  }
};

template <class Function>
void look_up(void* library, const char* name, Function& function) {
  function = reinterpret_cast<Function>(::dlsym(library, name));
}

Verbs load_verbs() {
  Verbs verbs;
  void* library = ::dlopen("libibverbs.so.1", RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) return verbs;
  look_up(library, "ibv_free_device_list", verbs.free_device_list);
  look_up(library, "ibv_get_device_list", verbs.get_device_list);
  look_up(library, "ibv_open_device", verbs.open_device);
  look_up(library, "ibv_close_device", verbs.close_device);
  look_up(library, "ibv_query_device", verbs.query_device);
  look_up(library, "_ibv_query_gid_ex", verbs.query_gid_ex);
  look_up(library, "ibv_query_port", verbs.query_port);
  look_up(library, "ibv_query_pkey", verbs.query_pkey);
  return verbs;
}

template <class... Values>
std::string print(const char* format, Values... values) {
  char text[256];
  std::snprintf(text, sizeof text, format, values...);
  return text;
}

std::string guid_text(__be64 guid) {
  const std::uint64_t value = be64toh(guid);
  const auto part = [&](int at) { return static_cast<unsigned>(value >> at & 0xffff); };
  return print("%04x:%04x:%04x:%04x\n", part(48), part(32), part(16), part(0));
}

std::string gid_text(const ibv_gid& gid) {
  std::string text;
  for (int i = 0; i < 16; i += 2) {
    text +=
        print(i == 0 ? "%02x%02x" : ":%02x%02x", unsigned{gid.raw[i]}, unsigned{gid.raw[i + 1]});
  }
  return text + '\n';
}

const char* state_text(int state) {
  constexpr const char* kTexts[] = {"0: NOP\n",   "1: DOWN\n",   "2: INIT\n",
                                    "3: ARMED\n", "4: ACTIVE\n", "5: ACTIVE_DEFER\n"};
  return state >= 0 && state < 6 ? kTexts[state] : "0: NOP\n";
}

const char* physical_text(int state) {
  constexpr const char* kTexts[] = {"0: <unknown>\n",
                                    "1: Sleep\n",
                                    "2: Polling\n",
                                    "3: Disabled\n",
                                    "4: PortConfigurationTraining\n",
                                    "5: LinkUp\n",
                                    "6: LinkErrorRecovery\n",
                                    "7: Phy Test\n"};
  return state >= 0 && state < 8 ? kTexts[state] : kTexts[0];
}

/// Lanes of the link, and tenths of a Gbit/s of each.
std::string rate_text(const ibv_port_attr& port) {
  struct Row {
    int code;
    int value;
    const char* name;
  };
  constexpr Row kLanes[] = {{1, 1, ""}, {2, 4, ""}, {4, 8, ""}, {8, 12, ""}, {16, 2, ""}};
  constexpr Row kSpeeds[] = {{1, 25, " SDR"},    {2, 50, " DDR"},    {4, 100, " QDR"},
                             {8, 100, " FDR10"}, {16, 140, " FDR"},  {32, 250, " EDR"},
                             {64, 500, " HDR"},  {128, 1000, " NDR"}};
  Row lanes = kLanes[0];
  Row speed = kSpeeds[0];
  for (const Row& row : kLanes) {
    if (row.code == port.active_width) lanes = row;
  }
  for (const Row& row : kSpeeds) {
    if (row.code == port.active_speed) speed = row;
  }
  const int tenths = lanes.value * speed.value;
  const std::string half = tenths % 10 != 0 ? print(".%d", tenths % 10) : std::string();
  return print("%d%s Gb/sec (%dX%s)\n", tenths / 10, half.c_str(), lanes.value, speed.name);
}

/// Fills a tree with what one device has.
class Painter {
 public:
  Painter(Tree& tree, const Verbs& verbs) : tree_(tree), verbs_(verbs) {}

  void paint(ibv_device& device) {
    ibv_context* context = verbs_.open_device(&device);
    if (context == nullptr) return;
    name_ = device.name;
    top_ = "/sys/class/infiniband/" + name_;
    const std::size_t underscore = name_.find('_');
    interface_ = underscore == std::string::npos ? "" : name_.substr(underscore + 1);
    paint_device(device, *context);
    paint_port(*context);
    paint_hardware();
    paint_verbs(device);
    verbs_.close_device(context);
  }
  void directory(const std::string& path) { tree_.try_emplace(path); }
  void file(const std::string& path, std::string text, int error = 0) {
    for (std::size_t at = path.rfind('/'); at > 0; at = path.rfind('/', at - 1)) {
      if (!tree_.try_emplace(path.substr(0, at)).second) break;
    }
    tree_[path] = {.kind = Node::Kind::kFile, .text = std::move(text), .error = error, .device = 0};
  }
  void device(const std::string& path, dev_t number) {
    // Opening it is the libraries' business, and they have no kernel behind it.
    tree_[path] = {
        .kind = Node::Kind::kCharacterDevice, .text = "", .error = ENXIO, .device = number};
  }

 private:
  void paint_device(const ibv_device& device, ibv_context& context) {
    ibv_device_attr attr{};
    if (verbs_.query_device(&context, &attr) != 0) return;
    char host[HOST_NAME_MAX + 1] = {};
    ::gethostname(host, sizeof host - 1);
    const bool adapter = device.node_type == IBV_NODE_CA;
    file(top_ + "/node_type", adapter ? "1: CA\n" : "4: RNIC\n");
    file(top_ + "/node_guid", guid_text(attr.node_guid));
    file(top_ + "/sys_image_guid", guid_text(attr.sys_image_guid));
    file(top_ + "/node_desc", print("%.63s\n", (std::string(host) + ' ' + name_).c_str()));
    file(top_ + "/fw_ver", print("%.63s\n", attr.fw_ver));
    file(top_ + "/hw_rev", print("%x\n", attr.hw_ver));
    file(top_ + "/hca_type", "airdma\n");
    file(top_ + "/board_id", "airdma\n");
    file(top_ + "/parent", interface_ + '\n');
    file(top_ + "/uevent", "NAME=" + name_ + '\n');
  }

  void paint_port(ibv_context& context) {
    ibv_port_attr port{};
    auto* small = reinterpret_cast<_compat_ibv_port_attr*>(&port);
    if (verbs_.query_port(&context, 1, small) != 0) return;
    const std::string top = top_ + "/ports/1";
    file(top + "/state", state_text(port.state));
    file(top + "/phys_state", physical_text(port.phys_state));
    file(top + "/rate", rate_text(port));
    file(top + "/link_layer",
         port.link_layer == IBV_LINK_LAYER_ETHERNET ? "Ethernet\n" : "InfiniBand\n");
    file(top + "/lid", print("0x%x\n", port.lid));
    file(top + "/lid_mask_count", print("%d\n", port.lmc));
    file(top + "/sm_lid", print("0x%x\n", port.sm_lid));
    file(top + "/sm_sl", print("%d\n", port.sm_sl));
    file(top + "/cap_mask", print("0x%08x\n", port.port_cap_flags));
    for (int i = 0; i < port.gid_tbl_len; ++i) paint_gid(context, top, static_cast<unsigned>(i));
    for (int i = 0; i < port.pkey_tbl_len; ++i) {
      __be16 pkey = 0;
      if (verbs_.query_pkey(&context, 1, i, &pkey) != 0) continue;
      file(top + print("/pkeys/%d", i), print("0x%04x\n", be16toh(pkey)));
    }
  }

  /// An unused entry is there, all zero, and has no attributes to read.
  void paint_gid(ibv_context& context, const std::string& top, unsigned index) {
    ibv_gid_entry entry{};
    const bool used = verbs_.query_gid_ex(&context, 1, index, &entry, 0, sizeof entry) == 0;
    if (!used) entry = {};
    char interface[IF_NAMESIZE] = {};
    const bool named = used && ::if_indextoname(entry.ndev_ifindex, interface) != nullptr;
    const bool second = entry.gid_type == IBV_GID_TYPE_ROCE_V2;
    file(top + print("/gids/%u", index), gid_text(entry.gid));
    file(top + print("/gid_attrs/types/%u", index), second ? "RoCE v2\n" : "IB/RoCE v1\n",
         used ? 0 : EINVAL);
    file(top + print("/gid_attrs/ndevs/%u", index), print("%s\n", interface), named ? 0 : EINVAL);
  }

  /// Leads to the interface's own hardware where that is all that programs expect (a PCI device).
  /// Else what can be read of it, or of what it is plugged into, and what is true of none.
  void paint_hardware() {
    const std::string top = top_ + "/device";
    char real[PATH_MAX] = {};
    const bool any =
        ::realpath(("/sys/class/net/" + interface_ + "/device").c_str(), real) != nullptr;
    const std::string hardware = any ? real : "";
    if (any && !read_text(hardware + "/local_cpus").empty()) {
      tree_[top] = {.kind = Node::Kind::kLink, .text = hardware, .error = 0, .device = 0};
      return;
    }
    const long processors = ::sysconf(_SC_NPROCESSORS_CONF);
    const std::string last = print("0-%ld\n", processors > 0 ? processors - 1 : 0);
    const std::string defaults[][2] = {
        {"vendor", "0x0000\n"}, {"device", "0x0000\n"},  {"class", "0x020000\n"},
        {"numa_node", "-1\n"},  {"local_cpulist", last}, {"local_cpus", cpu_mask(processors)}};
    for (const auto& [name, value] : defaults) {
      std::string text = any ? read_text(hardware + "/" + name) : "";
      if (any && text.empty()) text = read_text(hardware + "/../" + name);
      file(top + "/" + name, text.empty() ? value : text);
    }
    file(top + "/net/" + interface_ + "/ifindex",
         print("%u\n", ::if_nametoindex(interface_.c_str())));
    directory(top + "/infiniband");
    directory(top + "/infiniband/" + name_);
  }

  static std::string read_text(const std::string& path) {
    char text[512];
    const int fd = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
    if (fd < 0) return "";
    const ssize_t got = ::read(fd, text, sizeof text);
    ::close(fd);
    return std::string(text, got > 0 ? static_cast<std::size_t>(got) : 0);
  }

  /// Words of 32 bits, the highest first.
  static std::string cpu_mask(long processors) {
    std::string text;
    for (long first = (processors - 1) / 32 * 32; first >= 0; first -= 32) {
      const long here = processors - first;
      const unsigned word = here >= 32 ? ~0u : (1u << here) - 1;
      text += print(text.empty() ? "%x" : ",%08x", word);
    }
    return text + '\n';
  }

  void paint_verbs(const ibv_device& device) {
    const std::string node = device.dev_name;
    const std::string top = "/sys/class/infiniband_verbs/" + node;
    const unsigned minor = kFirstMinor + static_cast<unsigned>(std::atoi(node.c_str() + 6));
    file(top + "/ibdev", name_ + '\n');
    file(top + "/abi_version", "1\n");
    file(top + "/dev", print("%u:%u\n", kVerbsMajor, minor));
    this->device("/dev/infiniband/" + node, makedev(kVerbsMajor, minor));
  }

  Tree& tree_;
  const Verbs& verbs_;
  std::string name_;
  std::string top_;
  std::string interface_;
};

/// Hears of each change of an address or interface, which the kernel tells before the change's own
/// call returns: so a tree that no message has come since is what the verbs would say now.
class ChangeWatch {
 public:
  ChangeWatch() = default;
  ChangeWatch(const ChangeWatch&) = delete;
  ChangeWatch& operator=(const ChangeWatch&) = delete;

  /// In a fork() child too: the parent's messages are the parent's.
  void restart() {
    if (fd_ >= 0) ::close(fd_);
    fd_ = ::socket(AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC | SOCK_NONBLOCK, NETLINK_ROUTE);
    sockaddr_nl address{};
    address.nl_family = AF_NETLINK;
    address.nl_groups = RTMGRP_LINK | RTMGRP_IPV4_IFADDR | RTMGRP_IPV6_IFADDR;
    if (fd_ >= 0 && ::bind(fd_, reinterpret_cast<sockaddr*>(&address), sizeof address) == 0) return;
    if (fd_ >= 0) ::close(fd_);
    fd_ = -1;
  }
  /// Since the last time; false when nobody tells.
  [[nodiscard]] bool unchanged() const {
    bool quiet = fd_ >= 0;
    char message[1024];
    while (fd_ >= 0) {
      const ssize_t got = ::recv(fd_, message, sizeof message, 0);
      if (got < 0 && errno == EAGAIN) break;
      quiet = false;  // a message, or ENOBUFS: some were lost
      if (got < 0 && errno != EINTR && errno != ENOBUFS) break;
    }
    return quiet;
  }

 private:
  int fd_ = -1;
};

std::shared_ptr<const Tree> render() {
  auto tree = std::make_shared<Tree>();
  static const Verbs verbs = load_verbs();
  Painter painter(*tree, verbs);
  for (const std::string_view root : kRoots) painter.directory(std::string(root));
  painter.file("/sys/class/infiniband_verbs/abi_version", "6\n");
  painter.device("/dev/infiniband/rdma_cm", makedev(kMiscMajor, 121));
  if (!verbs.complete()) return tree;
  ibv_device** list = verbs.get_device_list(nullptr);
  for (ibv_device** device = list; device != nullptr && *device != nullptr; ++device) {
    painter.paint(**device);
  }
  if (list != nullptr) verbs.free_device_list(list);
  return tree;
}

}  // namespace

std::vector<std::string> children(const Tree& tree, const std::string& directory) {
  const std::string prefix = directory + '/';
  std::vector<std::string> names;
  for (auto at = tree.lower_bound(prefix); at != tree.end() && at->first.starts_with(prefix);
       ++at) {
    const std::string_view rest = std::string_view(at->first).substr(prefix.size());
    if (rest.find('/') == std::string_view::npos) names.emplace_back(rest);
  }
  return names;
}

bool is_covered(std::string_view path) {
  for (const std::string_view root : kRoots) {
    if (path == root || (path.starts_with(root) && path[root.size()] == '/')) return true;
  }
  return false;
}

std::shared_ptr<const Tree> current_tree() {
  using Clock = std::chrono::steady_clock;
  struct Cache {
    std::mutex mutex;
    std::shared_ptr<const Tree> tree;
    Clock::time_point made;
    ChangeWatch watch;
    pid_t owner = 0;  // a fork() child renders its own
  };
  static Cache& cache = *new Cache;  // programs read in their exit handlers, too
  static const int guarded =
      ::pthread_atfork([] { cache.mutex.lock(); },  // none is held in a child
                       [] { cache.mutex.unlock(); }, [] { cache.mutex.unlock(); });
  (void)guarded;
  std::lock_guard lock(cache.mutex);
  if (cache.owner != ::getpid()) {
    cache.owner = ::getpid();
    cache.tree = nullptr;
    cache.watch.restart();
  }
  const bool current = cache.watch.unchanged();
  if (cache.tree == nullptr || !current || Clock::now() - cache.made > kFresh) {
    cache.tree = render();
    cache.made = Clock::now();
  }
  return cache.tree;
}

}  // namespace airdma::sysfs
