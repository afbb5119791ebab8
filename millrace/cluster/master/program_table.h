// The programs of a session by signature, compiled and registered with their tasks on first use.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "millrace/base/cancellation.h"
#include "millrace/base/mutex.h"
#include "millrace/base/timer.h"
#include "millrace/cluster/master/program_builder.h"
#include "millrace/cluster/worker/worker_interface.h"

namespace millrace {

struct ProgramTableOptions {
  std::string session = {};     // the session's handle
  pb::ConfigProto config = {};  // the session's configuration
  TimerQueue* timers = TimerQueue::Real();
};

// Thread-safe. Held by shared_ptr. No lock is held while a program is compiled or registered.
class ProgramTable : public std::enable_shared_from_this<ProgramTable> {
 public:
  using Result = StatusOr<std::shared_ptr<const MasterProgram>>;
  using Done = absl::AnyInvocable<void(Result)>;
  // Checks a signature against the session's graph and returns a copy of the graph.
  using GraphFor = std::function<StatusOr<std::unique_ptr<Graph>>(const CallableSpec& spec, FeedTypes* feeds)>;

  ProgramTable(ProgramTableOptions options, std::shared_ptr<const ProgramBuilder> builder)
      : options_(std::move(options)), builder_(std::move(builder)) {}

  // Finds or compiles the program of a signature; concurrent callers share one compilation. The wait for it ends with
  // `control`'s cancellation, after `limit`, or with Close; the compilation continues for other callers.
  void Find(const CallableSpec& spec, const CallControl& control, const GraphFor& graph_for, Done done,
            absl::Duration limit);
  // Compiles a program that is not shared. `graph` is the step's graph.
  void Make(std::unique_ptr<Graph> graph, const CallableSpec& spec, Done done);
  // Ends all waits with `why` and releases all programs.
  void Close(const Status& why);

 private:
  using Remote = std::vector<std::pair<int, pb::GraphDef>>;
  // Null if there is none.
  std::shared_ptr<const MasterProgram> Look(const std::string& key) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // Compiles the part at home; `remote` receives the graphs of the other parts.
  StatusOr<std::shared_ptr<MasterProgram>> Compile(const CallableSpec& spec, const GraphFor& graph_for,
                                                   Remote* remote) const;
  // Registers the peers' parts with them.
  void Register(std::shared_ptr<MasterProgram> program, Remote remote, Done done) const;

  const ProgramTableOptions options_;
  const std::shared_ptr<const ProgramBuilder> builder_;
  CancellationManager closing_;
  Mutex mu_;
  absl::flat_hash_map<std::string, std::shared_ptr<const MasterProgram>> programs_ ABSL_GUARDED_BY(mu_);
  absl::flat_hash_map<std::string, std::vector<Done>> compiling_ ABSL_GUARDED_BY(mu_);
};

}  // namespace millrace
