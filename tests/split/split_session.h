// A session that runs every step cut into parts, one for each of several tasks that are simulated in this process: what a cluster does, without
// messages. Each task has a device, resources and functions of its own; only a rendezvous joins them.
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
  // Where nodes go that ask for nothing: -1 leaves them to the placer (task 0), else each goes anywhere, by its name and this number. What shares
  // state stays together.
  int64_t seed = -1;
  // Task 0 takes the client's tensors directly; otherwise they come through its rendezvous.
  bool has_home = true;
  PassOptions passes = {};
};

// For one step at a time. Steps are compiled anew each time.
class SplitSession : public Session {
 public:
  explicit SplitSession(const SplitOptions& options);
  ~SplitSession() override;

  Status Extend(pb::GraphDef def) override;
  Status Extend(const Graph& graph) override;
  using Session::Run;
  Status Run(const RunOptions& options, absl::Span<const Feed> feeds, absl::Span<const std::string> fetches,
             absl::Span<const std::string> targets, std::vector<Tensor>* results, RunMetadata* metadata) override;
  StatusOr<std::unique_ptr<Callable>> MakeCallable(const CallableSpec&) override { return Unimplemented("a split session has no callables"); }
  StatusOr<std::string> PartialRunSetup(absl::Span<const std::string>, absl::Span<const std::string>,
                                        absl::Span<const std::string>) override {
    return Unimplemented("a split session has no partial runs");
  }
  Status PartialRun(const std::string&, absl::Span<const Feed>, absl::Span<const std::string>, std::vector<Tensor>*) override {
    return Unimplemented("a split session has no partial runs");
  }
  std::vector<Device*> ListDevices() const override;
  Status Close() override { return absl::OkStatus(); }

  // The parts of the last step, as they were before they were compiled: GraphToString by task.
  const absl::flat_hash_map<std::string, std::string>& last_parts() const { return last_parts_; }

 private:
  struct Task;
  struct Step;
  StatusOr<std::unique_ptr<Step>> Compile(absl::Span<const Feed> feeds, absl::Span<const std::string> fetches,
                                          absl::Span<const std::string> targets);
  void Scatter(Graph* graph);
  Status CompilePart(Part part, Task* task, Step* step);

  const SplitOptions options_;
  Graph graph_;
  std::vector<std::unique_ptr<Task>> tasks_;
  ThreadPool pool_;
  absl::flat_hash_map<std::string, int> homes_;  // of what has state, by name
  absl::flat_hash_map<std::string, std::string> last_parts_;
  int64_t next_step_ = 1;
};

// Lets Session::Create understand the target "split:TASKS:SEED".
void RegisterSplitSessions();

}  // namespace millrace::split
