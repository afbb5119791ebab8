// Millrace's side of bench/transfer: one task of a cluster whose workers read and update variables on a ps.
//
// A ps serves until it is killed. A worker creates its session, prints {"ready": true}, and then, for each line "CASE
// SECONDS" of its input, measures that case and prints the median time of one step as a JSON line.
//
// A process may have several workers (--tasks), each with a thread; their times are printed together. For
// bench/idle_workers the line "idle SECONDS PERIOD" lets each of them make one small step every PERIOD seconds.
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <functional>
#include <iostream>
#include <map>
#include <numeric>
#include <optional>
#include <sstream>
#include <thread>
#include <vector>

#include "absl/strings/str_split.h"
#include "millrace/millrace.h"

using namespace millrace;

namespace {

struct Flags {
  std::string ps_hosts, worker_hosts, job_name;
  int task_index = 0;
  int tasks = 1;
  int threads = 0;
  bool embedding = false;
  bool scalar_only = false;
};

constexpr int64_t kMb = 1 << 20;
constexpr int64_t kRows = 10'000'000, kWidth = 64, kBatch = 4096;

double Now() { return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count(); }

using Cases = std::map<std::string, std::function<Status()>>;

// Appends the times of `run` over about `seconds`.
Status Measure(const std::function<Status()>& run, double seconds, std::vector<double>* all) {
  for (int i = 0; i < 3; ++i) MR_RETURN_IF_ERROR(run());
  std::vector<double>& times = *all;
  const double begin = Now();
  for (double now = begin; now < begin + seconds || times.size() < 3;) {
    MR_RETURN_IF_ERROR(run());
    const double end = Now();
    times.push_back(end - now);
    now = end;
  }
  return absl::OkStatus();
}

// Lets all workers of this process make the steps of a case at once: median, mean and number of their times.
StatusOr<std::string> MeasureAll(std::vector<Cases>* workers, const std::string& name, double seconds) {
  std::vector<std::vector<double>> each(workers->size());
  std::vector<Status> results(workers->size());
  std::vector<std::thread> threads;
  for (size_t i = 1; i < workers->size(); ++i)
    threads.emplace_back([&, i] { results[i] = Measure((*workers)[i][name], seconds, &each[i]); });
  results[0] = Measure((*workers)[0][name], seconds, &each[0]);
  for (std::thread& thread : threads) thread.join();
  for (const Status& result : results) MR_RETURN_IF_ERROR(result);
  std::vector<double> times;
  for (const auto& some : each) times.insert(times.end(), some.begin(), some.end());
  const double mean = std::accumulate(times.begin(), times.end(), 0.0) / static_cast<double>(times.size());
  const auto middle = times.begin() + static_cast<ptrdiff_t>(times.size() / 2);
  std::nth_element(times.begin(), middle, times.end());
  return absl::StrCat("{\"median\": ", *middle, ", \"mean\": ", mean, ", \"steps\": ", times.size(), "}");
}

// The cases of a worker, which use variables on the ps.
struct Worker {
  Scope scope = Scope::NewRoot();
  std::vector<Step> steps;  // used by the cases
  std::optional<ClientSession> session;

