// Running graphs.
//
//   auto session = Session::Create().value();
//   session->Extend(graph_def);
//   auto loss = session->Run({{"x:0", batch}}, {"loss:0"}, {"train"});
#pragma once

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/time/time.h"
#include "absl/types/span.h"
#include "millrace/base/cancellation.h"
#include "millrace/base/status.h"
#include "millrace/graph/callable_spec.h"
#include "millrace/graph/graph.h"
#include "millrace/graph/pass_options.h"
#include "millrace/proto/config.pb.h"
#include "millrace/proto/graph.pb.h"
#include "millrace/runtime/run_identity.h"
#include "millrace/tensor/tensor.h"

namespace millrace {

class Device;
class ResourceManager;
class WaitRegistry;

// PEM files for mutual TLS: the certificate and key of this process, and the CA of its peers. All or none must be
// given.
struct TlsFiles {
  std::string certificate = {};
  std::string key = {};
  std::string authority = {};
};

struct SessionOptions {
  // "" runs in this process; "grpc://host:port" connects to that server.
  std::string target = {};
  // The number of threads within one op; 0 means the number of cores.
  int intra_op_threads = 0;
  // The number of threads that run ops concurrently, in addition to the caller's; 0 means the number of cores.
  int inter_op_threads = 0;
  // The number of CPU devices (CPU:0, CPU:1, ...), which share threads and memory.
  int cpu_devices = 1;
  // The maximum number of GPUs (GPU:0, ...); -1 means all in CUDA_VISIBLE_DEVICES. Only nodes that request a GPU run on
  // one. Without libmillrace_cuda.so there are none.
  int gpu_devices = -1;
  // The graph rewrites that are applied before the graph runs.
  PassOptions passes = {};
  // If a requested device does not exist or has no kernel for the op, another device is used instead of failing.
  bool allow_soft_placement = false;
  // Logs the device of each node.
  bool log_device_placement = false;
  // The timeout of runs that do not set their own.
  absl::Duration operation_timeout = absl::InfiniteDuration();
  // The state (variables, queues) of a session in this process; it outlives the session. If null, the session creates
  // its own.
  std::shared_ptr<ResourceManager> resources = nullptr;
  // The directories in which ops may read and write files, after resolving links; PERMISSION_DENIED elsewhere. If
  // empty, there is no restriction.
  std::vector<std::string> file_roots = {};
  // Where blocked ops are listed. If null, the session creates its own.
  std::shared_ptr<WaitRegistry> waits = nullptr;

  // `config.gpu_options` has which GPUs a session in this process uses and how much of their memory, as in TensorFlow;
  // the first session or server of the process decides.

  // The options below are for sessions on a server.

  // The tasks and devices that the session may use ("/job:ps", "/job:worker/task:1"); if empty, all. Other tasks are
  // not contacted.
  std::vector<std::string> device_filters = {};
  // If true, variables, queues and other state belong to the session and are deleted with it.
  bool isolate_session_state = false;
  // The addresses of the cluster's tasks, for servers that were started without the whole cluster.
  pb::ClusterDef cluster = {};
  // Sent to the server unchanged, except where other options override it.
  pb::ConfigProto config = {};
  // How long the server may be silent, although it is pinged, before a run fails with UNAVAILABLE.
  absl::Duration peer_timeout = absl::Seconds(5);
  // Mutual TLS; if empty, neither encryption nor authentication.
  TlsFiles tls = {};
};

struct RunOptions {
  // The step fails with DEADLINE_EXCEEDED if it takes longer.
  absl::Duration timeout = absl::InfiniteDuration();
  // Lets the caller cancel the step; may be null. Must outlive the run.
  CancellationManager* cancellation = nullptr;
  // Fills in RunMetadata::step_stats.
  bool trace = false;
  // Fills in RunMetadata::partition_graphs.
  bool output_partition_graphs = false;
  // Set it if the run may be repeated after a failure: a repetition under the same client and number, over this session
  // or another one, then changes variables, queues and other state once. Count up `attempt` with each repetition.
  // MonitoredSession does all of this by itself.
  //
  //   RunOptions options{.identity = RunIdentity::OfNewClient()};
  //   while (IsUnavailable(session->Run(options, ...))) { ++options.identity.attempt; /* a new session */ }
  //   options.identity = options.identity.Next();  // for the next run
  RunIdentity identity = {};
};

using RunMetadata = pb::RunMetadata;

struct DeviceInfo {
  std::string name;  // "/job:worker/replica:0/task:0/device:CPU:0"
  std::string type;  // "CPU"
  int64_t memory_limit = 0;
  uint64_t incarnation = 0;  // changes whenever its process restarts
};

// A compiled step. Thread-safe; valid until the session is closed.
class Callable {
 public:
  virtual ~Callable() = default;
  // `results` is resized to the number of fetches; reusing the vector saves allocations.
  virtual Status Run(absl::Span<const Tensor> feeds, std::vector<Tensor>* results, const RunOptions& options = {},
                     RunMetadata* metadata = nullptr) = 0;
  // Runs the step repeatedly, without feeds, until a run fails or is cancelled, and returns that status. A step that
  // runs entirely on one other task is repeated there, without a message per run. `options` apply to each run.
  //
  // With `run`, repetition i has the identity of *run with the number increased by i, and the same attempt. At the end
  // *run is the identity with which to call Repeat again, with a later attempt, so that the run that failed is repeated
  // and not counted twice.
  virtual Status Repeat(const RunOptions& options = {}, RunIdentity* run = nullptr) {
    return RepeatWith(options, run, [this](const RunOptions& each) {
      std::vector<Tensor> dropped;
      return Run({}, &dropped, each);
    });
  }

