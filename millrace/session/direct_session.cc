#include "millrace/session/direct_session.h"

#include <utility>

#include "absl/strings/match.h"
#include "millrace/base/affinity.h"
#include "millrace/base/log.h"
#include "millrace/base/rooted_files.h"
#include "millrace/base/timer.h"
#include "millrace/device/cpu/cpu_device.h"
#include "millrace/device/cuda/cuda_devices.h"
#include "millrace/executor/step_stats.h"
#include "millrace/graph/graph_def.h"
#include "millrace/runtime/kernel_registry.h"
#include "millrace/runtime/step_resources.h"
#include "millrace/session/running_step.h"

namespace millrace {
namespace {

int OrCores(int threads) {
  return threads > 0 ? threads : AllowedCoreCount();
}

}  // namespace

// An arena for the time of one step.
class DirectSession::ArenaLease {
 public:
  explicit ArenaLease(DirectSession* session) : session_(session) {
    MutexLock lock(&session_->arenas_mu_);
    if (session_->idle_arenas_.empty()) {
      arena_ = MakeRef<StepArena>();
    } else {
      arena_ = std::move(session_->idle_arenas_.back());
      session_->idle_arenas_.pop_back();
    }
  }
  ~ArenaLease() {
    MutexLock lock(&session_->arenas_mu_);
    session_->idle_arenas_.push_back(std::move(arena_));
  }
  StepArena* get() const { return arena_.get(); }

