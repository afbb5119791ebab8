// A canned Estimator on a table: which of three cultivars a wine is made of, by 13 measurements.
//
//   wine                                            # a network
//   wine --model=linear                             # or a linear model, or both: --model=wide_deep
//   millrace launch --ps 1 --workers 2 -- wine      # the same on a cluster
//
// The file is read line by line and decoded in the model's graph. Every fourth wine is for the test.
#include <cstdio>
#include <iostream>

#include "examples/parse_flags.h"
#include "millrace/millrace.h"

using namespace millrace;
namespace fc = millrace::feature_column;

namespace {

struct Flags {
  std::string data = "examples/data/wine/wine.csv";
  std::string model_dir = "wine_run";
  std::string model = "dnn";
  int64_t max_steps = 1000;
  int64_t batch_size = 32;
  double min_accuracy = 0;
};

// A measurement, with its mean and its standard deviation in the data.
struct Measurement {
  const char* name;
  double mean;
  double deviation;
};
constexpr Measurement kMeasurements[] = {{"alcohol", 13.0, 0.81},
                                         {"malic_acid", 2.34, 1.12},
                                         {"ash", 2.37, 0.27},
                                         {"alcalinity_of_ash", 19.5, 3.3},
                                         {"magnesium", 99.7, 14.3},
                                         {"total_phenols", 2.3, 0.63},
                                         {"flavanoids", 2.03, 1.0},
                                         {"nonflavanoid_phenols", 0.36, 0.12},
                                         {"proanthocyanins", 1.59, 0.57},
                                         {"color_intensity", 5.06, 2.32},
                                         {"hue", 0.96, 0.23},
                                         {"od280_od315", 2.61, 0.71},
                                         {"proline", 747, 315}};
const std::vector<std::string> kCultivars = {"cultivar_1", "cultivar_2", "cultivar_3"};

std::vector<FeatureColumn> Measured() {
  std::vector<FeatureColumn> columns;
  for (const Measurement& m : kMeasurements) {
    columns.push_back(fc::Numeric(m.name, {.normalizer = [m](const Scope& s, const Input& x) {
                                    return ops::RealDiv(s, ops::Sub(s, x, m.mean), m.deviation);
                                  }}));
  }
  return columns;
}
// What a linear model cannot see in a number alone: ranges, and pairs of them.
std::vector<FeatureColumn> Ranges() {
  const FeatureColumn color = fc::Bucketized(fc::Numeric("color_intensity"), {2, 3, 4, 5, 6, 8});
  const FeatureColumn proline = fc::Bucketized(fc::Numeric("proline"), {400, 600, 800, 1000});
  return {color, proline, fc::Crossed({color, proline}, 100)};
}

// Splits lines into features and the label.
Status Decode(const Scope& scope, OutputMap* features, OutputMap* labels) {
  std::vector<Input> defaults;
  for (size_t i = 0; i < std::size(kMeasurements); ++i) defaults.emplace_back(Tensor(DType::kFloat, Shape({0})));
  defaults.emplace_back(Tensor(DType::kString, Shape({0})));
  const std::vector<Output> fields = ops::DecodeCSV(scope, features->at("line"), defaults);
  if (!scope.ok()) return scope.status();
  features->clear();
  for (size_t i = 0; i < std::size(kMeasurements); ++i) (*features)[kMeasurements[i].name] = fields[i];
  (*labels)["cultivar"] = fields.back();
  return absl::OkStatus();
}

InputFn Wines(const Flags& flags, bool test) {
  return [=](const Scope&, const InputContext& context) -> StatusOr<EstimatorInput> {
    const Dataset lines = Dataset::FromTextLines({flags.data}).Skip(1);
    Dataset part = lines.Shard(4, 3);
    if (!test) part = lines.Shard(4, 0).Concatenate(lines.Shard(4, 1)).Concatenate(lines.Shard(4, 2));
    return EstimatorInput{.dataset = part,
                          .features = {"line"},
                          .labels = {},
                          .batches = DistributeOptions{.batch_size = flags.batch_size * context.num_input_pipelines},
                          .transform = Decode};
  };
}

StatusOr<Estimator> MakeEstimator(const Flags& flags, const RunConfig& config) {
  const ClassifierOptions head{.n_classes = 3, .label_vocabulary = kCultivars};
  const DNNOptions deep{.columns = Measured(), .hidden_units = {16, 8}};
  LinearOptions wide{.columns = Measured()};
  for (const FeatureColumn& column : Ranges()) wide.columns.push_back(column);
  if (flags.model == "dnn") return DNNClassifier(config, deep, head);
  if (flags.model == "linear") return LinearClassifier(config, wide, head);
  if (flags.model == "wide_deep") return DNNLinearCombinedClassifier(config, wide, deep, head);
  return InvalidArgument("--model=", flags.model, " is not known; use dnn, linear or wide_deep");
}

Status Run(const Flags& flags) {
  MR_ASSIGN_OR_RETURN(
      const RunConfig config,
      RunConfig::FromEnvironment({.model_dir = flags.model_dir, .tf_random_seed = 1, .log_step_count_steps = 0}));
  MR_ASSIGN_OR_RETURN(Estimator estimator, MakeEstimator(flags, config));
  MR_ASSIGN_OR_RETURN(EvalResults results,
                      TrainAndEvaluate(estimator, {.input = Wines(flags, false), .max_steps = flags.max_steps},
                                       {.input = Wines(flags, true), .steps = std::nullopt}));
  if (results.values.empty() && config.is_chief()) {  // there is no evaluator in the cluster
    MR_ASSIGN_OR_RETURN(results, estimator.Evaluate(Wines(flags, true)));
  }
  if (results.values.empty()) return absl::OkStatus();
  const double accuracy = results.number("accuracy");
  std::printf("Test accuracy %.1f %%, average loss %.4f\n", 100 * accuracy, results.number("average_loss"));
  if (accuracy < flags.min_accuracy) return FailedPrecondition("the accuracy is below ", flags.min_accuracy);

  MR_ASSIGN_OR_RETURN(const std::unique_ptr<Predictions> predictions,
                      estimator.Predict(Wines(flags, true), {.predict_keys = {"classes", "probabilities"}}));
  std::map<std::string, Tensor> wine;
  for (int i = 0; i < 3; ++i) {
    MR_ASSIGN_OR_RETURN(const bool more, predictions->Next(&wine));
    if (!more) break;
    const auto of = wine.at("probabilities").flat<float>();
    std::printf("  %s with probability %.3f\n", wine.at("classes").data<std::string>()[0].c_str(),
                *std::max_element(of.begin(), of.end()));
  }
  return absl::OkStatus();
}

}  // namespace

int main(int argc, char** argv) {
  Flags flags;
  CLI::App app("Tells the cultivar of a wine by a canned Estimator.");
  app.add_option("--data", flags.data, "the file with the wines")->capture_default_str();
  app.add_option("--model_dir", flags.model_dir, "where checkpoints and events are written")->capture_default_str();
  app.add_option("--model", flags.model, "dnn, linear or wide_deep")->capture_default_str();
  app.add_option("--max_steps", flags.max_steps, "the global step at which to stop")->capture_default_str();
  app.add_option("--batch_size", flags.batch_size, "of one worker")->capture_default_str();
  app.add_option("--min_accuracy", flags.min_accuracy, "fail below it")->capture_default_str();
  if (const std::optional<int> status = ParseFlags(app, argc, argv)) return *status;
  const Status status = Run(flags);
  if (!status.ok()) std::cerr << "wine: " << status.message() << "\n";
  return status.ok() ? 0 : 1;
}
