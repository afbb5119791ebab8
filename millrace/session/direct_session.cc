#include "millrace/session/direct_session.h"

#include <utility>

#include "millrace/base/log.h"
#include "millrace/executor/step_stats.h"
#include "millrace/graph/graph_def.h"
#include "millrace/task/local_devices.h"

namespace millrace {
namespace {

StatusOr<TaskOptions> TaskOptionsOf(const SessionOptions& options) {
  TaskOptions task;
  MR_ASSIGN_OR_RETURN(task.gpus, GpuOptionsOf(options.config.gpu_options()));
  task.intra_op_threads = options.intra_op_threads;
  task.inter_op_threads = options.inter_op_threads;
  task.cpu_devices = options.cpu_devices;
  task.gpu_devices = options.gpu_devices;
  task.file_roots = options.file_roots;
  task.resources = options.resources;
  task.waits = options.waits;
  return task;
}

void LogPlacement(const Graph& graph) {
  for (const Node* node : graph.nodes()) {
    MR_LOG(Info, node->name(), ": (", node->type(), "): ", node->assigned_device());
  }
}

}  // namespace

StatusOr<std::unique_ptr<DirectSession>> DirectSession::Make(const SessionOptions& options) {
  MR_ASSIGN_OR_RETURN(TaskOptions task_options, TaskOptionsOf(options));
  MR_ASSIGN_OR_RETURN(std::shared_ptr<Task> task, Task::Make(std::move(task_options)));
  return std::make_unique<DirectSession>(options, std::move(task));
}

DirectSession::DirectSession(const SessionOptions& options, std::shared_ptr<Task> task)
    : BaseSession(options), task_(std::move(task)), task_session_(task_->NewSession()) {
  part_options_.allow_soft_placement = options.allow_soft_placement;
  part_options_.passes = options.passes;
  if (options.log_device_placement) part_options_.on_placed = LogPlacement;
  part_options_.functions = task_->NewFunctions(*task_session_, part_options_);
}

DirectSession::~DirectSession() {
  Close().IgnoreError();
  // Background work, such as a pipeline with functions of this session, must end before the devices are destroyed.
  if (options().resources == nullptr) task_->resources()->ClearAll();
}

Status DirectSession::Add(pb::GraphDef fresh) {
  MutexLock lock(&graph_mu_);
  MR_RETURN_IF_ERROR(ImportGraphDef(std::move(fresh), &graph_));
  part_options_.functions->UseLibrary(graph_);
  task_->PlaceWhole(*task_session_, &graph_, part_options_);
  return absl::OkStatus();
}

StatusOr<std::shared_ptr<const DirectProgram>> DirectSession::Program(const CallableSpec& spec) {
  const std::string key = SignatureKey(spec);
  {
    MutexLock lock(&programs_mu_);
    if (auto it = programs_.find(key); it != programs_.end()) return it->second;
  }
  auto program = std::make_shared<DirectProgram>();
  program->spec = spec;
  std::unique_ptr<Graph> graph;
  {
    MutexLock lock(&graph_mu_);
    MR_ASSIGN_OR_RETURN(program->feeds, CheckSignature(graph_, spec));
    graph = graph_.Clone();
  }
  MR_ASSIGN_OR_RETURN(PassContext signature, ResolveSignature(graph.get(), spec));
  MR_ASSIGN_OR_RETURN(program->part,
                      task_->Compile(task_session_, std::move(graph), std::move(signature), part_options_));
  MutexLock lock(&programs_mu_);
  return programs_.try_emplace(key, std::move(program)).first->second;
}

Status DirectSession::RunProgram(const DirectProgram& program, absl::Span<const Tensor> feeds,
                                 const RunOptions& options, std::vector<Tensor>* results, RunMetadata* metadata) {
  MR_RETURN_IF_ERROR(program.feeds.Check(feeds));
  std::unique_ptr<StepStatsCollector> stats;
  if (options.trace && metadata != nullptr) stats = std::make_unique<StepStatsCollector>();
  results->resize(program.spec.fetches.size());
  Status status =
      task_->Run(program.part, {.feeds = feeds, .stats = stats.get(), .run = options.identity},
                 {.timeout = TimeoutOf(options), .cancellation = options.cancellation}, absl::MakeSpan(*results));
  if (stats != nullptr) stats->ToProto(metadata->mutable_step_stats());
  if (metadata != nullptr && options.output_partition_graphs) {
    *metadata->add_partition_graphs() = ExportGraphDef(program.part.plan->graph());
  }
  return status;
}

Status DirectSession::RunStep(CallableSpec spec, std::vector<Tensor> feeds, const RunOptions& options,
                              std::vector<Tensor>* results, RunMetadata* metadata) {
  MR_ASSIGN_OR_RETURN(const std::shared_ptr<const DirectProgram> program, Program(spec));
  return RunProgram(*program, feeds, options, results, metadata);
}

namespace {

class DirectCallable : public Callable {
 public:
  DirectCallable(DirectSession* session, std::shared_ptr<const DirectProgram> program)
      : session_(session), program_(std::move(program)) {}
  Status Run(absl::Span<const Tensor> feeds, std::vector<Tensor>* results, const RunOptions& options,
             RunMetadata* metadata) override {
    return session_->RunProgram(*program_, feeds, options, results, metadata);
  }

 private:
  DirectSession* const session_;
  const std::shared_ptr<const DirectProgram> program_;
};

}  // namespace

StatusOr<std::unique_ptr<Callable>> DirectSession::Compile(CallableSpec spec) {
  MR_ASSIGN_OR_RETURN(std::shared_ptr<const DirectProgram> program, Program(spec));
  return std::make_unique<DirectCallable>(this, std::move(program));
}

StatusOr<std::string> DirectSession::SetUpPartial(CallableSpec spec) {
  std::unique_ptr<Graph> graph;
  {
    MutexLock lock(&graph_mu_);
    graph = graph_.Clone();
  }
  MR_ASSIGN_OR_RETURN(std::shared_ptr<PartialStepRun> partial,
                      StartPartialStep(task_, task_session_, std::move(graph), spec, part_options_));
  return partial_runs_.Add(std::move(partial));
}

Status DirectSession::RunPartial(const std::string& handle, std::vector<Feed> feeds, std::vector<std::string> fetches,
                                 std::vector<Tensor>* results) {
  MR_ASSIGN_OR_RETURN(const std::shared_ptr<PartialStepRun> partial, partial_runs_.Find(handle));
  StatusOr<std::vector<Tensor>> fetched;
  bool over = false;
  Notification done;
  partial->Call(feeds, std::move(fetches), nullptr, nullptr, [&](StatusOr<std::vector<Tensor>> result, bool ended) {
    fetched = std::move(result);
    over = ended;
    done.Notify();
  });
  done.Wait();
  if (over) {
    partial_runs_.Remove(handle);
    // When the last call returns, nothing of the step is running any more, even if it failed.
    Notification ended;
    partial->WhenEnded([&](const Status&) { ended.Notify(); });
    ended.Wait();
  }
  MR_RETURN_IF_ERROR(fetched.status());
  *results = *std::move(fetched);
  return absl::OkStatus();
}

std::vector<Device*> DirectSession::ListDevices() const { return task_session_->device_pointers(); }

Status DirectSession::Close() {
  Notification idle;
  task_->Close(Cancelled("the session is closed"),
               Cancelled("the step was cancelled: the session was closed while it ran"), [&] { idle.Notify(); });
  idle.Wait();
  partial_runs_.TakeAll();
  return absl::OkStatus();
}

}  // namespace millrace
