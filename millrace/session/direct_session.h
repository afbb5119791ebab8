// A session in this process: a task of its own, called inline on the caller's thread.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "millrace/base/mutex.h"
#include "millrace/session/base_session.h"
#include "millrace/task/partial_run_table.h"
#include "millrace/task/partial_step_run.h"
#include "millrace/task/step_signature.h"
#include "millrace/task/task.h"

namespace millrace {

// A signature compiled for this process.
struct DirectProgram {
  CallableSpec spec;
  FeedTypes feeds;
  CompiledPart part;
};

class DirectSession : public BaseSession {
 public:
  static StatusOr<std::unique_ptr<DirectSession>> Make(const SessionOptions& options);
  DirectSession(const SessionOptions& options, std::shared_ptr<Task> task);
  ~DirectSession() override;

  std::vector<Device*> ListDevices() const override;
  Status Close() override;

  // For callables.
  Status RunProgram(const DirectProgram& program, absl::Span<const Tensor> feeds, const RunOptions& options,
                    std::vector<Tensor>* results, RunMetadata* metadata);

 private:
  Status Add(pb::GraphDef fresh) override;
  Status RunStep(CallableSpec spec, std::vector<Tensor> feeds, const RunOptions& options, std::vector<Tensor>* results,
                 RunMetadata* metadata) override;
  StatusOr<std::unique_ptr<Callable>> Compile(CallableSpec spec) override;
  StatusOr<std::string> SetUpPartial(CallableSpec spec) override;
  Status RunPartial(const std::string& handle, std::vector<Feed> feeds, std::vector<std::string> fetches,
                    std::vector<Tensor>* results) override;

  // The program for a signature, compiled at first use.
  StatusOr<std::shared_ptr<const DirectProgram>> Program(const CallableSpec& spec);

  const std::shared_ptr<Task> task_;
  const std::shared_ptr<TaskSession> task_session_;
  PartOptions part_options_;  // constant after the constructor

  Mutex graph_mu_;
  Graph graph_ ABSL_GUARDED_BY(graph_mu_);

  // A separate lock, because programs are looked up on every run.
  Mutex programs_mu_;
  absl::flat_hash_map<std::string, std::shared_ptr<const DirectProgram>> programs_ ABSL_GUARDED_BY(programs_mu_);

  PartialRunTable<PartialStepRun> partial_runs_;
};

}  // namespace millrace
