// Trains a residual network on CIFAR-10 and evaluates it, with the flags of TensorFlow's program.
//
//   examples/resnet_cifar/get_data .
//   resnet_cifar --data_dir=cifar-10-batches-bin --model_dir=run --resnet_size=20
//
// A training that is stopped continues at its newest checkpoint, with the batches that it would have had.
#include <cstdio>
#include <iostream>
#include <random>

#include "absl/strings/str_join.h"
#include "examples/parse_flags.h"
#include "examples/resnet_cifar/benchmark_log.h"
#include "examples/resnet_cifar/flags.h"
#include "examples/resnet_cifar/model.h"
#include "examples/resnet_cifar/speed.h"

using namespace millrace;

namespace {

constexpr int64_t kSyntheticExamples = 50000;

// ---- Data ----

struct Data {
  CifarImages train, test;
  int64_t examples = 0;  // of an epoch
};

CifarImages RandomImages(int64_t n, int64_t seed) {
  CifarImages made{.images = Tensor(DType::kUInt8, Shape({n, 32, 32, 3})), .labels = Tensor(DType::kInt32, Shape({n}))};
  std::mt19937 random(static_cast<uint32_t>(seed));
  for (uint8_t& pixel : made.images.flat<uint8_t>()) pixel = static_cast<uint8_t>(random());
  for (int32_t& label : made.labels.flat<int32_t>()) label = static_cast<int32_t>(random() % 10);
  return made;
}

StatusOr<Data> LoadData(const Flags& flags) {
  if (flags.use_synthetic_data) {
    const CifarImages batch = RandomImages(flags.batch_size, flags.seed);
    return Data{.train = batch, .test = batch, .examples = kSyntheticExamples};
  }
  StatusOr<Cifar10> read = LoadCifar10(flags.data_dir);
  if (absl::IsNotFound(read.status()))
    return WithSuffix(read.status(), "; examples/resnet_cifar/get_data downloads it, --use_synthetic_data needs none");
  MR_RETURN_IF_ERROR(read.status());
  if (!read->absent.empty())
    std::printf("%s has no %s, which is not needed\n", flags.data_dir.c_str(),
                absl::StrJoin(read->absent, " and no ").c_str());
  const int64_t examples = read->train.labels.dim(0);
  if (flags.batch_size > examples)
    return InvalidArgument("--batch_size=", flags.batch_size, " is more than the ", examples, " training images");
  return Data{.train = read->train, .test = read->test, .examples = examples};
}

// The batches of this worker's replicas from global step `first_step` on.
StatusOr<std::unique_ptr<DatasetIterator>> TrainingBatches(const Data& data, const Flags& flags, int64_t first_step,
                                                           const Strategy* strategy) {
  const int64_t replicas = strategy == nullptr ? 1 : strategy->num_replicas();
  const int64_t local = strategy == nullptr ? 1 : strategy->local_replicas();
  const bool synchronous = strategy == nullptr || strategy->is_synchronous();
  const int64_t batch_size = synchronous ? flags.batch_size / replicas : flags.batch_size;
  if (flags.use_synthetic_data) {
    MR_ASSIGN_OR_RETURN(const Dataset once, CifarTestBatches(data.train, batch_size));
    MR_ASSIGN_OR_RETURN(const std::unique_ptr<DatasetIterator> it, once.MakeIterator());
    const int64_t own = strategy == nullptr || !synchronous ? 0 : strategy->first_replica();
    std::vector<Tensor> all, one;
    for (int64_t i = 0; i < own + local; ++i) {
      MR_RETURN_IF_ERROR(it->Next(&one).status());
      if (i >= own) all.insert(all.end(), one.begin(), one.end());
    }
    return Dataset::FromElement(all).Repeat().MakeIterator();
  }
  MR_ASSIGN_OR_RETURN(const Dataset batches,
                      CifarTrainingBatches(data.train, {.batch_size = batch_size,
                                                        .num_workers = replicas,
                                                        .worker_index = strategy ? strategy->first_replica() : 0,
                                                        .parts = local,
                                                        .seed = static_cast<uint64_t>(flags.seed),
                                                        .first_batch = synchronous ? first_step : first_step / replicas,
                                                        .threads = flags.data_threads}));
  return batches.Prefetch(2).MakeIterator();
}

// ---- Evaluation ----

// Evaluates on the test images, on all workers if they step together; the chief prints and records the results.
class Evaluator {
 public:
  static StatusOr<Evaluator> Create(const Model& model, const Data& data, const Flags& flags, Strategy* strategy,
                                    BenchmarkLog* log) {
    Evaluator made(model, strategy, log);
    MR_ASSIGN_OR_RETURN(made.batches_, CifarTestBatches(data.test, flags.eval_batch_size, flags.data_threads));
    if (EvaluateTogether(strategy)) {
      MR_ASSIGN_OR_RETURN(
          made.batches_,
          strategy->DistributeDataset(
              made.batches_->Unbatch(),
              {.batch_size = flags.eval_batch_size, .shuffle_buffer = -1, .repeat = 1, .drop_remainder = false}));
    }
    if (!flags.model_dir.empty() && made.is_chief_) {
      MR_ASSIGN_OR_RETURN(made.writer_, FileWriter::Create(JoinPath(flags.model_dir, "eval")));
    }
    return made;
  }

