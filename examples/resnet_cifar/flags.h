// The flags of resnet_cifar.
#pragma once

#include <CLI/CLI.hpp>
#include <algorithm>
#include <string>
#include <vector>

#include "absl/strings/str_join.h"
#include "millrace/millrace.h"

struct Flags {
  std::string data_dir = "cifar-10-batches-bin";
  std::string model_dir;
  int64_t batch_size = 128;
  int64_t train_epochs = 182;
  int64_t train_steps = 0;
  int64_t epochs_between_evals = 1;
  int64_t eval_batch_size = 250;
  bool skip_eval = false;
  bool eval_only = false;
  bool use_synthetic_data = false;
  std::string distribution_strategy = "off";
  int num_gpus = 0;
  int cpu_devices = 1;
  int shards = 8;
  std::string all_reduce_alg = "auto";
  int num_packs = 0;
  int resnet_size = 56;
  int version = 1;
  double learning_rate = 0.1;
  double weight_decay = 2e-4;
  int64_t warmup_epochs = 0;
  double label_smoothing = 0;
  int64_t seed = 1;
  int threads = 0;
  int64_t data_threads = 2;
  int64_t log_steps = 100;
  std::string benchmark_log_dir;

  void AddTo(CLI::App& app) {
    using CLI::NonNegativeNumber;
    using CLI::PositiveNumber;
    // Of a flag that is given twice the last counts, as with TensorFlow's programs.
    app.option_defaults()->always_capture_default()->multi_option_policy(CLI::MultiOptionPolicy::TakeLast);
    app.add_option("--data_dir,--dd", data_dir, "The folder cifar-10-batches-bin; get_data downloads it");
    app.add_option("--model_dir,--md", model_dir,
                   "Folder for checkpoints and TensorBoard's files; a training found there is continued");
    app.add_option("--batch_size,--bs", batch_size,
                   "Images per step of all workers; with parameter_server, of one worker")
        ->check(PositiveNumber);
    app.add_option("--train_epochs,--te", train_epochs, "Passes over the training images")->check(PositiveNumber);
    app.add_option("--train_steps", train_steps, "Steps in all, instead of --train_epochs")->check(PositiveNumber);
    app.add_option("--epochs_between_evals,--ebe", epochs_between_evals, "Epochs between evaluations and checkpoints")
        ->check(PositiveNumber);
    app.add_option("--eval_batch_size", eval_batch_size, "Images that are evaluated at a time, by all workers together")
        ->check(CLI::PositiveNumber);
    app.add_flag("--skip_eval", skip_eval, "Do not evaluate");
    app.add_flag("--eval_only", eval_only, "Evaluate the newest checkpoint in --model_dir, and do not train");
    app.add_flag("--use_synthetic_data,--synth", use_synthetic_data,
                 "Train on one batch of random numbers, to measure speed without an input pipeline");
    app.add_option(
        "--distribution_strategy,--ds", distribution_strategy,
        "off: devices are chosen by the runtime; one_device: all on the CPU, or on the GPU with "
        "--num_gpus=1; mirrored: --cpu_devices of this process; multi_worker_mirrored: the workers in "
        "TF_CONFIG; parameter_server: the same, asynchronously, with the variables on its ps tasks; default: the one "
        "of these that fits");
    app.add_option("--cpu_devices", cpu_devices, "CPU devices of each process, for mirrored and multi_worker_mirrored")
        ->check(PositiveNumber);
    app.add_option("--shards", shards,
                   "Logical shards of a batch: a strategy then gives the same weights, byte for byte, on any number of "
                   "workers and devices; 0: one part for each device, which may add up in any order")
        ->check(NonNegativeNumber);
    app.add_option("--all_reduce_alg,--ara", all_reduce_alg,
                   "How workers sum gradients with --shards=0: auto, ring, halving-doubling, doubling or tree");
    app.add_option("--num_packs", num_packs, "Exchanges of gradients per step; 0: one for each 4 MB")
        ->check(NonNegativeNumber);
    app.add_option("--num_gpus,--ng", num_gpus, "GPUs to train on; 0: the CPU")->check(NonNegativeNumber);
    app.add_option("--resnet_size,--rs", resnet_size, "Layers of the network")->check(CLI::IsMember({20, 32, 44, 56}));
    app.add_option("--version,--resnet_version,--rv", version,
                   "1: normalisation after convolutions (2015); 2: before them (2016)")
        ->check(CLI::IsMember({1, 2}));
    app.add_option(
           "--learning_rate,--lr", learning_rate,
           "For batches of 128; scaled in proportion to --batch_size, a tenth after epochs 91, 136 and 182 each")
        ->check(PositiveNumber);
    app.add_option("--weight_decay", weight_decay, "Strength of L2 regularization of the kernels")
        ->check(NonNegativeNumber);
    app.add_option("--warmup_epochs", warmup_epochs, "Epochs in which the learning rate rises from 0")
        ->check(NonNegativeNumber);
    app.add_option("--label_smoothing", label_smoothing, "Share of a label's probability that all classes get")
        ->check(CLI::Range(0.0, 0.99));
    app.add_option("--seed", seed, "Random seed of the weights, the order of the images and their augmentation");
    app.add_option("--threads", threads, "Threads that compute; 0: one per core")->check(NonNegativeNumber);
    app.add_option("--data_threads,--datasets_num_private_threads", data_threads, "Threads that augment images")
        ->check(PositiveNumber);
    app.add_option("--log_steps", log_steps, "Steps between lines of progress")->check(PositiveNumber);
    app.add_option("--benchmark_log_dir,--bld", benchmark_log_dir,
                   "Folder for metric.log, which gets a line of JSON for each measurement");
    app.footer(
        "Examples:\n"
        "  resnet_cifar --data_dir=cifar-10-batches-bin --model_dir=run --resnet_size=20\n"
        "  resnet_cifar --use_synthetic_data --train_steps=200 --skip_eval\n"
        "  millrace launch --ps 0 --workers 2 -- resnet_cifar --distribution_strategy=multi_worker_mirrored");
  }

