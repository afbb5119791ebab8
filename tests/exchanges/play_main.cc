// exchange_player: see README.md.
#include <CLI/CLI.hpp>
#include <cstdio>
#include <cstdlib>
#include <iostream>
#include <memory>
#include <sstream>

#include "absl/strings/strip.h"
#include "examples/parse_flags.h"
#include "millrace/cluster/server.h"
#include "millrace/net/grpc/grpc_transport.h"
#include "tests/exchanges/player.h"
#include "tests/golden/archive.h"
#include "tests/late/late_device.h"

namespace millrace::exchanges {
namespace {

struct Flags {
  std::string archive;
  std::string target;
  std::string only;
  bool late = false;
  bool cpu = false;
};

// A line of index.txt: "NAME any|gpu RTOL ATOL"; "gpu": it cannot run without one.
struct Program {
  std::string name;
  std::string needs;
  Tolerance tolerance;
};

StatusOr<std::vector<Program>> ReadIndex(const std::map<std::string, std::string>& files) {
  const auto index = files.find("index.txt");
  if (index == files.end()) return DataLoss("there is no index.txt in the archive");
  std::vector<Program> programs;
  std::istringstream lines(index->second);
  Program p;
  while (lines >> p.name >> p.needs >> p.tolerance.rtol >> p.tolerance.atol) programs.push_back(p);
  if (!lines.eof() || programs.empty()) return DataLoss("index.txt is damaged after ", programs.size(), " programs");
  return programs;
}

StatusOr<bool> HasGpu(net::Channel* server) {
  MR_ASSIGN_OR_RETURN(const net::Bytes answer, CallAndWait(server, "ListDevices", net::Bytes()));
  pb::ListDevicesResponse devices;
  MR_RETURN_IF_ERROR(net::Parse(answer, &devices));
  for (const pb::DeviceAttributes& device : devices.local_device()) {
    if (device.device_type() == "GPU") return true;
  }
  return false;
}

StatusOr<Played> PlayProgram(net::Channel* server, const Program& program, bool has_gpu,
                             const std::map<std::string, std::string>& files) {
  const auto file = files.find(program.name + ".exchanges");
  if (file == files.end()) return DataLoss("there is no ", program.name, ".exchanges in the archive");
  MR_ASSIGN_OR_RETURN(const std::vector<Exchange> exchanges, Read(file->second));
  // Variables of an earlier program may have the same names.
  MR_RETURN_IF_ERROR(CallAndWait(server, "Reset", net::Bytes()).status());
  return Player(server, program.tolerance, has_gpu).Play(exchanges);
}

// The number of programs that failed.
StatusOr<int> PlayAll(const Flags& flags) {
  MR_ASSIGN_OR_RETURN(const auto files, golden::ReadArchive(flags.archive));
  MR_ASSIGN_OR_RETURN(const std::vector<Program> programs, ReadIndex(files));
  std::unique_ptr<Server> own;
  std::string target = flags.target;
  if (target.empty()) {
    if (flags.late) late::UseLateGpus(1);
    MR_ASSIGN_OR_RETURN(own, Server::CreateLocalServer({.gpu_devices = flags.cpu ? 0 : -1}));
    target = own->target();
  }
  const std::unique_ptr<net::Transport> transport = net::NewGrpcTransport();
  const auto server = transport->Connect(std::string(absl::StripPrefix(target, "grpc://")));
  MR_ASSIGN_OR_RETURN(const bool has_gpu, HasGpu(server.get()));
  int passed = 0, failed = 0, skipped = 0;
  std::printf("%-24s %9s %9s %9s\n", "program", "exchanges", "on GPU", "on CPU");
  for (const Program& program : programs) {
    if (!flags.only.empty() && program.name != flags.only) continue;
    if (program.needs == "gpu" && !has_gpu) {
      ++skipped;
      std::printf("%-24s skipped: it needs a GPU\n", program.name.c_str());
      continue;
    }
    const StatusOr<Played> played = PlayProgram(server.get(), program, has_gpu, files);
    ++(played.ok() ? passed : failed);
    if (played.ok()) {
      std::printf("%-24s %9d %9d %9d  passed\n", program.name.c_str(), played->exchanges, played->gpu_nodes,
                  played->cpu_nodes);
    } else {
      std::printf("%-24s FAILED: %s\n", program.name.c_str(), std::string(played.status().message()).c_str());
    }
    std::fflush(stdout);
  }
  std::printf("all %d of %d passed %d skipped, %s\n", passed, passed + failed + skipped, skipped,
              has_gpu ? "with a GPU" : "without a GPU");
  if (passed + failed + skipped == 0) return NotFound("there is no program ", flags.only);
  return failed;
}

}  // namespace
}  // namespace millrace::exchanges

int main(int argc, char** argv) {
  millrace::exchanges::Flags flags;
  CLI::App app(
      "Sends what client programs of TensorFlow's sent to a server once more, and compares the answers, and where "
      "nodes "
      "ran.",
      "exchange_player");
  app.add_option("archive", flags.archive, "the recorded programs, a .tar.xz")->required();
  app.add_option("--program", flags.only, "only this one");
  auto* const target =
      app.add_option("--target", flags.target, "the server, grpc://host:port; by default, one of this process");
  app.add_flag("--late", flags.late, "with a GPU that is made of host memory (tests/late)")->excludes(target);
  app.add_flag("--cpu", flags.cpu, "without GPUs")->excludes(target);
  if (const std::optional<int> status = ParseFlags(app, argc, argv)) return *status;
  setenv("MILLRACE_TF32", "0", 0);  // the answers are of float
  const millrace::StatusOr<int> failed = millrace::exchanges::PlayAll(flags);
  if (failed.ok()) return *failed == 0 ? 0 : 1;
  std::cerr << "exchange_player: " << failed.status().message() << "\n";
  return 2;
}
