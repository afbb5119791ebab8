// Wide and deep on clicks: a linear model of categories and their crosses, beside a network on embeddings of them. The
// tables are partitioned over the parameter servers.
//
//   wide_deep
//   millrace launch --ps 2 --workers 2 -- wide_deep
//   millrace launch --ps 2 --workers 2 --side_job evaluator=1 -- wide_deep
//
// The chief, or an evaluator if the cluster has one, prints the AUC on clicks that no worker has trained on.
#include <algorithm>
#include <cstdio>
#include <iostream>

#include "examples/parse_flags.h"
#include "examples/wide_deep/clicks.h"
#include "millrace/millrace.h"

using namespace millrace;
namespace fc = millrace::feature_column;

namespace {

struct Flags {
  std::string model_dir = "wide_deep_run";
  int64_t max_steps = 2000;
  int64_t batch_size = 256;
  int64_t values = 1000;
  int64_t buckets = 2000;
  int64_t dimension = 8;
  int64_t min_part_kb = 8;
  int64_t save_checkpoints_steps = 1000;
  double dnn_learning_rate = 0.05;
  double linear_learning_rate = 0.1;
  double min_auc = 0;
};

// Training batches of this worker, or those of the test, which come long before the first of any worker.
InputFn ClicksInput(const Flags& flags, bool test) {
  return [=](const Scope&, const InputContext& context) -> StatusOr<EstimatorInput> {
    ClicksOptions options{.values = flags.values, .batch_size = flags.batch_size};
    if (test) {
      options.batches = std::max<int64_t>(1, 8192 / flags.batch_size);
    } else {
      options.first = 1000000 + context.input_pipeline_id * flags.batch_size;
      options.stride = context.num_input_pipelines;
    }
    return EstimatorInput{.dataset = Clicks(options).Prefetch(2), .features = FeatureNames()};
  };
}

StatusOr<Estimator> MakeEstimator(const Flags& flags, const RunConfig& config) {
  LinearOptions wide;
  DNNOptions deep{.hidden_units = {64, 32}};
  for (int i = 1; i <= kNumbers; ++i) deep.columns.push_back(fc::Numeric(absl::StrCat("I", i)));
  for (int i = 1; i <= kCategories; ++i) {
    const FeatureColumn category = fc::CategoricalWithHashBucket(absl::StrCat("C", i), flags.buckets);
    wide.columns.push_back(category);
    deep.columns.push_back(fc::Embedding(category, flags.dimension));
  }
  wide.columns.push_back(fc::Crossed({"C1", "C2"}, flags.buckets));
  wide.columns.push_back(fc::Crossed({fc::Bucketized(fc::Numeric("I1"), {-0.5, 0, 0.5}), "C3"}, flags.buckets));
  deep.optimizer = [rate = flags.dnn_learning_rate](const Scope&) {
    return std::make_shared<optimizers::Adagrad>(optimizers::AdagradOptions{.learning_rate = rate});
  };
  wide.optimizer = [rate = flags.linear_learning_rate](const Scope&) {
    return std::make_shared<optimizers::Ftrl>(optimizers::FtrlOptions{.learning_rate = rate});
  };
  // Smaller parts than by default, so that these tables, too, are on all servers.
  if (config.num_ps_replicas() > 1) {
    deep.input_layer_partitioner = MinMaxPartitioner(
        {.max_parts = config.num_ps_replicas(), .min_part_bytes = std::max<int64_t>(1, flags.min_part_kb << 10)});
  }
  return DNNLinearCombinedClassifier(config, wide, deep, {.loss_reduction = LossReduction::kSumOverBatchSize});
}

Status Run(const Flags& flags) {
  MR_ASSIGN_OR_RETURN(const RunConfig config,
                      RunConfig::FromEnvironment({.model_dir = flags.model_dir,
                                                  .tf_random_seed = 1,
                                                  .save_checkpoints_steps = flags.save_checkpoints_steps,
                                                  .log_step_count_steps = 500}));
  MR_ASSIGN_OR_RETURN(Estimator estimator, MakeEstimator(flags, config));
  const InputFn test = ClicksInput(flags, true);
  MR_ASSIGN_OR_RETURN(EvalResults results,
                      TrainAndEvaluate(estimator, {.input = ClicksInput(flags, false), .max_steps = flags.max_steps},
                                       {.input = test,
                                        .steps = std::nullopt,
                                        .start_delay = absl::ZeroDuration(),
                                        .throttle = absl::ZeroDuration()}));
  if (results.values.empty() && config.is_chief()) {
    MR_ASSIGN_OR_RETURN(results, estimator.Evaluate(test));
  }
  if (results.values.empty()) return absl::OkStatus();  // this task does not evaluate
  const double auc = results.number("auc");
  std::printf("Test AUC %.4f, average loss %.4f at step %lld\n", auc, results.number("average_loss"),
              static_cast<long long>(results.global_step));
  return auc < flags.min_auc ? FailedPrecondition("the AUC is below ", flags.min_auc) : absl::OkStatus();
}

}  // namespace

int main(int argc, char** argv) {
  Flags flags;
  CLI::App app("Predicts clicks by a wide and deep model.");
  app.add_option("--model_dir", flags.model_dir, "where checkpoints and events are written")->capture_default_str();
  app.add_option("--max_steps", flags.max_steps, "the global step at which to stop")->capture_default_str();
  app.add_option("--batch_size", flags.batch_size, "of one worker")->capture_default_str();
  app.add_option("--values", flags.values, "the number of values of each category")->capture_default_str();
  app.add_option("--buckets", flags.buckets, "the rows of each table")->capture_default_str();
  app.add_option("--dimension", flags.dimension, "the columns of each table")->capture_default_str();
  app.add_option("--min_part_kb", flags.min_part_kb, "the smallest part of a table")->capture_default_str();
  app.add_option("--save_checkpoints_steps", flags.save_checkpoints_steps)->capture_default_str();
  app.add_option("--dnn_learning_rate", flags.dnn_learning_rate)->capture_default_str();
  app.add_option("--linear_learning_rate", flags.linear_learning_rate)->capture_default_str();
  app.add_option("--min_auc", flags.min_auc, "fail below it")->capture_default_str();
  if (const std::optional<int> status = ParseFlags(app, argc, argv)) return *status;
  const Status status = Run(flags);
  if (!status.ok()) std::cerr << "wide_deep: " << status.message() << "\n";
  return status.ok() ? 0 : 1;
}
