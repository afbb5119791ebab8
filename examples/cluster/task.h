// Shared by the programs of this folder: the flags of a task, and a test on the 10,000 test images.
#pragma once

#include <cstdio>
#include <iostream>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/str_split.h"
#include "examples/parse_flags.h"
#include "millrace/data/mnist.h"
#include "millrace/millrace.h"

struct TaskFlags {
  std::string ps_hosts, worker_hosts, job_name;
  int task_index = 0;
  std::string data_dir = "examples/data/mnist";
  int64_t steps = 600;
  int64_t batch_size = 100;
  double learning_rate = 0.3;

  void AddTo(CLI::App& app) {
    app.option_defaults()->always_capture_default();
    app.add_option("--ps_hosts", ps_hosts, "The parameter servers: host:port,host:port")->required();
    app.add_option("--worker_hosts", worker_hosts, "The workers: host:port,host:port")->required();
    app.add_option("--job_name", job_name, "The job of this process: ps or worker")
        ->required()
        ->check(CLI::IsMember({"ps", "worker"}));
    app.add_option("--task_index", task_index, "The index of this process in its job, from 0");
    app.add_option("--data_dir", data_dir, "Directory with the four IDX files of MNIST, plain or .gz");
    app.add_option("--train_steps,--steps", steps, "Training steps of all workers together")
        ->check(CLI::PositiveNumber);
    app.add_option("--batch_size", batch_size, "Images per step")->check(CLI::PositiveNumber);
    app.add_option("--learning_rate", learning_rate)->check(CLI::PositiveNumber);
  }

  int num_ps() const { return static_cast<int>(std::vector<std::string>(absl::StrSplit(ps_hosts, ',')).size()); }
  int num_workers() const {
    return static_cast<int>(std::vector<std::string>(absl::StrSplit(worker_hosts, ',')).size());
  }
};

// Starts the server of the task that the flags name.
inline millrace::StatusOr<std::unique_ptr<millrace::Server>> StartTask(const TaskFlags& flags) {
  MR_ASSIGN_OR_RETURN(const millrace::ClusterSpec cluster,
                      millrace::ClusterSpec::Of({{"ps", absl::StrSplit(flags.ps_hosts, ',')},
                                                 {"worker", absl::StrSplit(flags.worker_hosts, ',')}}));
  MR_ASSIGN_OR_RETURN(std::unique_ptr<millrace::Server> server,
                      millrace::Server::Start(cluster, flags.job_name, flags.task_index));
  std::printf("%s serves at %s\n", server->task().name().c_str(), server->target().c_str());
  std::fflush(stdout);
  return server;
}

inline millrace::Status PrintTestAccuracy(millrace::ClientSession& session, const millrace::Output& images,
                                          const millrace::Output& labels, const millrace::Output& num_correct,
                                          const millrace::Mnist& data) {
  const int64_t total = data.test_labels.num_elements();
  int64_t correct = 0;
  for (int64_t i = 0; i < total; i += 1000) {
    const int64_t end = std::min<int64_t>(i + 1000, total);
    MR_ASSIGN_OR_RETURN(const millrace::Tensors result, session.Run({{images, data.test_images.Slice(i, end)},
                                                                     {labels, data.test_labels.Slice(i, end)}},
                                                                    {num_correct}));
    correct += result[0].scalar<int64_t>();
  }
  std::printf("Test accuracy %.2f %% on %lld images\n",
              100.0 * static_cast<double>(correct) / static_cast<double>(total), static_cast<long long>(total));
  std::fflush(stdout);
  return absl::OkStatus();
}

inline void PrintStep(int64_t step, const millrace::Tensor& loss, const millrace::Tensor& accuracy) {
  std::printf("step %lld  loss %.4f  accuracy %5.1f %%\n", static_cast<long long>(step), loss.scalar<float>(),
              100 * accuracy.scalar<float>());
  std::fflush(stdout);
}

// The main() of a program whose tasks run `run`.
inline int RunTask(int argc, char** argv, const char* name, const char* what,
                   millrace::Status (*run)(const TaskFlags&)) {
  TaskFlags flags;
  CLI::App app(what, name);
  flags.AddTo(app);
  if (const std::optional<int> status = ParseFlags(app, argc, argv)) return *status;
  if (const millrace::Status status = run(flags); !status.ok()) {
    std::cerr << name << ": " << status.message() << "\n";
    return 1;
  }
  return 0;
}