  Status Make(const Flags& flags, int index, const std::string& target, Cases* cases) {
    const std::string me = absl::StrCat("/job:worker/task:", index);
    const Scope ps = scope.WithDevice("/job:ps/task:0"), worker = scope.WithDevice(me);
    std::map<std::string, Operation> targets;
    std::map<std::string, Output> fetches;
    std::vector<Operation> shared, own;
    if (flags.embedding) {
      const Var table(ps, "table", {kRows, kWidth}, init::Zeros());
      const Output ids = ops::RandomUniformInt(worker, {static_cast<int>(kBatch)}, Input(int64_t{0}), Input(kRows));
      const Output rows = Op(ps, "ResourceGather", {table.handle(), ids}, {{"dtype", DType::kFloat}});
      const Output update = ops::Add(worker, ops::Mul(worker, ops::Identity(worker, rows), 0.01f), 1.0f);
      targets["embedding"] = AddOp(ps, "ResourceScatterAdd", {table.handle(), ids, update});
      shared.push_back(table.initializer());
    } else {
      const Var scalar(ps, "scalar", {1}, init::Zeros());
      targets["scalar"] = Operation(ops::Slice(worker, scalar, {0}, {1}));
      shared.push_back(scalar.initializer());
      for (const int64_t mb : flags.scalar_only ? std::vector<int64_t>{} : std::vector<int64_t>{1, 100}) {
        const Shape shape({mb * kMb / 4});
        const Var there(ps, absl::StrCat("there", mb), shape, init::Zeros());
        const Var here(worker, absl::StrCat("here", mb, "_", index), shape, init::Ones(), {.trainable = false});
        targets[absl::StrCat("read", mb)] = Operation(ops::Slice(worker, there, {0}, {1}));
        targets[absl::StrCat("push", mb)] = there.AssignAdd(ps, ops::Identity(worker, here));
        fetches[absl::StrCat("sum", mb)] = ops::Sum(worker, there, {0});
        fetches[absl::StrCat("own_sum", mb)] = ops::Sum(worker, here, {0});
        shared.push_back(there.initializer());
        own.push_back(here.initializer());
      }
    }
    const Operation init_shared = Group(scope.WithOpName("init_shared"), shared);
    std::optional<Operation> init_own;
    if (!own.empty()) init_own = Group(worker.WithOpName("init_own"), own);
    MR_RETURN_IF_ERROR(scope.status());
    MR_ASSIGN_OR_RETURN(session, ClientSession::Create(scope, {.target = target, .device_filters = {"/job:ps", me}}));
    if (index == 0) MR_RETURN_IF_ERROR(session->Run(init_shared));
    if (init_own) MR_RETURN_IF_ERROR(session->Run(*init_own));
    steps.reserve(targets.size() + fetches.size());
    for (const auto& [name, op] : targets) MR_RETURN_IF_ERROR(Add(name, session->MakeStep({}, {}, {op}), cases));
    for (const auto& [name, output] : fetches) MR_RETURN_IF_ERROR(Add(name, session->MakeStep({}, {output}), cases));
    return absl::OkStatus();
  }

  Status Add(const std::string& name, StatusOr<Step> step, Cases* cases) {
    MR_RETURN_IF_ERROR(step.status());
    steps.push_back(*std::move(step));
    (*cases)[name] = [&run = steps.back()] { return run().status(); };
    return absl::OkStatus();
  }
};

// A client of the ps task's own server, which is in another process.
struct Client {
  Scope scope = Scope::NewRoot();
  std::optional<ClientSession> session;
  std::optional<Step> fetch, feed;
  Tensor fed{DType::kFloat, Shape({100 * kMb / 4})};

