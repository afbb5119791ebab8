// One task of bench/plan: workers that read variables of equal sizes from the ps tasks, pause, and send gradients of
// the same sizes, so that links and pauses decide and not the cores of one machine.
//
// A ps serves until it is killed. A worker prints a line after its first step, and trains until it is killed.
#include <CLI/CLI.hpp>
#include <iostream>

#include "absl/strings/str_split.h"
#include "absl/time/clock.h"
#include "millrace/millrace.h"

using namespace millrace;

namespace {

struct Flags {
  std::string ps_hosts, worker_hosts, job_name;
  int task_index = 0;
  int variables = 12;
  int side = 128;  // each variable has side * side floats
  double pause_ms = 20;
};

Status Run(const Flags& flags) {
  const std::vector<std::string> ps = absl::StrSplit(flags.ps_hosts, ','),
                                 workers = absl::StrSplit(flags.worker_hosts, ',');
  MR_ASSIGN_OR_RETURN(const ClusterSpec cluster, ClusterSpec::Of({{"ps", ps}, {"worker", workers}}));
  MR_ASSIGN_OR_RETURN(std::unique_ptr<Server> server,
                      Server::Start(cluster, flags.job_name, flags.task_index,
                                    {.intra_op_threads = 1, .inter_op_threads = 1, .insecure = true}));
  if (flags.job_name == "ps") {
    server->Join();
    return absl::OkStatus();
  }
  const std::string me = absl::StrCat("/job:worker/task:", flags.task_index);
  Scope scope = Scope::NewRoot().WithDeviceFunction(
      ReplicaDeviceSetter({.ps_tasks = static_cast<int>(ps.size()), .worker_device = me}));
  const Output x = ops::Placeholder(scope, DType::kFloat, {.shape = {1, flags.side}});
  Output loss;
  for (int i = 0; i < flags.variables; ++i) {
    const Var w(scope, absl::StrCat("w", i), {flags.side, flags.side}, init::Zeros());
    const Output sum = ops::Sum(scope, ops::MatMul(scope, x, w), {0, 1});
    loss = i == 0 ? sum : loss + sum;
  }
  const Operation train = optimizers::GradientDescent({.learning_rate = 1e-6}).Minimize(scope, loss);
  const Operation init = GlobalVariablesInitializer(scope);
  const Output missing = UninitializedVariables(scope);
  MR_ASSIGN_OR_RETURN(ClientSession session,
                      ClientSession::Create(scope, {.target = server->target(), .device_filters = {"/job:ps", me}}));
  if (flags.task_index == 0) MR_RETURN_IF_ERROR(session.Run(init));
  while (true) {
    MR_ASSIGN_OR_RETURN(const Tensors told, session.Run({missing}));
    if (told[0].num_elements() == 0) break;
    absl::SleepFor(absl::Milliseconds(20));
  }
  MR_ASSIGN_OR_RETURN(Step step, session.MakeStep({x}, {}, {train}));
  Tensor ones(DType::kFloat, Shape({1, flags.side}));
  for (float& value : ones.flat<float>()) value = 1;
  for (bool first = true; true; first = false) {
    MR_RETURN_IF_ERROR(step({ones}).status());
    if (first) std::cout << "trains" << std::endl;
    absl::SleepFor(absl::Milliseconds(flags.pause_ms));
  }
}

}  // namespace

int main(int argc, char** argv) {
  Flags flags;
  CLI::App app("One task of bench/plan.", "plan_task");
  app.add_option("--ps_hosts", flags.ps_hosts)->required();
  app.add_option("--worker_hosts", flags.worker_hosts)->required();
  app.add_option("--job_name", flags.job_name)->required();
  app.add_option("--task_index", flags.task_index);
  app.add_option("--variables", flags.variables);
  app.add_option("--side", flags.side, "Each variable is a square matrix of this side");
  app.add_option("--pause_ms", flags.pause_ms, "Milliseconds to pause after each step: the worker's own work");
  CLI11_PARSE(app, argc, argv);
  const Status status = Run(flags);
  std::cerr << "plan_task: " << status << "\n";
  return 1;
}
