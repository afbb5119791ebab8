// The engine beneath every session: owns the resources of one task, and compiles and runs parts of graphs.
//
//   auto task = std::make_shared<Task>(TaskOptions());
//   auto session = task->NewSession();
//   CompiledPart part = task->Compile(session, std::move(graph), {.fetches = {y}}).value();
//   std::vector<Tensor> results(1);
//   Status status = task->Run(part, {}, {}, absl::MakeSpan(results));
//
// A local session calls it inline, on its caller's thread; a cluster's Worker puts it behind a wire.
#pragma once

#include <atomic>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "millrace/base/clock.h"
#include "millrace/base/file.h"
#include "millrace/base/thread_pool.h"
#include "millrace/base/timer.h"
#include "millrace/device/gpu_layout.h"
#include "millrace/executor/compile_graph.h"
#include "millrace/executor/function_table.h"
#include "millrace/runtime/file_threads.h"
#include "millrace/runtime/rendezvous.h"
#include "millrace/runtime/wait_registry.h"
#include "millrace/task/running_parts.h"
#include "millrace/task/step_limits.h"
#include "millrace/task/task_session.h"

namespace millrace {

struct TaskOptions {
  // The prefix of its devices' names.
  std::string name = "/job:localhost/replica:0/task:0";
  // The number of threads within one op, and of threads that run ops concurrently; 0 means the number of cores that
  // this process may use.
  int intra_op_threads = 0;
  int inter_op_threads = 0;
  // See LocalDeviceOptions.
  int cpu_devices = 1;
  int gpu_devices = -1;
  GpuOptions gpus = {};
  // The directories in which ops may read and write files, after resolving links; PERMISSION_DENIED elsewhere. If
  // empty, there is no restriction, or with `no_files` nothing that they may use.
  std::vector<std::string> file_roots = {};
  bool no_files = false;
  // The limit of each session that sets none; see TaskSessionOptions::memory_limit.
  size_t session_memory_limit = 0;
  // The number of threads for operations on files, which may block for ever. 0: they run on the steps' threads, as in a
  // program of its own that serves nobody.
  int file_threads = 0;
  // The task's state and its list of blocked ops; if null, the task creates its own.
  std::shared_ptr<ResourceManager> resources = nullptr;
  std::shared_ptr<WaitRegistry> waits = nullptr;
  Clock* clock = Clock::Real();
  // For simulations: used instead of this machine's devices, files and timers and the task's own threads. All must
  // outlive the task.
  std::vector<std::shared_ptr<Device>> devices = {};
  FileSystem* files = nullptr;
  Scheduler* inter_op = nullptr;
  Scheduler* file_operations = nullptr;
  TimerQueue* timers = TimerQueue::Real();
};

struct PartOptions {
  bool allow_soft_placement = false;
  PassOptions passes = {};
  // Called when all nodes are placed.
  std::function<void(const Graph&)> on_placed = nullptr;
  // The functions that the part calls; if null, those in its graph's library.
  std::shared_ptr<FunctionTable> functions = nullptr;
};

// A graph compiled for a task. Immutable and thread-safe: any number of runs may be in flight.
struct CompiledPart {
  std::shared_ptr<TaskSession> session;
  std::shared_ptr<FunctionTable> functions;
  std::shared_ptr<Plan> plan;
  std::shared_ptr<const void> owner;  // of all of these
};

// One run of a part.
struct PartArgs {
  // 0: assigned by the task.
  int64_t step_id = 0;
  absl::Span<const Tensor> feeds = {};
  Rendezvous* rendezvous = nullptr;  // null: the part sends and receives nothing
  // The cancellation of the step that the part belongs to; a failing node cancels it too. `owner` keeps it alive. If
  // null, the part is the whole step, and the task creates a cancellation for it.
  CancellationManager* cancellation = nullptr;
  std::shared_ptr<void> owner = nullptr;
  // When the step began, for the list of running parts.
  absl::Time since = absl::InfinitePast();
  StepStatsCollector* stats = nullptr;  // null: no statistics
  ThreadHandover* handover = nullptr;   // of the event threads that work for the step; may be null
  RunIdentity run = {};                 // given() is false if the run is not repeated under an identity
};

// Thread-safe. Held by shared_ptr: asynchronous runs keep it alive, so no part runs when it is destroyed.
class Task : public std::enable_shared_from_this<Task> {
 public:
  // INVALID_ARGUMENT if the GPUs cannot be laid out as the options ask.
  static StatusOr<std::shared_ptr<Task>> Make(TaskOptions options);
  // Without wishes for GPUs; `options.devices` may be any.
  explicit Task(TaskOptions options);

