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

#include "absl/time/time.h"
#include "absl/types/span.h"
#include "millrace/base/cancellation.h"
#include "millrace/base/status.h"
#include "millrace/graph/graph.h"
#include "millrace/graph/passes/pass.h"
#include "millrace/proto/config.pb.h"
#include "millrace/proto/graph.pb.h"
#include "millrace/tensor/tensor.h"

namespace millrace {

class Device;
class ResourceManager;
class WaitRegistry;

// Names of files in PEM form: who this process is, and whose signature it believes. All or none of them are given.
struct TlsFiles {
  std::string certificate = {};
  std::string key = {};
  std::string authority = {};
};

struct SessionOptions {
  // "" runs in this process; "grpc://host:port" talks to that server.
  std::string target = {};
  // Threads for one wide op; 0 takes the number of cores.
  int intra_op_threads = 0;
  // Threads that run independent ops beside the caller's; 0 takes the number of cores.
  int inter_op_threads = 0;
  // Number of CPU devices (CPU:0, CPU:1, ...); they share threads and memory.
  int cpu_devices = 1;
  // Number of GPU devices (GPU:0, ...) at most; -1 takes all that CUDA_VISIBLE_DEVICES leaves. A node runs on
  // one when it asks to. In a build without CUDA there are none.
  int gpu_devices = -1;
  // Which rewrites of the graph are made before it runs.
  PassOptions passes = {};
  // A device that does not exist, or that has no kernel for an op, is replaced by one that has.
  bool allow_soft_placement = false;
  // Prints where each node went.
  bool log_device_placement = false;
  // Limit of each run without a time-out of its own.
  absl::Duration operation_timeout = absl::InfiniteDuration();
  // State of this process, by default a ResourceManager of the session's own; outlives the session.
  std::shared_ptr<ResourceManager> resources = nullptr;
  // The folders that ops may read and write files in, links resolved: PERMISSION_DENIED for other files. Empty: all.
  std::vector<std::string> file_roots = {};
  // Where blocked ops are listed, by default a registry of the session's own.
  std::shared_ptr<WaitRegistry> waits = nullptr;

  // What follows is for sessions to a server.

  // The tasks and devices that the session may use ("/job:ps", "/job:worker/task:1"); empty: all. Others are not even asked.
  std::vector<std::string> device_filters = {};
  // Variables, queues and the like are the session's own and end with it.
  bool isolate_session_state = false;
  // Tells the server who the tasks are, for servers that were started without the whole cluster.
  pb::ClusterDef cluster = {};
  // What goes to the server as it is, beneath what the other options say.
  pb::ConfigProto config = {};
  // A run fails with UNAVAILABLE when the server, asked once in a while whether it is there, has been silent for so long.
  absl::Duration peer_timeout = absl::Seconds(5);
  // Mutual TLS; without, neither encryption nor authentication.
  TlsFiles tls = {};
};

struct RunOptions {
  // DEADLINE_EXCEEDED when the step takes longer.
  absl::Duration timeout = absl::InfiniteDuration();
  // Cancels the step from outside; may be null. Outlives the run.
  CancellationManager* cancellation = nullptr;
  // Fills in RunMetadata::step_stats.
  bool trace = false;
  // Fills in RunMetadata::partition_graphs.
  bool output_partition_graphs = false;
};

using RunMetadata = pb::RunMetadata;

// A tensor's name ("x", "x:0") with its value.
using Feed = std::pair<std::string, Tensor>;

struct DeviceInfo {
  std::string name;  // "/job:worker/replica:0/task:0/device:CPU:0"
  std::string type;  // "CPU"
  int64_t memory_limit = 0;
  uint64_t incarnation = 0;  // another one after each start of its process
};

// What a callable takes and gives, by name, in the order of its arguments and results.
struct CallableSpec {
  std::vector<std::string> feeds = {};
  std::vector<std::string> fetches = {};
  std::vector<std::string> targets = {};
};

// A step compiled once. Thread-safe; usable until the session is closed.
class Callable {
 public:
  virtual ~Callable() = default;
  // `results` is resized to the fetches; its vector is reused when the caller keeps it.
  virtual Status Run(absl::Span<const Tensor> feeds, std::vector<Tensor>* results,
                     const RunOptions& options = {}, RunMetadata* metadata = nullptr) = 0;
  // Runs it again and again, without feeds, until a run fails or is cancelled: that is the result. A step that is on one other task of a
  // cluster as a whole is repeated there, without a message for each run. `options` are those of each run.
  virtual Status Repeat(const RunOptions& options = {}) {
    std::vector<Tensor> dropped;
    Status status;
    while (status.ok()) status = Run({}, &dropped, options);
    return status;
  }
};

// Thread-safe: several runs may be in flight. State (variables, queues) outlives the session in its
// ResourceManager.
class Session {
 public:
  virtual ~Session() = default;

