// A session that partitions every step over several tasks that are simulated in this process: what a cluster does,
// without messages. Each task has its own device, resources and functions; they share only a rendezvous.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "millrace/base/thread_pool.h"
#include "millrace/device/device.h"
#include "millrace/executor/function_table.h"
#include "millrace/graph/partition.h"
#include "millrace/runtime/rendezvous.h"
#include "millrace/runtime/resource_manager.h"
#include "millrace/session/session.h"

namespace millrace::split {

struct SplitOptions {
  int tasks = 3;  // "/job:worker/replica:0/task:0" and so on
  // The placement of nodes without a requested device: -1 leaves them to the placer (task 0); otherwise each node is
  // placed pseudo-randomly by its name and this number. Nodes that share state stay together.
  int64_t seed = -1;
  // Task 0 takes the client's tensors directly; otherwise they come through its rendezvous.
  bool has_home = true;
  PassOptions passes = {};
};

// Runs one step at a time, and compiles every step anew.
class SplitSession : public Session {
 public:
  explicit SplitSession(const SplitOptions& options);
  ~SplitSession() override;

  Status Extend(pb::GraphDef def) override;
  Status Extend(const Graph& graph) override;
  using Session::Run;
  Status Run(const RunOptions& options, absl::Span<const Feed> feeds, absl::Span<const std::string> fetches,
             absl::Span<const std::string> targets, std::vector<Tensor>* results, RunMetadata* metadata) override;
  StatusOr<std::unique_ptr<Callable>> MakeCallable(const CallableSpec&) override {
    return Unimplemented("a split session has no callables");
  }
  StatusOr<std::string> PartialRunSetup(absl::Span<const std::string>, absl::Span<const std::string>,
                                        absl::Span<const std::string>) override {
    return Unimplemented("a split session has no partial runs");
  }
  Status PartialRun(const std::string&, absl::Span<const Feed>, absl::Span<const std::string>,
                    std::vector<Tensor>*) override {
    return Unimplemented("a split session has no partial runs");
  }
  std::vector<Device*> ListDevices() const override;
  Status Close() override { return absl::OkStatus(); }

 private:
  struct Member;  // a task of the cluster
  struct Step;
  StatusOr<std::unique_ptr<Step>> Compile(absl::Span<const Feed> feeds, absl::Span<const std::string> fetches,
                                          absl::Span<const std::string> targets);
  void Scatter(Graph* graph);
  Status CompilePart(Part part, Member* member, Step* step);

  const SplitOptions options_;
  Graph graph_;
  std::vector<std::unique_ptr<Member>> tasks_;
  ThreadPool pool_;
  absl::flat_hash_map<std::string, int> homes_;  // of what has state, by name
  int64_t next_step_ = 1;
};

// Registers the target "split:TASKS:SEED" with Session::Create.
void RegisterSplitSessions();

}  // namespace millrace::split
