// A training that keeps books, for tests that break it: each run adds 1 to `w` on the ps, and every worker writes down
// how many runs it has begun and how many were acknowledged, in a file that outlives it. So a test can tell whether a
// run was lost or counted twice. In synchronous training each update takes 1 from `w`.
//
//   counting --log_dir=DIR [--sync_replicas] [--save_checkpoint_secs=S] [--large_device=D]    under `millrace launch`
//
// Trains until the global step that the file DIR/stop names; then the chief prints what the ps has. With
// --large_device, worker 1 now and then has a step made there of as many MB as the file DIR/large names, and says how
// that went.
#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <atomic>
#include <cstdio>
#include <fstream>
#include <iostream>
#include <thread>

#include "millrace/cluster/task_config.h"
#include "millrace/millrace.h"

using namespace millrace;

namespace {

struct Flags {
  std::string log_dir;
  bool sync_replicas = false;
  double save_checkpoint_secs = 1;
  double pause_ms = 1;
  std::string large_device;
};

// What a worker has done, in all its lives.
struct Ledger {
  std::atomic<int64_t> begun, acknowledged, ended;

  static StatusOr<Ledger*> Open(const Flags& flags, int worker) {
    const std::string path = absl::StrCat(flags.log_dir, "/ledger-", worker);
    const int fd = open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    void* memory = MAP_FAILED;
    if (fd >= 0 && ftruncate(fd, sizeof(Ledger)) == 0)
      memory = mmap(nullptr, sizeof(Ledger), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (fd >= 0) close(fd);
    if (memory == MAP_FAILED) return Unavailable("cannot open ", path);
    return static_cast<Ledger*>(memory);
  }
};

// What the test has written into a file of the folder.
int64_t NumberIn(const Flags& flags, absl::string_view name, int64_t otherwise) {
  std::ifstream file(absl::StrCat(flags.log_dir, "/", name));
  int64_t number = 0;
  return file >> number ? number : otherwise;
}

// The global step to stop at, once it is known.
int64_t LastStep(const Flags& flags) { return NumberIn(flags, "stop", std::numeric_limits<int64_t>::max()); }

void Pause(double milliseconds) {
  std::this_thread::sleep_for(std::chrono::microseconds(static_cast<int64_t>(1000 * milliseconds)));
}

struct Model {
  Model(const Flags& flags, const TaskConfig& config, const std::string& me)
      : scope(Scope::NewRoot().WithDeviceFunction(
            ReplicaDeviceSetter({.ps_tasks = config.num_ps(), .worker_device = me}))),
        w(scope, "w", 0.0f),
        global_step(GlobalStep(scope)) {
    if (!flags.sync_replicas) {
      train = Group(scope.WithOpName("train"), {w.AssignAdd(scope, 1.0f), global_step.AssignAdd(scope, int64_t{1})});
      return;
    }
    const int workers = config.num_workers();
    SyncReplicasOptimizer sync(
        std::make_unique<optimizers::GradientDescent>(optimizers::GradientDescentOptions{.learning_rate = 1.0}),
        {.replicas_to_aggregate = workers, .total_num_replicas = workers});
    train = sync.Minimize(scope, ops::Identity(scope, w), {.global_step = global_step});
    hooks.push_back(sync.MakeSessionRunHook(config.is_chief(), 0));
  }

  Scope scope;
  Var w, global_step;
  Operation train;
  Hooks hooks;
};

// A step that needs a lot of memory, in a session of its own.
class LargeStep {
 public:
  LargeStep(const std::string& device, const SessionOptions& options) {
    const Scope there = scope_.WithDevice(device);
    size_ = ops::Placeholder(there, DType::kInt32, {.shape = {1}});
    const Output large = ops::RandomUniform(there.WithOpName("large"), *size_, DType::kFloat);
    const Output sum = ops::Sum(there, large, {0});
    StatusOr<ClientSession> session = ClientSession::Create(scope_, options);
    if (!session.ok()) return;
    session_.emplace(*std::move(session));
    sum_ = sum;
  }
  Status Run(int64_t megabytes) {
    if (!session_.has_value()) return Unavailable("there is no session for it");
    Tensor size(DType::kInt32, Shape({1}));
    size.flat<int32_t>()[0] = static_cast<int32_t>(megabytes << 18);
    return session_->Run({{*size_, size}}, {*sum_}).status();
  }

