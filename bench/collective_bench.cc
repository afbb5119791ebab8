// Measures all-reduce between processes of this host.
//
//   collective_bench [--ranks 2,4] [--sizes 1024,1048576,...] [--kind shm] [--algorithm auto] [--fixed_order]
//
// Prints a JSON line for each number of ranks and size: the time of one operation of several back to back, on the rank
// that takes longest, and the processor time of a rank; as the programs of the peers do
// (bench/peers/torch_allreduce.py, mpi_allreduce.cc).
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdio>
#include <ctime>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "millrace/base/clock.h"
#include "millrace/collective/blocking.h"
#include "millrace/net/grpc/grpc_transport.h"
#include "millrace/net/lane/lane_transport.h"

namespace {

using namespace millrace;
using namespace millrace::collective;

struct Settings {
  std::vector<size_t> sizes;
  net::LaneKind kind = net::LaneKind::kAuto;
  AlgorithmKind algorithm = AlgorithmKind::kAuto;
  bool fixed_order = false;
  int repeats = 5;
  size_t chunk_bytes = 0;
  int chunks_ahead = 0;
  int hosts = 1;
};

void Check(const Status& status) {
  if (status.ok()) return;
  std::fprintf(stderr, "collective_bench: %s\n", status.ToString().c_str());
  _exit(1);
}

double CpuMilliseconds() {
  timespec time{};
  MR_CHECK(clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &time) == 0);
  return 1e3 * static_cast<double>(time.tv_sec) + 1e-6 * static_cast<double>(time.tv_nsec);
}

template <typename T>
void Exchange(int in, int out, const T& own, std::vector<T>* all) {
  MR_CHECK(write(out, &own, sizeof(own)) == sizeof(own));
  char* to = reinterpret_cast<char*>(all->data());
  for (size_t left = all->size() * sizeof(T); left > 0;) {
    const ssize_t got = read(in, to, left);
    MR_CHECK(got > 0);
    to += got;
    left -= static_cast<size_t>(got);
  }
}

int Calls(size_t size) { return size <= 4096 ? 2000 : size <= (1 << 20) ? 200 : size <= (32 << 20) ? 20 : 8; }

void RunRank(int rank, int ranks, int in, int out, const Settings& settings) {
  auto transport = net::NewLaneTransport(net::NewGrpcTransport(), {.kind = settings.kind});
  CollectiveService service;
  auto listener = transport->Listen("localhost:0", &service);
  Check(listener.status());
  std::vector<int> ports(ranks);
  Exchange(in, out, (*listener)->port(), &ports);
  GroupOptions options{.key = "bench", .rank = rank, .transport = transport.get()};
  if (settings.chunk_bytes > 0) options.chunk_bytes = settings.chunk_bytes;
  if (settings.chunks_ahead > 0) options.chunks_ahead = settings.chunks_ahead;
  for (int other = 0; other < ranks; ++other) {
    options.ranks.push_back({.address = absl::StrCat("localhost:", ports[other]),
                             .host = absl::StrCat("host", other * settings.hosts / ranks)});
  }
  auto group = CollectiveGroup::Make(&service, options);
  Check(group.status());
  for (const size_t size : settings.sizes) {
    std::vector<float> values(size / sizeof(float)), shard = values;
    const auto reduce = [&] {
      if (!settings.fixed_order)
        return Check(
            AllReduce(**group, ElementsOf(absl::MakeSpan(values)), Reduction::kSum, {.algorithm = settings.algorithm}));
      Check(FixedOrderAllReduce(**group, {{{rank, rank + 1}, shard.data()}}, ElementsOf(absl::MakeSpan(values)),
                                Reduction::kSum, EvenOwners(ranks, ranks)));
    };
    for (int i = 0; i < 3; ++i) reduce();
    std::vector<double> times, cpu_times;
    for (int repeat = 0; repeat <= settings.repeats; ++repeat) {
      Check(Barrier(**group));
      const absl::Time begun = Clock::Real()->Now();
      const double cpu_begun = CpuMilliseconds();
      for (int i = 0; i < Calls(size); ++i) reduce();
      double time = absl::ToDoubleMilliseconds(Clock::Real()->Now() - begun) / Calls(size);
      double cpu = (CpuMilliseconds() - cpu_begun) / Calls(size);
      Check(AllReduce(**group, {&time, 1, DType::kDouble}, Reduction::kMax));
      Check(AllReduce(**group, {&cpu, 1, DType::kDouble}, Reduction::kMean));
      if (repeat == 0) continue;  // warms up
      times.push_back(time);
      cpu_times.push_back(cpu);
    }
    std::sort(times.begin(), times.end());
    std::sort(cpu_times.begin(), cpu_times.end());
    if (rank > 0) continue;
    std::printf(
        "{\"side\": \"millrace\", \"ranks\": %d, \"bytes\": %zu, \"ms\": %.5g, \"low\": %.5g, \"high\": %.5g, "
        "\"cpu_ms\": %.5g}\n",
        ranks, size, times[times.size() / 2], times.front(), times.back(), cpu_times[cpu_times.size() / 2]);
    std::fflush(stdout);
  }
  if (rank == 0) {
    for (const net::PeerStatus& peer : transport->status().peers) {
      if (!peer.why_not_better.empty())
        std::fprintf(stderr, "%s: %s\n", peer.kind.c_str(), peer.why_not_better.c_str());
    }
  }
  Check(Leave(**group));
}

