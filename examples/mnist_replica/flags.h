// The flags of mnist_replica, and the cluster and task that they describe.
#pragma once

#include <CLI/CLI.hpp>
#include <string>

#include "absl/strings/str_split.h"
#include "millrace/cluster/task_config.h"
#include "millrace/millrace.h"

struct Flags {
  std::string ps_hosts = "localhost:2222";
  std::string worker_hosts = "localhost:2223,localhost:2224";
  std::string job_name;
  int task_index = -1;
  bool sync_replicas = false;
  int replicas_to_aggregate = 0;
  int shards = 0;
  int64_t train_steps = 200;
  int64_t hidden_units = 100;
  int64_t batch_size = 100;
  double learning_rate = 0.01;
  std::string data_dir = "examples/data/mnist";
  std::string log_dir;
  double save_checkpoint_secs = 60;
  int64_t staleness = -1;
  bool existing_servers = false;
  std::string profile_steps;

  void AddTo(CLI::App& app) {
    app.option_defaults()->always_capture_default();
    app.add_option("--ps_hosts", ps_hosts, "The parameter servers: host:port,host:port");
    app.add_option("--worker_hosts", worker_hosts, "The workers: host:port,host:port");
    app.add_option("--job_name", job_name,
                   "The job of this process: ps or worker. Default: cluster and task come from TF_CONFIG")
        ->check(CLI::IsMember({"ps", "worker"}));
    app.add_option("--task_index", task_index, "The index of this process in its job, from 0; worker 0 is the chief")
        ->check(CLI::NonNegativeNumber);
    app.add_flag("--sync_replicas,!--nosync_replicas", sync_replicas,
                 "Synchronous training: every step averages the gradients of several workers. Default: asynchronous");
    app.add_option("--replicas_to_aggregate", replicas_to_aggregate,
                   "With --sync_replicas: the number of gradients to average; 0: one per worker. Fewer leave out the "
                   "slowest workers")
        ->check(CLI::NonNegativeNumber);
    app.add_option(
           "--shards", shards,
           "With --sync_replicas: fixed order. A global batch has this many logical shards, and the weights are "
           "the same, byte for byte, on any number of workers up to it; 0: off")
        ->check(CLI::NonNegativeNumber);
    app.add_option("--train_steps,--steps", train_steps, "Global steps, of all workers together")
        ->check(CLI::PositiveNumber);
    app.add_option("--hidden_units", hidden_units)->check(CLI::PositiveNumber);
    app.add_option("--batch_size", batch_size, "Images per step of a worker, or of a shard")
        ->check(CLI::PositiveNumber);
    app.add_option("--learning_rate", learning_rate)->check(CLI::PositiveNumber);
    app.add_option("--data_dir", data_dir, "Directory with the four IDX files of MNIST, plain or .gz");
    app.add_option("--log_dir", log_dir,
                   "Directory for checkpoints and TensorBoard's files; a training found there is continued");
    app.add_option("--save_checkpoint_secs", save_checkpoint_secs, "Seconds between checkpoints")
        ->check(CLI::PositiveNumber);
    app.add_option("--staleness", staleness,
                   "Without --sync_replicas: how many steps a worker may be ahead of the slowest; -1: no limit");
    app.add_flag("--existing_servers", existing_servers,
                 "The servers are running already (millrace serve); start only the worker's client");
    app.add_option("--profile_steps", profile_steps,
                   "Writes a timeline of these global steps, as in 100 or 100:105 (the end is excluded), to --log_dir");
    app.footer(
        "By hand, each in a terminal of its own:\n"
        "  mnist_replica --job_name=ps --task_index=0\n"
        "  mnist_replica --job_name=worker --task_index=0\n"
        "  mnist_replica --job_name=worker --task_index=1\n"
        "or all at once: millrace launch --ps 1 --workers 2 -- mnist_replica --sync_replicas");
  }

  // INVALID_ARGUMENT for flags that contradict each other.
  millrace::StatusOr<millrace::TaskConfig> Task() const {
    using millrace::InvalidArgument;
    if (replicas_to_aggregate > 0 && !sync_replicas)
      return InvalidArgument("--replicas_to_aggregate needs --sync_replicas");
    if (shards > 0 && !sync_replicas) return InvalidArgument("--shards needs --sync_replicas");
    if (shards > 0 && replicas_to_aggregate > 0)
      return InvalidArgument("--shards needs every worker in every step: leave out --replicas_to_aggregate");
    if (staleness >= 0 && sync_replicas)
      return InvalidArgument("--staleness is for asynchronous training: leave out --sync_replicas or --staleness");
    if (staleness < -1) return InvalidArgument("--staleness must be at least 0, or -1 for no bound");
    if (!profile_steps.empty() && log_dir.empty()) return InvalidArgument("--profile_steps needs --log_dir");
    millrace::TaskConfig config;
    if (job_name.empty()) {
      MR_ASSIGN_OR_RETURN(std::optional<millrace::TaskConfig> told, millrace::TaskConfig::FromEnvironment());
      if (!told || told->cluster.jobs().empty())
        return InvalidArgument(
            "which task is this? Give --job_name and --task_index, or TF_CONFIG (as millrace launch does)");
      config = *std::move(told);
    } else {
      if (task_index < 0) return InvalidArgument("give --task_index: which ", job_name, " is this?");
      MR_ASSIGN_OR_RETURN(config.cluster, millrace::ClusterSpec::Of({{"ps", absl::StrSplit(ps_hosts, ',')},
                                                                     {"worker", absl::StrSplit(worker_hosts, ',')}}));
      config.task = {job_name, task_index};
      MR_RETURN_IF_ERROR(config.cluster.Address(config.task).status());
    }
    if (config.num_ps() == 0) return InvalidArgument("there is no parameter server: the variables need at least one");
    if (existing_servers && config.is_ps())
      return InvalidArgument("with --existing_servers only the workers' clients are started");
    return config;
  }
};
