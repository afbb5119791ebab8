// An Estimator on the MNIST digits: the same program in one process and as each task of a cluster.
//
//   mnist_estimator --model_dir=run
//   millrace launch --ps 1 --workers 2 --side_job evaluator=1 -- mnist_estimator --model_dir=run
//   millrace launch --ps 0 --workers 2 -- mnist_estimator --model_dir=run --strategy=multi_worker_mirrored
//
// Models for serving are exported to run/export (millrace saved_model run/export/best/... shows one).
//
// The second has two workers that train asynchronously with a parameter server, while another process evaluates each
// checkpoint that they save. In the third, workers train and evaluate together, with the same weights on any number.
#include <cstdio>
#include <iostream>

#include "examples/parse_flags.h"
#include "millrace/millrace.h"

using namespace millrace;

namespace {

struct Flags {
  std::string data_dir = "examples/data/mnist";
  std::string model_dir = "mnist_run_estimator";
  std::string strategy = "off";
  int64_t max_steps = 2000;
  int64_t batch_size = 100;
  int64_t save_checkpoints_steps = 500;
  double learning_rate = 0.001;
  double min_accuracy = 0;
};

EstimatorSpec Model(const Scope& scope, const ModelArgs& args) {
  Output h = layers::Dense(scope, args.feature(scope), 128, {.activation = ops::Relu});
  h = layers::Dropout(scope, h, 0.1, args.training());
  const Output logits = layers::Dense(scope, h, 10);
  const Output digit = ops::ArgMax(scope, logits, 1);
  EstimatorSpec spec{.predictions = {{"digit", digit}, {"probabilities", ops::Softmax(scope, logits)}}};
  spec.export_outputs["serving_default"] = {.outputs = spec.predictions};
  if (args.mode == ModelMode::kPredict) return spec;
  spec.loss = losses::SparseSoftmaxCrossEntropy(scope, args.label(scope), logits);
  spec.optimizer = std::make_shared<optimizers::Adam>(
      optimizers::AdamOptions{.learning_rate = args.param(scope, "learning_rate", 0.001)});
  spec.eval_metric_ops["accuracy"] = streaming::Accuracy(scope, args.label(scope), digit);
  return spec;
}

// The examples one by one: the Estimator makes batches of them, and gives each worker its part.
InputFn Digits(const Tensor& images, const Tensor& labels, int64_t batch_size) {
  return [=](const Scope&, const InputContext& context) -> StatusOr<EstimatorInput> {
    MR_ASSIGN_OR_RETURN(const Dataset examples, Dataset::FromTensors({images, labels}));
    return EstimatorInput{.dataset = examples,
                          .batches = DistributeOptions{.batch_size = batch_size * context.num_input_pipelines}};
  };
}

Status Run(const Flags& flags) {
  RunConfigOptions options{.model_dir = flags.model_dir,
                           .tf_random_seed = 1,
                           .save_checkpoints_steps = flags.save_checkpoints_steps,
                           .log_step_count_steps = 500};
  if (flags.strategy == "multi_worker_mirrored") {
    MR_ASSIGN_OR_RETURN(options.train_distribute, MultiWorkerMirroredStrategy({.shards = 4}));
    options.eval_distribute = options.train_distribute;
  } else if (flags.strategy != "off") {
    return InvalidArgument("--strategy=", flags.strategy, " is not known; use off or multi_worker_mirrored");
  }
  MR_ASSIGN_OR_RETURN(const RunConfig config, RunConfig::FromEnvironment(options));
  MR_ASSIGN_OR_RETURN(
      Estimator estimator,
      Estimator::Create(Model, config, {.params = {{"learning_rate", Tensor::Scalar(flags.learning_rate)}}}));
  Mnist mnist;
  if (config.task_type() != task_type::kPs) {
    MR_ASSIGN_OR_RETURN(mnist, LoadMnist(flags.data_dir));
  }
  const InputFn train = Digits(mnist.train_images, mnist.train_labels, flags.batch_size);
  const InputFn test = Digits(mnist.test_images, mnist.test_labels, 1000);

  EvalResults results;
  if (options.train_distribute != nullptr) {
    MR_RETURN_IF_ERROR(estimator.Train(train, {.max_steps = flags.max_steps}));
    MR_ASSIGN_OR_RETURN(results, estimator.Evaluate(test));
  } else {
    // For serving: the newest two models, and each that is more accurate than those before.
    const ServingInputFn serving = RawServingInput({{"x", {DType::kFloat, {-1, 784}}}});
    const CompareEvaluations more_accurate = [](const EvalNumbers& best, const EvalNumbers& now) {
      return now.at("accuracy") > best.at("accuracy");
    };
    MR_ASSIGN_OR_RETURN(
        results, TrainAndEvaluate(estimator, {.input = train, .max_steps = flags.max_steps},
                                  {.input = test,
                                   .steps = std::nullopt,
                                   .exporters = {std::make_shared<LatestExporter>(
                                                     "latest", serving, LatestExporterOptions{.exports_to_keep = 2}),
                                                 std::make_shared<BestExporter>(
                                                     "best", serving, BestExporterOptions{.compare = more_accurate})},
                                   .start_delay = absl::ZeroDuration(),
                                   .throttle = absl::ZeroDuration()}));
  }
  if (results.values.empty()) return absl::OkStatus();  // this task does not evaluate
  const double accuracy = results.number("accuracy");
  std::printf("Test accuracy %.2f %% at step %lld\n", 100 * accuracy, static_cast<long long>(results.global_step));
  if (accuracy < flags.min_accuracy) return FailedPrecondition("the accuracy is below ", flags.min_accuracy);
  return absl::OkStatus();
}

}  // namespace

int main(int argc, char** argv) {
  Flags flags;
  CLI::App app("Trains and evaluates an Estimator on the MNIST digits.");
  app.add_option("--data_dir", flags.data_dir, "the folder with the four files of MNIST")->capture_default_str();
  app.add_option("--model_dir", flags.model_dir, "where checkpoints and events are written")->capture_default_str();
  app.add_option("--strategy", flags.strategy, "off, or multi_worker_mirrored")->capture_default_str();
  app.add_option("--max_steps", flags.max_steps, "the global step at which to stop")->capture_default_str();
  app.add_option("--batch_size", flags.batch_size, "of one worker")->capture_default_str();
  app.add_option("--save_checkpoints_steps", flags.save_checkpoints_steps)->capture_default_str();
  app.add_option("--learning_rate", flags.learning_rate)->capture_default_str();
  app.add_option("--min_accuracy", flags.min_accuracy, "fail below it")->capture_default_str();
  if (const std::optional<int> status = ParseFlags(app, argc, argv)) return *status;
  const Status status = Run(flags);
  if (!status.ok()) std::cerr << "mnist_estimator: " << status.message() << "\n";
  return status.ok() ? 0 : 1;
}