  // The strategy's name, with `default` replaced.
  millrace::StatusOr<std::string> Strategy() const {
    MR_ASSIGN_OR_RETURN(const std::optional<millrace::TaskConfig> task, millrace::TaskConfig::FromEnvironment());
    const bool several = task && task->num_workers() > 1;
    if (distribution_strategy != "default") {
      if (several && distribution_strategy != "multi_worker_mirrored" && distribution_strategy != "parameter_server") {
        return millrace::InvalidArgument("TF_CONFIG has ", task->num_workers(),
                                         " workers, and --distribution_strategy=", distribution_strategy,
                                         " trains on one; multi_worker_mirrored and parameter_server use all");
      }
      return distribution_strategy;
    }
    if (task && task->num_ps() > 0) return std::string("parameter_server");
    if (several) return std::string("multi_worker_mirrored");
    return std::string(cpu_devices > 1 ? "mirrored" : "one_device");
  }

  // INVALID_ARGUMENT for values that contradict each other.
  millrace::Status Check() const {
    using millrace::InvalidArgument;
    const std::vector<std::string> known = {
        "off", "one_device", "mirrored", "multi_worker_mirrored", "parameter_server", "default"};
    const std::string names = absl::StrJoin(known, ", ");
    if (std::find(known.begin(), known.end(), distribution_strategy) == known.end()) {
      return InvalidArgument("--distribution_strategy=", distribution_strategy, " is not known; available are ", names);
    }
    if (cpu_devices > 1 && (distribution_strategy == "off" || distribution_strategy == "one_device" ||
                            distribution_strategy == "parameter_server")) {
      return InvalidArgument("--cpu_devices=", cpu_devices, " needs --distribution_strategy=mirrored or ",
                             "multi_worker_mirrored; ", distribution_strategy, " trains on one");
    }
    if (cpu_devices > 1 && num_gpus > 0) return InvalidArgument("--cpu_devices and --num_gpus exclude each other");
    if (eval_only && skip_eval) return InvalidArgument("--eval_only and --skip_eval leave nothing to do");
    if (eval_only && model_dir.empty()) return InvalidArgument("--eval_only needs --model_dir");
    return Strategy().status();
  }
};