 private:
  DirectSession* const session_;
  RefPtr<StepArena> arena_;
};

DirectSession::DirectSession(const SessionOptions& options)
    : options_(options),
      resources_(options.resources != nullptr ? options.resources : std::make_shared<ResourceManager>()),
      waits_(options.waits != nullptr ? options.waits : std::make_shared<WaitRegistry>()),
      rooted_files_(options.file_roots.empty() ? nullptr : std::make_unique<RootedFileSystem>(options.file_roots)) {
  auto pool = std::make_shared<ThreadPool>("intra_op", OrCores(options.intra_op_threads) - 1);
  for (int i = 0; i < options.cpu_devices; ++i) {
    devices_.push_back(NewCpuDevice(
        {.name = absl::StrCat("/job:localhost/replica:0/task:0/device:CPU:", i), .pool = pool}));
    compile_options_.devices.push_back(devices_.back().get());
  }
  StatusOr<std::vector<std::unique_ptr<Device>>> gpus = NewCudaDevices({.count = options.gpu_devices});
  if (gpus.ok()) {
    for (auto& gpu : *gpus) {
      compile_options_.devices.push_back(gpu.get());
      devices_.push_back(std::move(gpu));
    }
  } else {
    MR_LOG(Error, "going on without GPUs: ", gpus.status().ToString());
  }
  compile_options_.allow_soft_placement = options_.allow_soft_placement;
  compile_options_.passes = options_.passes;
  compile_options_.make_kernel = [this](const Node& node, Device* device) { return MakeKernel(node, device); };
  if (options_.log_device_placement) {
    compile_options_.on_placed = [this](const Graph& graph) { LogPlacement(graph); };
  }
  functions_ = std::make_unique<FunctionTable>(compile_options_);
}

DirectSession::~DirectSession() {
  Close().IgnoreError();
  // What works by itself, such as a pipeline with functions of this session, ends before the devices do.
  if (resources_.use_count() == 1) resources_->ClearAll();
}

Status DirectSession::Extend(pb::GraphDef def) {
  MutexLock lock(&graph_mu_);
  MR_RETURN_IF_ERROR(ImportGraphDef(std::move(def), &graph_));
  functions_->UseLibrary(graph_);
  return absl::OkStatus();
}

Status DirectSession::Extend(const Graph& graph) {
  MutexLock lock(&graph_mu_);
  pb::GraphDef fresh;
  *fresh.mutable_versions() = graph.versions();
  *fresh.mutable_library() = graph.library();
  for (const Node* node : graph.nodes()) {
    if (graph_.FindNode(node->name()) == nullptr) *fresh.add_node() = ExportNodeDef(*node);
  }
  MR_RETURN_IF_ERROR(ImportGraphDef(std::move(fresh), &graph_));
  functions_->UseLibrary(graph_);
  return absl::OkStatus();
}

Scheduler* DirectSession::InterOpPool() {
  MutexLock lock(&arenas_mu_);
  if (inter_op_ == nullptr) {
    inter_op_ = std::make_unique<ThreadPool>("inter_op", OrCores(options_.inter_op_threads));
  }
  return inter_op_.get();
}

StatusOr<std::shared_ptr<StepProgram>> DirectSession::Program(const CallableSpec& spec) {
  const std::string key = SignatureKey(spec);
  {
    MutexLock lock(&programs_mu_);
    if (auto it = programs_.find(key); it != programs_.end()) return it->second;
  }
  MutexLock graph_lock(&graph_mu_);
  MR_ASSIGN_OR_RETURN(std::shared_ptr<StepProgram> program, Compile(spec));
  MutexLock lock(&programs_mu_);
  return programs_.try_emplace(key, std::move(program)).first->second;
}

StepContext DirectSession::NewStep(RunningStep& running, StepResources* step_resources) {
  StepContext step;
  step.step_id = next_step_id_.fetch_add(1, std::memory_order_relaxed);
  step.resources = resources_.get();
  step.cancellation = running.cancellation();
  step.step_resources = step_resources;
  step.waits = waits_.get();
  step.files = rooted_files_ != nullptr ? rooted_files_.get() : FileSystem::Posix();
  step.functions = functions_.get();
  return step;
}

Status DirectSession::RunProgram(StepProgram& program, absl::Span<const Tensor> feeds,
                                 const RunOptions& options, std::vector<Tensor>* results,
                                 RunMetadata* metadata) {
  MR_RETURN_IF_ERROR(program.feeds.Check(feeds));
  RunningStep running(this);
  MR_RETURN_IF_ERROR(running.Begin(options, options_.operation_timeout));
  ArenaLease arena(this);
  StepResources step_resources;
  StepContext step = NewStep(running, &step_resources);
  if (!program.plan->is_sequential()) step.inter_op = InterOpPool();
  std::unique_ptr<StepStatsCollector> stats;
  if (options.trace && metadata != nullptr) stats = std::make_unique<StepStatsCollector>();
  results->resize(program.spec.fetches.size());
  Status status = program.plan->Run(
      {.step = &step, .feeds = feeds, .allocator = arena.get(), .stats = stats.get()},
      absl::MakeSpan(*results));
  if (stats != nullptr) stats->ToProto(metadata->mutable_step_stats());
  if (metadata != nullptr && options.output_partition_graphs) {
    *metadata->add_partition_graphs() = ExportGraphDef(program.plan->graph());
  }
  return running.Result(std::move(status));
}

Status DirectSession::Run(const RunOptions& options, absl::Span<const Feed> feeds,
                          absl::Span<const std::string> fetches, absl::Span<const std::string> targets,
                          std::vector<Tensor>* results, RunMetadata* metadata) {
  CallableSpec spec;
  std::vector<Tensor> values;
  values.reserve(feeds.size());
  for (const auto& [name, value] : feeds) {
    spec.feeds.push_back(name);
    values.push_back(value);
  }
  spec.fetches.assign(fetches.begin(), fetches.end());
  spec.targets.assign(targets.begin(), targets.end());
  MR_ASSIGN_OR_RETURN(std::shared_ptr<StepProgram> program, Program(spec));
  return RunProgram(*program, values, options, results, metadata);
}

class DirectCallable : public Callable {
 public:
  DirectCallable(DirectSession* session, std::shared_ptr<StepProgram> program)
      : session_(session), program_(std::move(program)) {}
  Status Run(absl::Span<const Tensor> feeds, std::vector<Tensor>* results, const RunOptions& options,
             RunMetadata* metadata) override {
    return session_->RunProgram(*program_, feeds, options, results, metadata);
  }

 private:
  DirectSession* const session_;
  const std::shared_ptr<StepProgram> program_;
};

StatusOr<std::unique_ptr<Callable>> DirectSession::MakeCallable(const CallableSpec& spec) {
  MR_ASSIGN_OR_RETURN(std::shared_ptr<StepProgram> program, Program(spec));
  return std::make_unique<DirectCallable>(this, std::move(program));
}

std::vector<Device*> DirectSession::ListDevices() const {
  std::vector<Device*> devices;
  for (const auto& device : devices_) devices.push_back(device.get());
  return devices;
}

}  // namespace millrace
