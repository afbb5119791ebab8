// Millrace's side of bench/train: one task of a cluster that trains the network of TensorFlow's mnist_replica.py
// (784-100-10, batch 100, SGD), on random data.
//
// A ps serves until it is killed. A worker prints one JSON line after its first step; worker 0 then prints one for each
// repeat, with the global steps per second, while the others keep training until they are killed.
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <chrono>
#include <cstdio>
#include <iostream>
#include <random>

#include "absl/strings/str_split.h"
#include "absl/time/clock.h"
#include "millrace/millrace.h"
#include "millrace/train/sync/sync_replicas_optimizer.h"

using namespace millrace;

namespace {

struct Flags {
  std::string ps_hosts, worker_hosts, job_name;
  int task_index = 0;
  bool sync = false;
  bool alone = false;
  bool first_step = false;
  int threads = 0;
  int repeats = 3;
  double seconds = 3;
  // Pauses after each step, in milliseconds: of all workers, and the additional pause of a slow one.
  double pause_ms = 0;
  int slow_worker = -1;
  double slow_ms = 0;
  int replicas_to_aggregate = 0;
  int tokens = -1;
};

double Now() { return absl::ToDoubleSeconds(absl::Now() - absl::UnixEpoch()); }

struct Replica {
  Output x, y, global_step, missing;
  Operation train, init;
  std::unique_ptr<SyncReplicasOptimizer> sync;
};

Replica Build(const Scope& s, const Flags& flags, int num_workers) {
  Replica r;
  const Var step = GlobalStep(s);
  const Var w1(s, "w1", {784, 100}, init::TruncatedNormal({.stddev = 1.0 / 28})), b1(s, "b1", {100}, init::Zeros());
  const Var w2(s, "w2", {100, 10}, init::TruncatedNormal({.stddev = 0.1})), b2(s, "b2", {10}, init::Zeros());
  r.x = ops::Placeholder(s, DType::kFloat, {.shape = {-1, 784}});
  r.y = ops::Placeholder(s, DType::kFloat, {.shape = {-1, 10}});
  const Output hidden = ops::Relu(s, ops::BiasAdd(s, ops::MatMul(s, r.x, w1), b1));
  const Output p = ops::Softmax(s, ops::BiasAdd(s, ops::MatMul(s, hidden, w2), b2));
  const Output loss = ops::Neg(s, ops::Sum(s, r.y * ops::Log(s, ops::ClipByValue(s, p, 1e-10f, 1.0f)), {0, 1}));
  auto optimizer =
      std::make_unique<optimizers::GradientDescent>(optimizers::GradientDescentOptions{.learning_rate = 0.001});
  if (flags.sync) {
    const int aggregate = flags.replicas_to_aggregate > 0 ? flags.replicas_to_aggregate : num_workers;
    r.sync = std::make_unique<SyncReplicasOptimizer>(
        std::move(optimizer),
        SyncReplicasOptions{.replicas_to_aggregate = aggregate, .total_num_replicas = num_workers});
    r.train = r.sync->Minimize(s, loss, {.global_step = step});
  } else {
    r.train = optimizer->Minimize(s, loss, {.global_step = step});
  }
  r.init = GlobalVariablesInitializer(s);
  r.missing = r.sync ? r.sync->ready_for_local_init(flags.task_index == 0) : UninitializedVariables(s);
  r.global_step = step.Read(s);
  return r;
}

std::pair<Tensor, Tensor> RandomBatch(int seed) {
  std::mt19937 random(seed);
  Tensor x(DType::kFloat, Shape({100, 784})), y(DType::kFloat, Shape({100, 10}));
  for (float& v : x.flat<float>()) v = std::uniform_real_distribution<float>()(random);
  std::fill(y.flat<float>().begin(), y.flat<float>().end(), 0.0f);
  for (int i = 0; i < 100; ++i) y.flat<float>()[10 * i + random() % 10] = 1;
  return {x, y};
}

Status Run(const Flags& flags) {
  const std::vector<std::string> ps = absl::StrSplit(flags.ps_hosts, ','),
                                 workers = absl::StrSplit(flags.worker_hosts, ',');
  MR_ASSIGN_OR_RETURN(const ClusterSpec cluster, ClusterSpec::Of({{"ps", ps}, {"worker", workers}}));
  MR_ASSIGN_OR_RETURN(std::unique_ptr<Server> server,
                      Server::Start(cluster, flags.job_name, flags.task_index,
                                    {.intra_op_threads = flags.threads, .inter_op_threads = flags.threads}));
  if (flags.job_name == "ps") {
    server->Join();
    return absl::OkStatus();
  }
  const bool is_chief = flags.task_index == 0 || flags.alone;
  const std::string me = absl::StrCat("/job:worker/task:", flags.task_index);
  Scope scope = Scope::NewRoot().WithDeviceFunction(
      ReplicaDeviceSetter({.ps_tasks = flags.alone ? 0 : static_cast<int>(ps.size()), .worker_device = me}));
  Replica r = Build(scope, flags, static_cast<int>(workers.size()));
  Operation init_tokens;
  if (r.sync) {
    MR_ASSIGN_OR_RETURN(init_tokens, r.sync->InitTokensOp(flags.tokens));
  }
  MR_ASSIGN_OR_RETURN(ClientSession session,
                      ClientSession::Create(scope, {.target = server->target(), .device_filters = {"/job:ps", me}}));
  if (is_chief) MR_RETURN_IF_ERROR(session.Run(r.init));
  while (true) {
    MR_ASSIGN_OR_RETURN(const Tensors told, session.Run({r.missing}));
    if (told[0].num_elements() == 0) break;
    absl::SleepFor(absl::Milliseconds(2));
  }
  Coordinator coordinator;
  if (r.sync && is_chief) {
    MR_RETURN_IF_ERROR(session.Run(init_tokens));
    MR_RETURN_IF_ERROR(session.Run(r.sync->chief_init_op()));
    MR_RETURN_IF_ERROR(r.sync->ChiefQueueRunner().Start(&session, &coordinator));
  } else if (r.sync) {
    MR_RETURN_IF_ERROR(session.Run(r.sync->local_step_init_op()));
  }
  MR_ASSIGN_OR_RETURN(Step step, session.MakeStep({r.x, r.y}, {}, {r.train}));
  MR_ASSIGN_OR_RETURN(Step read, session.MakeStep({}, {r.global_step}));
  const auto [x, y] = RandomBatch(flags.task_index);
  const bool slow = flags.slow_worker == flags.task_index;
  const auto train = [&]() -> Status {
    MR_RETURN_IF_ERROR(step({x, y}).status());
    if (const double pause = flags.pause_ms + (slow ? flags.slow_ms : 0); pause > 0)
      absl::SleepFor(absl::Milliseconds(pause));
    return absl::OkStatus();
  };
  MR_RETURN_IF_ERROR(train());
  std::printf("{\"first_step\": %.6f}\n", Now());
  std::fflush(stdout);
  if (flags.first_step) return absl::OkStatus();
  const auto train_for = [&](double seconds) -> Status {
    for (const double end = Now() + seconds; Now() < end;) MR_RETURN_IF_ERROR(train());
    return absl::OkStatus();
  };
  if (!is_chief) return train_for(3600);
  MR_RETURN_IF_ERROR(train_for(flags.seconds / 2));
  for (int i = 0; i < flags.repeats; ++i) {
    MR_ASSIGN_OR_RETURN(const Tensors before, read());
    const double begin = Now();
    MR_RETURN_IF_ERROR(train_for(flags.seconds));
    const double took = Now() - begin;
    MR_ASSIGN_OR_RETURN(const Tensors after, read());
    std::printf("{\"global_steps_per_second\": %.2f}\n",
                static_cast<double>(after[0].scalar<int64_t>() - before[0].scalar<int64_t>()) / took);
    std::fflush(stdout);
  }
  if (r.sync) {
    MR_ASSIGN_OR_RETURN(const Tensors told, session.Run({r.sync->num_dropped(), r.global_step}));
    std::printf("{\"dropped\": %lld, \"global_step\": %lld}\n", static_cast<long long>(told[0].scalar<int64_t>()),
                static_cast<long long>(told[1].scalar<int64_t>()));
    std::fflush(stdout);
  }
  return train_for(3600);
}

}  // namespace

