// SPDX-License-Identifier: MIT
// What connected queue pairs cost that do nothing: bench_idle_qps CONNECTIONS SECONDS connects to
// itself over 127.0.0.1 and prints the memory per queue pair, and how much CPU time and how many
// wake-ups the process had while all of them were idle.
#include <dirent.h>
#include <rdma/rdma_cma.h>
#include <sys/resource.h>
#include <time.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <sstream>
#include <string>
#include <thread>
#include <vector>

namespace {

constexpr unsigned kDepth = 64;  // work requests in each queue

void require(bool good, const char* what) {
  if (good) return;
  std::perror(what);
  std::_Exit(1);
}

/// Resident bytes of this process.
long resident() {
  std::ifstream file("/proc/self/statm");
  long total = 0;
  long pages = 0;
  file >> total >> pages;
  return pages * sysconf(_SC_PAGESIZE);
}

struct Activity {
  long ticks = 0;    // user and system time of the whole process
  long wakeups = 0;  // times any thread went to sleep: one for each that it woke up
};

Activity activity() {
  Activity now;
  DIR* tasks = opendir("/proc/self/task");
  require(tasks != nullptr, "/proc/self/task");
  while (const dirent* task = readdir(tasks)) {
    if (task->d_name[0] == '.') continue;
    const std::string path = std::string("/proc/self/task/") + task->d_name;
    std::ifstream status(path + "/status");
    for (std::string line; std::getline(status, line);) {
      if (line.starts_with("voluntary_ctxt_switches:")) now.wakeups += std::stol(line.substr(24));
    }
    std::stringstream stat;
    stat << std::ifstream(path + "/stat").rdbuf();
    std::istringstream fields(stat.str().substr(stat.str().rfind(')') + 1));
    std::string skipped;
    for (int i = 0; i < 11; ++i) fields >> skipped;
    long user = 0;
    long system = 0;
    fields >> user >> system;
    now.ticks += user + system;
  }
  closedir(tasks);
  return now;
}

rdma_addrinfo* address(int flags) {
  rdma_addrinfo hints{};
  hints.ai_flags = flags;
  hints.ai_port_space = RDMA_PS_TCP;
  rdma_addrinfo* found = nullptr;
  require(rdma_getaddrinfo("127.0.0.1", "18599", &hints, &found) == 0, "rdma_getaddrinfo");
  return found;
}

class Connections {
 public:
  Connections() {
    rdma_addrinfo* passive = address(RAI_PASSIVE);
    require(rdma_create_ep(&listener_, passive, nullptr, nullptr) == 0, "rdma_create_ep");
    rdma_freeaddrinfo(passive);
    require(rdma_listen(listener_, 128) == 0, "rdma_listen");
    pd_ = ibv_alloc_pd(listener_->verbs);
    require(pd_ != nullptr, "ibv_alloc_pd");
    cq_ = ibv_create_cq(listener_->verbs, 1024, nullptr, nullptr, 0);
    require(cq_ != nullptr, "ibv_create_cq");
  }

  void open(int count) {
    std::thread server([this, count] {
      for (int i = 0; i < count; ++i) accept_one();
    });
    for (int i = 0; i < count; ++i) connect_one();
    server.join();
  }

  void close() {
    // Not rdma_disconnect(): it waits for the other end, which is this thread's, too.
    for (auto* ids : {&clients_, &servers_}) {
      for (rdma_cm_id* id : *ids) {
        rdma_destroy_qp(id);
        rdma_destroy_id(id);
      }
    }
    rdma_destroy_ep(listener_);
    ibv_destroy_cq(cq_);
    ibv_dealloc_pd(pd_);
  }

 private:
  ibv_qp_init_attr attributes() const {
    ibv_qp_init_attr wanted{};
    wanted.send_cq = wanted.recv_cq = cq_;
    wanted.qp_type = IBV_QPT_RC;
    wanted.cap = {kDepth, kDepth, 1, 1, 0};
    return wanted;
  }
  void accept_one() {
    rdma_cm_id* id = nullptr;
    require(rdma_get_request(listener_, &id) == 0, "rdma_get_request");
    ibv_qp_init_attr wanted = attributes();
    require(rdma_create_qp(id, pd_, &wanted) == 0, "rdma_create_qp");
    require(rdma_accept(id, nullptr) == 0, "rdma_accept");
    servers_.push_back(id);
  }
  void connect_one() {
    rdma_addrinfo* active = address(0);
    rdma_cm_id* id = nullptr;
    ibv_qp_init_attr wanted = attributes();
    require(rdma_create_ep(&id, active, pd_, &wanted) == 0, "rdma_create_ep");
    rdma_freeaddrinfo(active);
    require(rdma_connect(id, nullptr) == 0, "rdma_connect");
    clients_.push_back(id);
  }

  rdma_cm_id* listener_ = nullptr;
  ibv_pd* pd_ = nullptr;
  ibv_cq* cq_ = nullptr;
  std::vector<rdma_cm_id*> clients_;
  std::vector<rdma_cm_id*> servers_;
};

}  // namespace

int main(int argc, char** argv) {
  if (argc != 3) {
    std::fprintf(stderr, "usage: bench_idle_qps CONNECTIONS SECONDS\n");
    return 2;
  }
  const int count = std::atoi(argv[1]);
  const int seconds = std::atoi(argv[2]);
  rlimit files{};
  getrlimit(RLIMIT_NOFILE, &files);
  files.rlim_cur = files.rlim_max;
  setrlimit(RLIMIT_NOFILE, &files);

  Connections connections;
  connections.open(1);  // what the first one starts is not counted
  const long before = resident();
  connections.open(count);
  const long bytes = resident() - before;
  sleep(1);  // timers of connection setup run out
  const Activity start = activity();
  sleep(static_cast<unsigned>(seconds));
  const Activity end = activity();
  // This thread's own sleep is one wake-up.
  std::printf("%d queue pairs idle for %d s: %ld CPU ticks, %ld wake-ups, %.1f KiB each\n",
              2 * count, seconds, end.ticks - start.ticks, end.wakeups - start.wakeups - 1,
              static_cast<double>(bytes) / (2 * count) / 1024);
  connections.close();
  return 0;
}
