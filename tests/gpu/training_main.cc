// Trains networks on the CPU and twice on the GPU, from the same seeds and batches: the losses must agree, the two
// trainings on the GPU must end with the same bytes, and the checkpoint must continue on the CPU.
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <map>
#include <sstream>

#include "absl/strings/match.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "examples/parse_flags.h"
#include "millrace/millrace.h"
#include "tests/gpu/training_models.h"
#include "tests/late/late_device.h"

namespace millrace {
namespace {

struct Flags {
  std::string models;
  int64_t steps = 200;
  int64_t batch = 0;
  double tolerance = 1e-4;
  std::string out = "gpu_training_run";
  bool late = false;
  bool list_cpu_nodes = false;
};

struct Training {
  std::vector<float> losses;
  std::string checkpoint;  // its prefix
  double seconds = 0;      // of all steps but the first ten
  int gpu_nodes = 0;
  std::map<std::string, int> cpu_nodes;  // by op
};

struct Built {
  Built(const NamedModel& named, const Flags& flags) : scope(Scope::NewRoot()) {
    scope.SetRandomSeed(7);
    model = named.build(scope, flags.batch > 0 ? flags.batch : named.batch);
    init = GlobalVariablesInitializer(scope);
    saver = std::make_unique<Saver>(scope);
  }
  Scope scope;
  TrainingModel model;
  Operation init;
  std::unique_ptr<Saver> saver;
};

StatusOr<ClientSession> Open(const Built& built, bool on_gpu) {
  return ClientSession::Create(built.scope, {.gpu_devices = on_gpu ? 1 : 0});
}

// Where the nodes of one step ran.
Status CountNodes(ClientSession& session, const Built& built, Training* training) {
  RunMetadata metadata;
  Tensors results;
  ClientSession::Feeds feeds;
  const std::vector<Tensor> batch = built.model.batch(0);
  for (size_t i = 0; i < batch.size(); ++i) feeds.emplace_back(built.model.feeds[i], batch[i]);
  MR_RETURN_IF_ERROR(session.Run({.trace = true, .output_partition_graphs = true}, feeds, {built.model.loss}, {},
                                 &results, &metadata));
  std::map<std::string, std::string> ops;  // by node
  for (const pb::GraphDef& part : metadata.partition_graphs())
    for (const pb::NodeDef& node : part.node()) ops[node.name()] = node.op();
  for (const auto& device : metadata.step_stats().dev_stats()) {
    const bool is_gpu = absl::StrContains(device.device(), "GPU");
    for (const auto& node : device.node_stats()) {
      if (is_gpu) {
        ++training->gpu_nodes;
      } else {
        ++training->cpu_nodes[ops[node.node_name()]];
      }
    }
  }
  return absl::OkStatus();
}

StatusOr<Training> Train(const NamedModel& named, const Flags& flags, bool on_gpu, const std::string& folder) {
  Built built(named, flags);
  MR_ASSIGN_OR_RETURN(ClientSession session, Open(built, on_gpu));
  MR_RETURN_IF_ERROR(session.Run(built.init));
  MR_ASSIGN_OR_RETURN(const Step step, session.MakeStep(built.model.feeds, {built.model.loss}, {built.model.train}));
  Training training;
  constexpr int64_t kWarm = 10;
  for (int64_t i = 0; i < flags.steps; ++i) {
    const std::vector<Tensor> batch = built.model.batch(i);
    const absl::Time began = absl::Now();
    MR_ASSIGN_OR_RETURN(const Tensors told, step(batch));
    if (i >= kWarm) training.seconds += absl::ToDoubleSeconds(absl::Now() - began);
    training.losses.push_back(told[0].scalar<float>());
  }
  training.seconds /= std::max<double>(1, static_cast<double>(flags.steps - kWarm));
  MR_ASSIGN_OR_RETURN(training.checkpoint,
                      built.saver->Save(&session, folder + "/model.ckpt", {.write_meta_graph = false}));
  MR_RETURN_IF_ERROR(CountNodes(session, built, &training));
  return training;
}

// The loss of the first batch with a checkpoint's values.
StatusOr<float> LossWith(const NamedModel& named, const Flags& flags, const std::string& checkpoint, bool on_gpu) {
  Built built(named, flags);
  MR_ASSIGN_OR_RETURN(ClientSession session, Open(built, on_gpu));
  MR_RETURN_IF_ERROR(built.saver->Restore(&session, checkpoint));
  MR_ASSIGN_OR_RETURN(const Step step, session.MakeStep(built.model.feeds, {built.model.loss}));
  MR_ASSIGN_OR_RETURN(const Tensors told, step(built.model.batch(0)));
  return told[0].scalar<float>();
}

std::string Contents(const std::string& file) {
  std::stringstream all;
  all << std::ifstream(file, std::ios::binary).rdbuf();
  return all.str();
}

bool SameCheckpoints(const std::string& a, const std::string& b) {
  const std::string data = ".data-00000-of-00001", values = Contents(a + data);
  return !values.empty() && values == Contents(b + data) && Contents(a + ".index") == Contents(b + ".index");
}

// The greatest distance of two losses, relative to losses above 1.
double Distance(const std::vector<float>& a, const std::vector<float>& b) {
  double most = 0;
  for (size_t i = 0; i < a.size(); ++i) {
    const double distance = std::abs(double{a[i]} - double{b[i]}) / std::max(1.0, std::abs(double{a[i]}));
    most = std::isfinite(distance) ? std::max(most, distance) : INFINITY;
  }
  return most;
}

StatusOr<bool> Compare(const NamedModel& named, const Flags& flags) {
  const auto folder = [&](const char* which) { return absl::StrCat(flags.out, "/", named.name, "_", which); };
  MR_ASSIGN_OR_RETURN(const Training cpu, Train(named, flags, false, folder("cpu")));
  MR_ASSIGN_OR_RETURN(const Training gpu, Train(named, flags, true, folder("gpu")));
  MR_ASSIGN_OR_RETURN(const Training again, Train(named, flags, true, folder("gpu_again")));
  MR_ASSIGN_OR_RETURN(const float there, LossWith(named, flags, gpu.checkpoint, true));
  MR_ASSIGN_OR_RETURN(const float here, LossWith(named, flags, gpu.checkpoint, false));

  const double distance = Distance(cpu.losses, gpu.losses), carried = Distance({there}, {here});
  const bool same = gpu.losses == again.losses && SameCheckpoints(gpu.checkpoint, again.checkpoint);
  const bool passed = distance <= flags.tolerance && same && carried <= flags.tolerance;
  int on_cpu = 0;
  std::vector<std::string> ops;
  for (const auto& [op, count] : gpu.cpu_nodes) {
    on_cpu += count;
    ops.push_back(absl::StrCat(op, " ", count));
  }
  std::printf("%-12s %9.5f %9.5f %9.5f %10.2g  %-9s %8.2g %9.0f %9.0f  %4d of %4d  %s\n", named.name, cpu.losses[0],
              cpu.losses.back(), gpu.losses.back(), distance, same ? "same" : "DIFFER", carried, 1e6 * cpu.seconds,
              1e6 * gpu.seconds, gpu.gpu_nodes, gpu.gpu_nodes + on_cpu, passed ? "passed" : "FAILED");
  if (flags.list_cpu_nodes) std::printf("  on the CPU: %s\n", absl::StrJoin(ops, ", ").c_str());
  if (!same) {
    std::printf("  losses on the GPU: %s\n  and the second time: %s\n", absl::StrJoin(gpu.losses, " ").c_str(),
                absl::StrJoin(again.losses, " ").c_str());
  }
  std::fflush(stdout);
  return passed;
}

StatusOr<int> Run(const Flags& flags) {
  const std::vector<std::string> wanted = absl::StrSplit(flags.models, ',', absl::SkipEmpty());
  for (const std::string& name : wanted) {
    const auto is = [&](const NamedModel& m) { return name == m.name; };
    if (std::none_of(TrainingModels().begin(), TrainingModels().end(), is)) return NotFound("there is no model ", name);
  }
  MR_ASSIGN_OR_RETURN(const ClientSession session, ClientSession::Create(Scope::NewRoot()));
  MR_ASSIGN_OR_RETURN(const std::vector<DeviceInfo> devices, session.session().ListDeviceInfo());
  if (std::none_of(devices.begin(), devices.end(), [](const DeviceInfo& d) { return d.type == "GPU"; }))
    return FailedPrecondition("there is no GPU here");
  std::printf("%lld steps; the loss first and last, and its greatest difference; us per step\n",
              static_cast<long long>(flags.steps));
  std::printf("%-12s %9s %9s %9s %10s  %-9s %8s %9s %9s  %12s\n", "model", "first", "CPU last", "GPU last",
              "difference", "bytes", "carried", "CPU us", "GPU us", "nodes on GPU");
  int failed = 0;
  for (const NamedModel& named : TrainingModels()) {
    if (!wanted.empty() && std::find(wanted.begin(), wanted.end(), named.name) == wanted.end()) continue;
    const StatusOr<bool> passed = Compare(named, flags);
    if (!passed.ok()) std::printf("%-12s FAILED: %s\n", named.name, passed.status().ToString().c_str());
    failed += !passed.ok() || !*passed;
  }
  return failed;
}

}  // namespace
}  // namespace millrace