 private:
  Scope scope_ = Scope::NewRoot();
  std::optional<ClientSession> session_;
  std::optional<Output> size_, sum_;
};

Status TellEnd(const Flags& flags, const TaskConfig& config, const Model& model, const SessionOptions& session) {
  for (int worker = 0; worker < config.num_workers(); ++worker) {
    MR_ASSIGN_OR_RETURN(Ledger* const ledger, Ledger::Open(flags, worker));
    while (worker != 0 && ledger->ended.load() == 0) Pause(10);
  }
  MR_ASSIGN_OR_RETURN(ClientSession reader, ClientSession::Create(model.scope, session));
  MR_ASSIGN_OR_RETURN(const Tensors values, reader.Run({model.w, model.global_step}));
  std::printf("at the end w is %.0f and the global step %lld\n", values[0].scalar<float>(),
              static_cast<long long>(values[1].scalar<int64_t>()));
  return absl::OkStatus();
}

Status Train(const Flags& flags, const TaskConfig& config, const std::string& target) {
  const std::string me = absl::StrCat("/job:", config.task.job, "/task:", config.task.index);
  const Model model(flags, config, me);
  const SessionOptions options{.target = target, .device_filters = {"/job:ps", me}};
  MR_ASSIGN_OR_RETURN(Ledger* const ledger, Ledger::Open(flags, config.worker_index()));
  MR_ASSIGN_OR_RETURN(
      std::unique_ptr<MonitoredSession> session,
      MonitoredTrainingSession(model.scope, {.master = target,
                                             .is_chief = config.is_chief(),
                                             .checkpoint_dir = flags.log_dir,
                                             .hooks = model.hooks,
                                             .save_checkpoint_every = absl::Seconds(flags.save_checkpoint_secs),
                                             .save_summaries_every_steps = 0,
                                             .log_step_count_every_steps = 0,
                                             .session = options}));
  MR_ASSIGN_OR_RETURN(MonitoredStep step, session->MakeStep({}, {model.global_step}, {model.train}));
  std::optional<LargeStep> large;
  if (config.worker_index() == 1 && !flags.large_device.empty()) large.emplace(flags.large_device, options);
  int64_t last = std::numeric_limits<int64_t>::max();
  for (int64_t local = 1, reached = 0; reached < last && !session->ShouldStop(); ++local) {
    ledger->begun.fetch_add(1);
    MR_ASSIGN_OR_RETURN(const Tensors told, step());
    ledger->acknowledged.fetch_add(1);
    reached = told[0].scalar<int64_t>();
    Pause(flags.pause_ms);
    if (local % 50 != 0) continue;
    last = LastStep(flags);
    if (large.has_value()) {
      const int64_t megabytes = NumberIn(flags, "large", 16);
      std::printf("The step of %d MB: %s\n", static_cast<int>(megabytes), large->Run(megabytes).ToString().c_str());
    }
    std::printf("Worker %d: step %lld done (global step %lld)\n", config.worker_index(), static_cast<long long>(local),
                static_cast<long long>(reached));
    std::fflush(stdout);
  }
  MR_RETURN_IF_ERROR(session->Close());
  session.reset();
  if (NoticeBoard::OfProcess()->given()) return absl::OkStatus();
  ledger->ended.store(1);
  return config.is_chief() ? TellEnd(flags, config, model, options) : absl::OkStatus();
}

Status Run(const Flags& flags) {
  MR_ASSIGN_OR_RETURN(const std::optional<TaskConfig> config, TaskConfig::FromEnvironment());
  if (!config) return InvalidArgument("TF_CONFIG is not set; use millrace launch");
  MR_ASSIGN_OR_RETURN(std::unique_ptr<Server> server,
                      Server::Start(config->cluster, config->task.job, config->task.index));
  if (!config->is_ps()) return Train(flags, *config, server->target());
  server->ServeUntilNotice();
  return absl::OkStatus();
}

}  // namespace

int main(int argc, char** argv) {
  Flags flags;
  CLI::App app("A training that keeps books.", "counting");
  app.add_option("--log_dir", flags.log_dir)->required();
  app.add_flag("--sync_replicas", flags.sync_replicas);
  app.add_option("--save_checkpoint_secs", flags.save_checkpoint_secs)->take_last();
  app.add_option("--large_device", flags.large_device,
                 "where worker 1 has a step made now and then that needs much memory");
  app.add_option("--pause_ms", flags.pause_ms, "what a step takes besides, in milliseconds");
  CLI11_PARSE(app, argc, argv);
  if (const Status status = Run(flags); !status.ok()) {
    std::cerr << "counting: " << status.message() << "\n";
    return 1;
  }
  return 0;
}