  const std::string& name() const { return options_.name; }
  const std::vector<std::shared_ptr<Device>>& devices() const { return devices_; }
  const std::shared_ptr<ResourceManager>& resources() const { return resources_; }
  const std::shared_ptr<WaitRegistry>& waits() const { return waits_; }
  FileSystem* files() const { return files_; }
  Clock* clock() const { return options_.clock; }
  // The pool that runs ops concurrently. The first call starts the threads. Must not be called after StopThreads.
  Scheduler* inter_op();

  std::shared_ptr<TaskSession> NewSession(TaskSessionOptions options = {}) const;

  // Places, rewrites and compiles `graph`; `signature` has the feeds, fetches and targets. Errors are those of
  // CompileGraph. The part keeps `session` alive; the task must outlive both.
  StatusOr<CompiledPart> Compile(std::shared_ptr<TaskSession> session, std::unique_ptr<Graph> graph,
                                 PassContext signature, const PartOptions& options = {}) const;
  // Places the nodes of a session's whole graph that have no device yet, so that a variable is on the same device in
  // every step. Only needed, and only done, if the session has devices of several kinds. A node that cannot be placed
  // stays as it is; Compile then reports it.
  void PlaceWhole(const TaskSession& session, Graph* graph, const PartOptions& options) const;
  // A function table that several parts of a session can share (PartOptions::functions).
  std::shared_ptr<FunctionTable> NewFunctions(const TaskSession& session, const PartOptions& options) const;

  // Runs a step that consists of one part, on the caller's thread as far as possible, and blocks until it ends.
  // `fetches` must have the size of the part's fetches. Errors: that of the failing node; DEADLINE_EXCEEDED or the
  // caller's status if a limit ends the step; after Close, the status given to it. Allocates nothing by itself.
  Status Run(const CompiledPart& part, const PartArgs& args, const StepLimits& limits, absl::Span<Tensor> fetches);
  // The same without limits and non-blocking: calls `done` once, on any thread, possibly before returning. What the
  // arguments point to, `part` and `fetches` must live until then. The run is no longer listed by then, but counts as
  // running until `done` has returned.
  void RunAsync(const CompiledPart& part, const PartArgs& args, absl::Span<Tensor> fetches,
                absl::AnyInvocable<void(Status)> done);

  // Refuses later runs with `refused`, cancels those in flight with `cancelled`, and calls `idle` when none is left.
  // May be called repeatedly: the first call's statuses count.
  void Close(const Status& refused, const Status& cancelled, absl::AnyInvocable<void()> idle) {
    running_.Close(refused, cancelled, std::move(idle));
  }
  // OK until Close, then the status `refused`.
  Status status() const { return running_.status(); }
  // Joins the task's threads, so that the last reference to the task may then be dropped on any thread without
  // blocking. Call it after Close has called `idle`, and not on one of these threads.
  void StopThreads();

  std::vector<RunningPart> ListRunning() const { return running_.List(); }
  // Cancels the parts of a step that run here.
  void CancelStep(int64_t step_id, const Status& why) { running_.CancelStep(step_id, why); }
  bool is_running() const { return !running_.empty(); }

 private:
  CompileOptions OptionsFor(const TaskSession& session, const PartOptions& options) const;
  // Lists the run and fills in its StepContext. Nothing else fills one in: the makers of StepContext derive others.
  StatusOr<ActivePart*> Begin(const CompiledPart& part, const PartArgs& args);
  // Makes the run an attempt of args.run, and calls `go` when it may begin: no earlier attempt is running here.
  void Attempt(ActivePart* active, const CompiledPart& part, const RunIdentity& run,
               absl::AnyInvocable<void(Status)> go);
  void OnAsyncEnd(ActivePart* active, Status status);

  const TaskOptions options_;
  std::vector<std::shared_ptr<Device>> devices_;
  const std::shared_ptr<ResourceManager> resources_;
  const std::shared_ptr<WaitRegistry> waits_;
  std::shared_ptr<FileSystem> rooted_files_;  // null if files are not restricted
  FileSystem* files_;
  std::shared_ptr<FileThreads> file_threads_;  // null if there are none
  RunningParts running_;

  Mutex threads_mu_;
  std::unique_ptr<ThreadPool> threads_ ABSL_GUARDED_BY(threads_mu_);
  std::atomic<Scheduler*> inter_op_;  // null until the threads are started
};

}  // namespace millrace
