// A session in this process.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "millrace/base/file.h"
#include "millrace/base/mutex.h"
#include "millrace/base/thread_pool.h"
#include "millrace/device/device.h"
#include "millrace/executor/compile_graph.h"
#include "millrace/executor/function_table.h"
#include "millrace/runtime/rendezvous.h"
#include "millrace/runtime/resource_manager.h"
#include "millrace/runtime/wait_registry.h"
#include "millrace/session/session.h"
#include "millrace/session/step_signature.h"

namespace millrace {

// A step compiled for one signature: feeds, fetches and targets by name.
struct StepProgram {
  CallableSpec spec;
  FeedTypes feeds;
  std::unique_ptr<Plan> plan;
};

class DirectSession : public Session {
 public:
  explicit DirectSession(const SessionOptions& options);
  ~DirectSession() override;

  Status Extend(pb::GraphDef def) override;
  Status Extend(const Graph& graph) override;
  Status Run(const RunOptions& options, absl::Span<const Feed> feeds,
             absl::Span<const std::string> fetches, absl::Span<const std::string> targets,
             std::vector<Tensor>* results, RunMetadata* metadata) override;
  StatusOr<std::unique_ptr<Callable>> MakeCallable(const CallableSpec& spec) override;
  StatusOr<std::string> PartialRunSetup(absl::Span<const std::string> feeds,
                                        absl::Span<const std::string> fetches,
                                        absl::Span<const std::string> targets) override;
  Status PartialRun(const std::string& handle, absl::Span<const Feed> feeds,
                    absl::Span<const std::string> fetches, std::vector<Tensor>* results) override;
  std::vector<Device*> ListDevices() const override;
  Status Close() override;

 private:
  friend class DirectCallable;
  class RunningStep;
  class ArenaLease;
  struct PartialStep;

  // The program for a signature, compiled at first use.
  StatusOr<std::shared_ptr<StepProgram>> Program(const CallableSpec& spec);
  StatusOr<std::shared_ptr<StepProgram>> Compile(const CallableSpec& spec)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(graph_mu_);
  // Places, rewrites and compiles a graph of the step's own.
  StatusOr<std::unique_ptr<Plan>> CompilePlan(std::unique_ptr<Graph> graph, const CallableSpec& spec);
  // What every kernel of a step that begins now sees.
  StepContext NewStep(RunningStep& running, StepResources* step_resources);
  Status RunProgram(StepProgram& program, absl::Span<const Tensor> feeds, const RunOptions& options,
                    std::vector<Tensor>* results, RunMetadata* metadata);
  StatusOr<std::shared_ptr<Kernel>> MakeKernel(const Node& node, Device* device);
  void CancelRunningSteps();
  void LogPlacement(const Graph& graph) const;
  Scheduler* InterOpPool();
  std::shared_ptr<PartialStep> FindPartialStep(const std::string& handle);

  const SessionOptions options_;
  const std::shared_ptr<ResourceManager> resources_;
  const std::shared_ptr<WaitRegistry> waits_;
  // Where options_.file_roots confine it; null otherwise.
  const std::unique_ptr<FileSystem> rooted_files_;
  std::vector<std::unique_ptr<Device>> devices_;
  CompileOptions compile_options_;  // constant after the constructor
  std::unique_ptr<FunctionTable> functions_;
  std::atomic<int64_t> next_step_id_{1};

  Mutex graph_mu_;
  Graph graph_ ABSL_GUARDED_BY(graph_mu_);

  Mutex kernels_mu_;
  absl::flat_hash_map<std::string, std::shared_ptr<Kernel>> stateful_kernels_ ABSL_GUARDED_BY(kernels_mu_);

  // Programs are looked up on every run, under a lock of their own.
  Mutex programs_mu_;
  absl::flat_hash_map<std::string, std::shared_ptr<StepProgram>> programs_ ABSL_GUARDED_BY(programs_mu_);

  Mutex arenas_mu_;
  std::vector<RefPtr<StepArena>> idle_arenas_ ABSL_GUARDED_BY(arenas_mu_);
  std::unique_ptr<ThreadPool> inter_op_ ABSL_GUARDED_BY(arenas_mu_);

  Mutex steps_mu_;
  CondVar step_ended_;
  bool closed_ ABSL_GUARDED_BY(steps_mu_) = false;
  RunningStep* running_ ABSL_GUARDED_BY(steps_mu_) = nullptr;  // a list through the steps
  absl::flat_hash_map<std::string, std::shared_ptr<PartialStep>> partial_steps_ ABSL_GUARDED_BY(steps_mu_);
  int64_t next_partial_ ABSL_GUARDED_BY(steps_mu_) = 0;
};

}  // namespace millrace