  Status Run(ClientSession& session, int64_t step) {
    if (!is_chief_ && !together_) return absl::OkStatus();
    MR_ASSIGN_OR_RETURN(const std::unique_ptr<DatasetIterator> batches, batches_->MakeIterator());
    int64_t total = 0, correct = 0;
    double loss = 0;
    std::vector<Tensor> batch;
    for (;;) {
      MR_ASSIGN_OR_RETURN(const bool more, batches->Next(&batch));
      if (!more) break;
      ClientSession::Feeds feeds;
      for (size_t i = 0; i < batch.size(); ++i) feeds.emplace_back(model_.test_feeds[i], batch[i]);
      MR_ASSIGN_OR_RETURN(const Tensors told,
                          session.Run(feeds, {model_.num_images, model_.num_correct, model_.test_loss}));
      total += told[0].scalar<int64_t>();
      correct += told[1].scalar<int64_t>();
      loss += told[2].scalar<float>();
    }
    if (!is_chief_) return absl::OkStatus();
    const double accuracy = static_cast<double>(correct) / static_cast<double>(total);
    loss /= static_cast<double>(total);
    std::printf("Evaluation at step %lld: accuracy %.2f %%, loss %.4f on %lld images\n", static_cast<long long>(step),
                100 * accuracy, loss, static_cast<long long>(total));
    std::fflush(stdout);
    MR_RETURN_IF_ERROR(log_->Add("accuracy", accuracy, step));
    MR_RETURN_IF_ERROR(log_->Add("loss", loss, step));
    if (writer_ == nullptr) return absl::OkStatus();
    MR_RETURN_IF_ERROR(writer_->AddScalar("accuracy", accuracy, step));
    MR_RETURN_IF_ERROR(writer_->AddScalar("loss", loss, step));
    return writer_->Flush();
  }

 private:
  Evaluator(const Model& model, const Strategy* strategy, BenchmarkLog* log)
      : model_(model),
        is_chief_(strategy == nullptr || strategy->is_chief()),
        together_(EvaluateTogether(strategy)),
        log_(log) {}