  Status Make(const std::string& target, Cases* cases) {
    const Scope ps = scope.WithDevice("/job:ps/task:0");
    const Var value(ps, "fetched", {100 * kMb / 4}, init::Zeros());
    const Output read = value.Read(ps);
    const Output given = ops::Placeholder(ps, DType::kFloat, {.shape = {100 * kMb / 4}});
    const Output first = ops::Slice(ps, given, {0}, {1});
    std::fill(fed.flat<float>().begin(), fed.flat<float>().end(), 1.0f);
    MR_RETURN_IF_ERROR(scope.status());
    MR_ASSIGN_OR_RETURN(session, ClientSession::Create(scope, {.target = target, .device_filters = {"/job:ps"}}));
    MR_RETURN_IF_ERROR(session->Run(value.initializer()));
    MR_ASSIGN_OR_RETURN(fetch, session->MakeStep({}, {read}));
    MR_ASSIGN_OR_RETURN(feed, session->MakeStep({given}, {first}));
    (*cases)["fetch100"] = [this] { return (*fetch)().status(); };
    (*cases)["feed100"] = [this] { return (*feed)({fed}).status(); };
    return absl::OkStatus();
  }
};

// Lets each of the workers make one step every `period` seconds.
Status Idle(std::vector<Cases>* workers, double seconds, double period) {
  int64_t steps = 0;
  const double begin = Now(), pause = period / static_cast<double>(workers->size());
  for (; static_cast<double>(steps) * pause < seconds; ++steps) {
    const double wait = begin + static_cast<double>(steps) * pause - Now();
    if (wait > 0) std::this_thread::sleep_for(std::chrono::duration<double>(wait));
    MR_RETURN_IF_ERROR((*workers)[static_cast<size_t>(steps) % workers->size()]["scalar"]());
  }
  std::cout << "{\"steps\": " << steps << "}" << std::endl;
  return absl::OkStatus();
}

Status Run(const Flags& flags) {
  const std::vector<std::string> ps = absl::StrSplit(flags.ps_hosts, ','),
                                 workers = absl::StrSplit(flags.worker_hosts, ',');
  MR_ASSIGN_OR_RETURN(const ClusterSpec cluster, ClusterSpec::Of({{"ps", ps}, {"worker", workers}}));
  const ServerOptions options{.intra_op_threads = flags.threads, .inter_op_threads = flags.threads};
  std::vector<std::unique_ptr<Server>> servers;
  for (int i = 0; i < flags.tasks; ++i) {
    MR_ASSIGN_OR_RETURN(std::unique_ptr<Server> server,
                        Server::Start(cluster, flags.job_name, flags.task_index + i, options));
    servers.push_back(std::move(server));
  }
  if (flags.job_name == "ps") {
    servers[0]->Join();
    return absl::OkStatus();
  }
  std::vector<Cases> cases(servers.size());
  std::vector<Worker> tasks(servers.size());
  for (size_t i = 0; i < servers.size(); ++i)
    MR_RETURN_IF_ERROR(tasks[i].Make(flags, flags.task_index + static_cast<int>(i), servers[i]->target(), &cases[i]));
  Client client;
  if (!flags.embedding && !flags.scalar_only && flags.task_index == 0)
    MR_RETURN_IF_ERROR(client.Make("grpc://" + ps[0], &cases[0]));
  std::cout << "{\"ready\": true}" << std::endl;
  for (std::string line; std::getline(std::cin, line);) {
    std::istringstream words(line);
    std::string name;
    double seconds = 1, period = 10;
    words >> name >> seconds >> period;
    if (name == "idle") {
      MR_RETURN_IF_ERROR(Idle(&cases, seconds, period));
      continue;
    }
    if (!cases[0].contains(name)) return InvalidArgument("there is no case '", name, "'");
    MR_ASSIGN_OR_RETURN(const std::string told, MeasureAll(&cases, name, seconds));
    std::cout << told << std::endl;
  }
  return absl::OkStatus();
}

}  // namespace

int main(int argc, char** argv) {
  Flags flags;
  CLI::App app("One task of bench/transfer.", "transfer_task");
  app.add_option("--ps_hosts", flags.ps_hosts)->required();
  app.add_option("--worker_hosts", flags.worker_hosts)->required();
  app.add_option("--job_name", flags.job_name)->required();
  app.add_option("--task_index", flags.task_index);
  app.add_option("--tasks", flags.tasks, "Tasks in this process, from task_index on")->check(CLI::PositiveNumber);
  app.add_option("--threads", flags.threads, "Threads of each pool; 0: one per core");
  app.add_flag("--scalar_only", flags.scalar_only, "Have only the case 'scalar', without variables of 100 MB");
  app.add_flag("--embedding", flags.embedding, "Measure rows of a table of 10 M x 64 on the ps");
  CLI11_PARSE(app, argc, argv);
  if (const Status status = Run(flags); !status.ok()) {
    std::cerr << "transfer_task: " << status << "\n";
    _exit(1);
  }
  _exit(0);
}