int main(int argc, char** argv) {
  millrace::Flags flags;
  CLI::App app("Trains networks on the CPU and twice on the GPU, and compares losses, bytes and checkpoints.",
               "gpu_training");
  app.add_option("--models", flags.models, "comma-separated; all by default: mlp adam lstm transformer conv resnet20");
  app.add_option("--steps", flags.steps, "steps of each training")->check(CLI::PositiveNumber);
  app.add_option("--batch", flags.batch, "examples in a step; by default as many as the model is usually trained with");
  app.add_option("--tolerance", flags.tolerance, "the greatest difference of losses that passes");
  app.add_option("--out", flags.out, "a folder for checkpoints");
  app.add_flag("--list-cpu-nodes", flags.list_cpu_nodes, "also print which ops of the GPU's training ran on the CPU");
  app.add_flag("--late", flags.late, "with a GPU that is made of host memory (tests/late)");
  if (const std::optional<int> status = ParseFlags(app, argc, argv)) return *status;
  // Products and convolutions of float in float, as on the CPU.
  setenv("MILLRACE_TF32", "0", 0);
  if (flags.late) millrace::late::UseLateGpus(1);
  const millrace::StatusOr<int> failed = millrace::Run(flags);
  if (!failed.ok()) {
    std::cerr << "gpu_training: " << failed.status().message() << "\n";
    return 1;
  }
  return *failed == 0 ? 0 : 1;
}