// A process for each rank; this one passes on what they tell each other at the start.
void RunRanks(int ranks, const Settings& settings) {
  std::vector<pid_t> children;
  std::vector<std::pair<int, int>> pipes;  // from and to each
  for (int rank = 0; rank < ranks; ++rank) {
    int up[2], down[2];
    MR_CHECK(pipe(up) == 0 && pipe(down) == 0);
    const pid_t child = fork();
    MR_CHECK(child >= 0);
    if (child == 0) {
      prctl(PR_SET_PDEATHSIG, SIGKILL);
      RunRank(rank, ranks, down[0], up[1], settings);
      _exit(0);
    }
    children.push_back(child);
    pipes.emplace_back(up[0], down[1]);
    close(up[1]);
    close(down[0]);
  }
  std::vector<int> ports(ranks);
  for (int rank = 0; rank < ranks; ++rank) MR_CHECK(read(pipes[rank].first, &ports[rank], sizeof(int)) == sizeof(int));
  const auto bytes = static_cast<ssize_t>(ports.size() * sizeof(int));
  for (const auto& [up, down] : pipes) {
    MR_CHECK(write(down, ports.data(), static_cast<size_t>(bytes)) == bytes);
    close(up);
    close(down);
  }
  bool failed = false;
  for (const pid_t child : children) {
    int status = 0;
    waitpid(child, &status, 0);
    failed |= status != 0;
  }
  if (failed) std::exit(1);
}

}  // namespace

int main(int argc, char** argv) {
  CLI::App app("All-reduce between processes of this host");
  std::vector<int> ranks = {2, 4};
  Settings settings{.sizes = {1 << 10, 1 << 20, 25 << 20, 100 << 20}};
  std::string kind = "auto", algorithm = "auto";
  app.add_option("--ranks", ranks, "numbers of processes")->delimiter(',');
  app.add_option("--sizes", settings.sizes, "bytes")->delimiter(',');
  app.add_option("--kind", kind, "auto, shm, tcp or grpc");
  app.add_option("--algorithm", algorithm, "auto, direct, hierarchy, doubling, tree, halving or ring");
  app.add_option("--repeats", settings.repeats, "how often each size is measured");
  app.add_option("--chunk_bytes", settings.chunk_bytes, "0: the group's default");
  app.add_option("--chunks_ahead", settings.chunks_ahead, "0: the group's default");
  app.add_option("--hosts", settings.hosts, "hosts that the ranks say they are on, for the choice of algorithms");
  app.add_flag("--fixed_order", settings.fixed_order, "one logical shard for each rank, combined in a fixed tree");
  CLI11_PARSE(app, argc, argv);
  const std::map<std::string, AlgorithmKind> algorithms = {
      {"auto", AlgorithmKind::kAuto},          {"tree", AlgorithmKind::kTree},
      {"doubling", AlgorithmKind::kDoubling},  {"halving", AlgorithmKind::kHalvingDoubling},
      {"ring", AlgorithmKind::kRing},          {"direct", AlgorithmKind::kDirect},
      {"hierarchy", AlgorithmKind::kHierarchy}};
  const auto lane = net::ParseLaneKind(kind);
  if (!lane.ok() || !algorithms.contains(algorithm)) {
    std::fprintf(stderr, "collective_bench: there is no kind %s or no algorithm %s\n", kind.c_str(), algorithm.c_str());
    return 2;
  }
  settings.kind = *lane;
  settings.algorithm = algorithms.at(algorithm);
  for (const int count : ranks) RunRanks(count, settings);
  return 0;
}