  Model model_;
  bool is_chief_, together_;
  BenchmarkLog* log_;
  std::optional<Dataset> batches_;
  std::unique_ptr<FileWriter> writer_;
};

// ---- Training ----

// Only the chief tells how it goes. Where workers do not step together, the global step says how far they
// are.
Status Train(MonitoredSession& session, const Model& m, DatasetIterator& batches, const Flags& flags, int64_t done,
             int64_t last, int64_t steps_per_epoch, bool is_chief, bool synchronous, Evaluator& evaluator,
             BenchmarkLog& log) {
  std::vector<Output> fetches = {m.loss, m.learning_rate};
  if (!synchronous) fetches.push_back(m.global_step);
  MR_ASSIGN_OR_RETURN(const MonitoredStep step, session.MakeStep(m.feeds, fetches, {m.train}));
  const int64_t eval_every = flags.epochs_between_evals * steps_per_epoch;
  Speed speed(flags.batch_size);
  std::vector<Tensor> batch;
  Tensors told;
  while (!session.ShouldStop()) {
    MR_RETURN_IF_ERROR(batches.Next(&batch).status());
    MR_RETURN_IF_ERROR(step.Run(batch, &told));
    const int64_t before = done;
    done = synchronous ? done + 1 : std::max(done + 1, told[2].scalar<int64_t>());
    speed.Step(done - before);
    const auto passed = [&](int64_t interval) { return done / interval > before / interval; };
    if (is_chief && (passed(flags.log_steps) || (done >= last && before < last))) {
      const double rate = speed.Current();
      std::printf("step %lld/%lld (epoch %.2f)  loss %.4f  learning rate %.4g  %.1f images/s\n",
                  static_cast<long long>(done), static_cast<long long>(last),
                  static_cast<double>(done) / static_cast<double>(steps_per_epoch), told[0].scalar<float>(),
                  told[1].scalar<float>(), rate);
      std::fflush(stdout);
      MR_RETURN_IF_ERROR(log.Add("current_examples_per_sec", rate, done));
    }
    if (!flags.skip_eval && passed(eval_every) && done < last) {
      speed.Pause();
      MR_RETURN_IF_ERROR(evaluator.Run(*session.raw_session(), done));
      speed.Resume();
    }
  }
  if (!is_chief) return absl::OkStatus();
  std::printf("Trained to step %lld, %.1f images/s on average\n", static_cast<long long>(done), speed.Average());
  return log.Add("average_examples_per_sec", speed.Average(), done);
}

// What of the devices the flags ask for is there.
Status CheckDevices(const Flags& flags) {
  if (flags.num_gpus == 0) return absl::OkStatus();
  MR_ASSIGN_OR_RETURN(const ClientSession session, ClientSession::Create(Scope::NewRoot()));
  MR_ASSIGN_OR_RETURN(const std::vector<DeviceInfo> devices, session.session().ListDeviceInfo());
  const auto gpus = std::count_if(devices.begin(), devices.end(), [](const DeviceInfo& d) { return d.type == "GPU"; });
  if (flags.num_gpus > gpus) {
    return InvalidArgument("--num_gpus=", flags.num_gpus, ", but Millrace finds ",
                           gpus == 0 ? "no" : absl::StrCat(gpus), gpus == 1 ? " GPU" : " GPUs",
                           " here; --num_gpus=0 trains on the CPU");
  }
  if (flags.num_gpus > 1) {
    return Unimplemented("--num_gpus=", flags.num_gpus, ": several GPUs of one process are not available yet");
  }
  return absl::OkStatus();
}

// Null without one.
StatusOr<std::unique_ptr<Strategy>> MakeStrategy(const Flags& flags) {
  MR_ASSIGN_OR_RETURN(const std::string name, flags.Strategy());
  StrategyOptions options{.shards = flags.shards, .num_packs = flags.num_packs, .all_reduce_alg = flags.all_reduce_alg};
  if (flags.num_gpus > 0) options.devices = {"/device:GPU:0"};
  for (int i = 0; flags.num_gpus == 0 && i < flags.cpu_devices; ++i) {
    options.devices.push_back(absl::StrCat("/device:CPU:", i));
  }
  if (name == "one_device") return OneDeviceStrategy(std::move(options));
  if (name == "mirrored") return MirroredStrategy(std::move(options));
  if (name == "multi_worker_mirrored") return MultiWorkerMirroredStrategy(std::move(options));
  if (name == "parameter_server") {
    return ParameterServerStrategy({.intra_op_threads = flags.threads, .inter_op_threads = flags.threads});
  }
  return std::unique_ptr<Strategy>();
}

Status Run(const Flags& flags) {
  MR_RETURN_IF_ERROR(flags.Check());
  MR_RETURN_IF_ERROR(CheckDevices(flags));
  if (flags.eval_only) {
    MR_ASSIGN_OR_RETURN(const std::string newest, LatestCheckpoint(flags.model_dir));
    if (newest.empty()) return NotFound("there is no checkpoint in ", flags.model_dir, " to evaluate");
  }
  MR_ASSIGN_OR_RETURN(const std::unique_ptr<Strategy> strategy, MakeStrategy(flags));  // a ps serves here
  MR_ASSIGN_OR_RETURN(const Data data, LoadData(flags));
  const int64_t steps_per_epoch = std::max<int64_t>(1, data.examples / flags.batch_size);
  const int64_t last = flags.train_steps > 0 ? flags.train_steps : flags.train_epochs * steps_per_epoch;

  const bool is_chief = strategy == nullptr || strategy->is_chief();
  Scope scope = strategy == nullptr ? Scope::NewRoot() : strategy->NewScope();
  if (strategy == nullptr && flags.num_gpus > 0) scope = scope.WithDevice("/device:GPU:0");
  scope.SetRandomSeed(flags.seed);
  const Model model = BuildModel(scope, flags, steps_per_epoch, strategy.get());
  MR_RETURN_IF_ERROR(scope.status());
  MR_ASSIGN_OR_RETURN(BenchmarkLog log, BenchmarkLog::Open(is_chief ? flags.benchmark_log_dir : ""));
  MR_ASSIGN_OR_RETURN(Evaluator evaluator, Evaluator::Create(model, data, flags, strategy.get(), &log));

  MonitoredTrainingSessionOptions options{
      .checkpoint_dir = flags.model_dir,
      .save_checkpoint_every_steps = flags.epochs_between_evals * steps_per_epoch,
      .log_step_count_every_steps = 0,
      .loss = model.loss,
      .session = {.intra_op_threads = flags.threads, .inter_op_threads = flags.threads, .gpu_devices = flags.num_gpus}};
  options.hooks = {std::make_shared<StopAtStepHook>(StopAtStepOptions{.last_step = last}),
                   std::make_shared<NanTensorHook>(model.loss)};
  if (flags.eval_only) options.save_checkpoint_every_steps = 0;
  MR_ASSIGN_OR_RETURN(const std::unique_ptr<MonitoredSession> session, strategy == nullptr
                                                                           ? MonitoredTrainingSession(scope, options)
                                                                           : strategy->TrainingSession(scope, options));
  const bool synchronous = strategy == nullptr || strategy->is_synchronous();
  MR_ASSIGN_OR_RETURN(const int64_t first, ReadGlobalStep(session->raw_session(), model.global_step));
  if (!flags.eval_only && first < last) {
    std::string place;
    if (strategy != nullptr && strategy->num_workers() > 1) {
      place = absl::StrCat(" of worker ", strategy->worker_index(), " of ", strategy->num_workers());
    }
    std::printf(
        "Training ResNet-%d, version %d, on %s%s with %s: %lld images per step, %lld steps per epoch, step %lld to "
        "%lld\n",
        flags.resnet_size, flags.version, flags.num_gpus > 0 ? "the GPU" : "the CPU", place.c_str(),
        flags.use_synthetic_data ? "synthetic data" : flags.data_dir.c_str(), static_cast<long long>(flags.batch_size),
        static_cast<long long>(steps_per_epoch), static_cast<long long>(first), static_cast<long long>(last));
    std::fflush(stdout);
    MR_ASSIGN_OR_RETURN(const std::unique_ptr<DatasetIterator> batches,
                        TrainingBatches(data, flags, first, strategy.get()));
    MR_RETURN_IF_ERROR(
        Train(*session, model, *batches, flags, first, last, steps_per_epoch, is_chief, synchronous, evaluator, log));
  } else if (!flags.eval_only) {
    std::printf("The training in %s is at step %lld already\n", flags.model_dir.c_str(), static_cast<long long>(first));
  }
  if (!flags.skip_eval) {
    const int64_t reached = flags.eval_only ? first : std::max(first, last);
    MR_RETURN_IF_ERROR(evaluator.Run(*session->raw_session(), reached));
  }
  return session->Close();
}

}  // namespace

int main(int argc, char** argv) {
  Flags flags;
  CLI::App app("Trains a residual network on CIFAR-10.", "resnet_cifar");
  flags.AddTo(app);
  if (const std::optional<int> status = ParseFlags(app, argc, argv)) return *status;
  if (const Status status = Run(flags); !status.ok()) {
    std::cerr << "resnet_cifar: " << status.message() << "\n";
    return 1;
  }
  return 0;
}
