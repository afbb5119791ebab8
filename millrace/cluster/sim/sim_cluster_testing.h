// A cluster on a simulated network: one thread, a virtual clock, faults on demand. For tests only.
//
//   SimCluster cluster(seed);
//   cluster.network().OnMessage(...);
//   cluster.Kill("ps0");
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"
#include "millrace/cluster/master/master.h"
#include "millrace/cluster/task_service.h"
#include "millrace/cluster/worker/worker.h"
#include "millrace/device/cpu/cpu_device.h"
#include "millrace/net/sim/sim_network.h"

namespace millrace {

struct SimClusterOptions {
  net::SimOptions network = {};
  int ps = 1;
  int workers = 2;
  // The files that the ops of a process see, by its host; null: this machine's.
  std::function<FileSystem*(const std::string& host)> files = nullptr;
  absl::Duration missing_task_timeout = absl::Minutes(10);
  absl::Duration session_grace = absl::Seconds(30);
  std::string collective_leader = {};    // the task that forms the groups of collective ops
  std::vector<std::string> absent = {};  // tasks that are not started
};

// Tests of simulated clusters run twice: with tensors that are pulled, and with streaming calls, on which tensors are
// pushed.
class SimClusterTest : public ::testing::TestWithParam<bool> {
 protected:
  SimClusterTest() { streams = GetParam(); }
  ~SimClusterTest() override { streams = false; }

 public:
  static inline bool streams = false;
};
inline std::string PullOrPush(const ::testing::TestParamInfo<bool>& info) { return info.param ? "Push" : "Pull"; }

// Used by one thread. The same seed, options and calls give the same log. Tasks have short names: "ps0", "worker0",
// "worker1".
class SimCluster {
 public:
  explicit SimCluster(uint64_t seed, const SimClusterOptions& options = {})
      : options_(options), random_(seed ^ 0x9e3779b97f4a7c15), network_(seed, options.network) {
    network_.SetStreams(SimClusterTest::streams);
    std::map<std::string, std::vector<std::string>> jobs;
    const auto add = [&](const std::string& job, int count) {
      for (int i = 0; i < count; ++i) {
        tasks_.push_back(absl::StrCat(job, i));
        jobs[job].push_back(Address(tasks_.back()));
      }
    };
    add("ps", options.ps);
    add("worker", options.workers);
    cluster_ = ClusterSpec::Of(jobs).value();
    for (const std::string& task : tasks_) {
      if (std::find(options.absent.begin(), options.absent.end(), task) == options.absent.end()) Start(task);
    }
  }
  ~SimCluster() {
    network_.OnMessage(nullptr);
    network_.SetOptions({});
    for (auto& [task, process] : processes_) Stop(process.get());
    for (auto& process : dead_) Stop(process.get());
  }

  net::SimNetwork& network() { return network_; }
  const std::vector<std::string>& tasks() const { return tasks_; }
  static std::string Address(const std::string& task) { return absl::StrCat(task, ":2222"); }
  static TaskId Id(const std::string& task) {
    const size_t digits = task.find_first_of("0123456789");
    int index = 0;
    MR_CHECK(absl::SimpleAtoi(task.substr(digits), &index));
    return {task.substr(0, digits), index};
  }
  static std::string Name(const std::string& task) { return Id(task).name(); }
  bool IsAlive(const std::string& task) const { return processes_.contains(task); }
  // Of the process that is alive.
  const std::string& HostOf(const std::string& task) const { return processes_.at(task)->host; }
  Worker& worker(const std::string& task) { return *processes_.at(task)->worker; }
  Master& master(const std::string& task) { return *processes_.at(task)->master; }
  // Drawn from the seed.
  uint64_t Random() { return random_(); }
  int Random(int below) { return static_cast<int>(random_() % below); }

  // Starts a new process of the task, on a new host, so that remains of an earlier process cannot be mistaken for it.
  void Start(const std::string& task) {
    auto process = std::make_unique<Process>();
    process->host = absl::StrCat(task, ".", ++lives_[task]);
    process->transport = network_.NewTransport(process->host);
    static const auto* const no_threads = new std::shared_ptr<ThreadPool>(std::make_shared<ThreadPool>("intra_op", 0));
    TaskOptions engine{.name = Name(task), .clock = network_.clock(process->host), .files = FilesOf(process->host)};
    engine.devices.push_back(NewCpuDevice(
        {.name = absl::StrCat(Name(task), "/device:CPU:0"), .pool = *no_threads, .incarnation = random_() | 1}));
    engine.inter_op = network_.scheduler(process->host);
    engine.file_threads = 1;
    process->file_operations = std::make_unique<FileOperations>(this, process->host);
    engine.file_operations = process->file_operations.get();
    engine.timers = network_.timers(process->host);
    WorkerOptions worker{.task = std::make_shared<Task>(std::move(engine)), .id = Id(task), .cluster = cluster_};
    worker.transport = process->transport.get();
    worker.liveness.timers = network_.timers(process->host);
    worker.liveness.clock = network_.clock(process->host);
    worker.lease = {.task = Name(task),
                    .grace = options_.session_grace,
                    .connections = network_.connections(process->host),
                    .timers = network_.timers(process->host),
                    .clock = network_.clock(process->host),
                    .scheduler = network_.scheduler(process->host)};
    const LeaseOptions lease = worker.lease;
    if (!options_.collective_leader.empty()) {
      worker.collective_group_leader = Name(options_.collective_leader);
      worker.random = [random = std::make_shared<std::mt19937_64>(random_())] { return (*random)(); };
    }
    process->worker = Worker::Make(std::move(worker));
    MasterOptions master{.worker = process->worker};
    master.timers = network_.timers(process->host);
    master.liveness.timers = master.timers;
    master.liveness.clock = network_.clock(process->host);
    master.missing_task_timeout = options_.missing_task_timeout;
    master.lease = lease;
    // Each process has a random generator of its own, so that processes do not influence each other's numbers.
    master.random = [random = std::make_shared<std::mt19937_64>(random_())] { return (*random)(); };
    process->master = Master::Make(std::move(master));
    process->service = std::make_unique<TaskService>(process->master, process->worker, network_.clock(process->host));
    process->listener = process->transport->Listen(Address(task), process->service.get()).value();
    processes_[task] = std::move(process);
  }