int main(int argc, char** argv) {
  Flags flags;
  CLI::App app("One task of bench/train.", "train_task");
  app.add_option("--ps_hosts", flags.ps_hosts)->required();
  app.add_option("--worker_hosts", flags.worker_hosts)->required();
  app.add_option("--job_name", flags.job_name)->required();
  app.add_option("--task_index", flags.task_index);
  app.add_flag("--sync", flags.sync, "Train synchronously, with SyncReplicasOptimizer");
  app.add_flag("--alone", flags.alone, "Each worker has its own parameters and the ps is idle");
  app.add_flag("--first_step", flags.first_step, "End after the first step");
  app.add_option("--threads", flags.threads, "Threads of each pool; 0: one per core");
  app.add_option("--repeats", flags.repeats);
  app.add_option("--seconds", flags.seconds, "Seconds of each repeat");
  app.add_option("--pause_ms", flags.pause_ms, "Milliseconds to pause after each step, to simulate a longer step");
  app.add_option("--slow_worker", flags.slow_worker, "The index of a worker that pauses for longer after each step");
  app.add_option("--slow_ms", flags.slow_ms, "Additional milliseconds that the slow worker pauses");
  app.add_option("--replicas_to_aggregate", flags.replicas_to_aggregate, "Gradients per update; 0: one per worker");
  app.add_option("--tokens", flags.tokens, "Initial tokens; see SyncReplicasOptimizer::InitTokensOp");
  CLI11_PARSE(app, argc, argv);
  if (const Status status = Run(flags); !status.ok()) {
    std::cerr << "train_task: " << status << "\n";
    _exit(1);
  }
  _exit(0);
}