  // An empty session. INVALID_ARGUMENT for a target that no transport of this program understands.
  static StatusOr<std::unique_ptr<Session>> Create(const SessionOptions& options = {});

  // Adds nodes. All or none of them are added; see ImportGraphDef for the errors.
  virtual Status Extend(pb::GraphDef def) = 0;
  // Adds the nodes of `graph` that the session does not have yet, by name.
  virtual Status Extend(const Graph& graph) = 0;

  // Runs what `fetches` ("y", "y:1") and `targets` ("train") need, with any tensors of the graph
  // replaced by feeds. Errors: NOT_FOUND for an unknown name, INVALID_ARGUMENT for a feed of the wrong
  // type or shape, a tensor both fed and fetched, or nothing to do; otherwise what the failing node said,
  // naming it.
  virtual Status Run(const RunOptions& options, absl::Span<const Feed> feeds,
                     absl::Span<const std::string> fetches, absl::Span<const std::string> targets,
                     std::vector<Tensor>* results, RunMetadata* metadata) = 0;

  StatusOr<std::vector<Tensor>> Run(const std::vector<Feed>& feeds,
                                    const std::vector<std::string>& fetches,
                                    const std::vector<std::string>& targets = {}) {
    std::vector<Tensor> results;
    MR_RETURN_IF_ERROR(Run({}, feeds, fetches, targets, &results, nullptr));
    return results;
  }
  StatusOr<std::vector<Tensor>> Run(const std::vector<std::string>& fetches) {
    return Run(std::vector<Feed>{}, fetches);
  }
  Status RunTargets(const std::vector<std::string>& targets) {
    return Run(std::vector<Feed>{}, {}, targets).status();
  }

  // Compiles once, runs often.
  virtual StatusOr<std::unique_ptr<Callable>> MakeCallable(const CallableSpec& spec) = 0;

  // A step in several calls: set up with everything that will be fed and fetched, then each
  // PartialRun feeds some tensors and fetches some results; it ends when all are fetched.
  // INVALID_ARGUMENT for a name that was not set up or was used before, or a fetch that needs a
  // feed not given yet.
  virtual StatusOr<std::string> PartialRunSetup(absl::Span<const std::string> feeds,
                                                absl::Span<const std::string> fetches,
                                                absl::Span<const std::string> targets) = 0;
  virtual Status PartialRun(const std::string& handle, absl::Span<const Feed> feeds,
                            absl::Span<const std::string> fetches, std::vector<Tensor>* results) = 0;

  // The devices in this process.
  virtual std::vector<Device*> ListDevices() const = 0;
  // All devices that nodes may be placed on, those of other tasks too.
  virtual StatusOr<std::vector<DeviceInfo>> ListDeviceInfo();

  // Cancels the steps in flight (they end with CANCELLED), waits for them, and refuses further runs.
  virtual Status Close() = 0;
};

// How other kinds of sessions join in: a factory is asked in turn whether the target is its own.
class SessionFactory {
 public:
  virtual ~SessionFactory() = default;
  virtual bool Accepts(const std::string& target) const = 0;
  virtual StatusOr<std::unique_ptr<Session>> Create(const SessionOptions& options) = 0;
  static void Register(std::unique_ptr<SessionFactory> factory);
};

}  // namespace millrace