  // May be called by events and while a message is sent. Does nothing if the task is not running.
  void Kill(const std::string& task) {
    const auto it = processes_.find(task);
    if (it == processes_.end()) return;
    dead_.push_back(std::move(it->second));
    processes_.erase(it);
    network_.Kill(dead_.back()->host);
  }
  void Restart(const std::string& task) {
    Kill(task);
    Start(task);
  }
  // A file operation that is begun from now on takes a random time up to this.
  void SetMaxFileDelay(absl::Duration delay) { max_file_delay_ = delay; }
  void Hang(const std::string& task) { network_.Hang(processes_.at(task)->host); }
  void Resume(const std::string& task) { network_.Resume(processes_.at(task)->host); }
  void Cut(const std::string& a, const std::string& b) { network_.Cut(processes_.at(a)->host, processes_.at(b)->host); }
  void CutOneWay(const std::string& from, const std::string& to) {
    network_.CutOneWay(processes_.at(from)->host, processes_.at(to)->host);
  }
  void SetClock(const std::string& task, double rate, absl::Duration jump) {
    network_.SetClock(processes_.at(task)->host, rate, jump);
  }
  void Heal(const std::string& a, const std::string& b) {
    network_.Heal(processes_.at(a)->host, processes_.at(b)->host);
  }

  // All waits, running parts and remembered steps on the tasks that are alive; empty if nothing is going on.
  std::vector<std::string> Leftovers() const {
    std::vector<std::string> left;
    for (const auto& [task, process] : processes_) {
      for (const Wait& wait : process->worker->ListWaits()) {
        left.push_back(absl::StrCat(task, ": ", wait.node, " waits for ", wait.what));
      }
      for (const RunningPart& part : process->worker->ListRunning())
        left.push_back(absl::StrCat(task, ": runs ", part.step_id));
      for (const int64_t step : process->worker->ListSteps()) left.push_back(absl::StrCat(task, ": knows step ", step));
      for (const auto& session : process->master->sessions()) {
        for (const RunningStep& step : session->ListRunning())
          left.push_back(absl::StrCat(task, ": master of step ", step.step_id));
      }
    }
    return left;
  }

 private:
  // Runs operations on files after a random time.
  class FileOperations : public Scheduler {
   public:
    FileOperations(SimCluster* cluster, std::string host) : cluster_(cluster), host_(std::move(host)) {}
    void Schedule(absl::AnyInvocable<void()> closure) override {
      const double share = static_cast<double>(cluster_->Random(1000)) / 1000;
      cluster_->network_.timers(host_)->Schedule(cluster_->max_file_delay_ * share, std::move(closure));
    }
    int num_threads() const override { return 1; }

   private:
    SimCluster* const cluster_;
    const std::string host_;
  };

  struct Process {
    std::string host;
    std::unique_ptr<Scheduler> file_operations;
    std::unique_ptr<net::Transport> transport;
    std::shared_ptr<Worker> worker;
    std::shared_ptr<Master> master;
    std::unique_ptr<TaskService> service;
    std::unique_ptr<net::Listener> listener;
  };

  FileSystem* FilesOf(const std::string& host) const {
    return options_.files == nullptr ? nullptr : options_.files(host);
  }
  void Stop(Process* process) {
    network_.Resume(process->host);
    const Status why = Unavailable("the task is going down");
    process->master->Shutdown(why);
    bool idle = false;
    process->worker->Shutdown(why, [&idle] { idle = true; });
    process->listener->Stop();
    MR_CHECK(network_.RunUntil([&] { return idle; }));
    process->worker->Clear();
  }

  const SimClusterOptions options_;
  std::vector<std::string> tasks_;
  std::mt19937_64 random_;
  net::SimNetwork network_;
  ClusterSpec cluster_;
  absl::Duration max_file_delay_ = absl::ZeroDuration();
  std::map<std::string, int> lives_;
  std::vector<std::unique_ptr<Process>> dead_;
  std::map<std::string, std::unique_ptr<Process>> processes_;
};

}  // namespace millrace