 protected:
  static Status RepeatWith(RunOptions options, RunIdentity* run,
                           absl::FunctionRef<Status(const RunOptions& each)> run_once) {
    while (true) {
      if (run != nullptr) options.identity = *run;
      MR_RETURN_IF_ERROR(run_once(options));
      if (run == nullptr) continue;
      // The attempt stays: it belongs to all runs of this call, of which a task may repeat the later ones by itself.
      run->oldest = ++run->number;
    }
  }
};

// Thread-safe: runs may be concurrent. State (variables, queues) is kept in a ResourceManager and outlives the session.
class Session {
 public:
  virtual ~Session() = default;

  // Creates a session with an empty graph. INVALID_ARGUMENT if no SessionFactory supports the target.
  static StatusOr<std::unique_ptr<Session>> Create(const SessionOptions& options = {});

  // Adds nodes. All or none of them are added; see ImportGraphDef for the errors.
  virtual Status Extend(pb::GraphDef def) = 0;
  // Adds the nodes of `graph` that the session does not have yet, by name.
  virtual Status Extend(const Graph& graph) = 0;

  // Runs what `fetches` ("y", "y:1") and `targets` ("train") need; a feed replaces any tensor of the graph. Errors:
  // NOT_FOUND for an unknown name; INVALID_ARGUMENT for a feed of the wrong type or shape, a tensor that is both fed
  // and fetched, or nothing to do; otherwise the error of the failing node, naming it.
  virtual Status Run(const RunOptions& options, absl::Span<const Feed> feeds, absl::Span<const std::string> fetches,
                     absl::Span<const std::string> targets, std::vector<Tensor>* results, RunMetadata* metadata) = 0;

  StatusOr<std::vector<Tensor>> Run(const std::vector<Feed>& feeds, const std::vector<std::string>& fetches,
                                    const std::vector<std::string>& targets = {}) {
    std::vector<Tensor> results;
    MR_RETURN_IF_ERROR(Run({}, feeds, fetches, targets, &results, nullptr));
    return results;
  }
  StatusOr<std::vector<Tensor>> Run(const std::vector<std::string>& fetches) {
    return Run(std::vector<Feed>{}, fetches);
  }
  Status RunTargets(const std::vector<std::string>& targets) { return Run(std::vector<Feed>{}, {}, targets).status(); }

  // Compiles a step that is run repeatedly.
  virtual StatusOr<std::unique_ptr<Callable>> MakeCallable(const CallableSpec& spec) = 0;

  // A step in several calls. PartialRunSetup declares everything that will be fed and fetched; each PartialRun feeds
  // some tensors and fetches some results; the step ends when everything has been fetched. INVALID_ARGUMENT for a name
  // that was not declared or was used before, or for a fetch that needs a feed that was not given yet.
  virtual StatusOr<std::string> PartialRunSetup(absl::Span<const std::string> feeds,
                                                absl::Span<const std::string> fetches,
                                                absl::Span<const std::string> targets) = 0;
  virtual Status PartialRun(const std::string& handle, absl::Span<const Feed> feeds,
                            absl::Span<const std::string> fetches, std::vector<Tensor>* results) = 0;

  // The devices in this process.
  virtual std::vector<Device*> ListDevices() const = 0;
  // All devices that nodes may be placed on, including those of other tasks.
  virtual StatusOr<std::vector<DeviceInfo>> ListDeviceInfo();

  // Cancels the steps in flight (they end with CANCELLED), waits for them, and refuses further runs.
  virtual Status Close() = 0;
};

// Adds a kind of session: each registered factory is asked in turn whether it accepts the target.
class SessionFactory {
 public:
  virtual ~SessionFactory() = default;
  virtual bool Accepts(const std::string& target) const = 0;
  virtual StatusOr<std::unique_ptr<Session>> Create(const SessionOptions& options) = 0;
  static void Register(std::unique_ptr<SessionFactory> factory);
};

}  // namespace millrace
