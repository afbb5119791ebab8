// Exports a model for serving after evaluations of TrainAndEvaluate: at the end, each time, or when it is the best.
//
//   EvalSpec eval{.input = test_input,
//                 .exporters = {std::make_shared<BestExporter>("best", RawServingInput({{"x", {DType::kFloat, {-1,
//                 784}}}}))}};
//
// An export is a SavedModel in MODEL_DIR/export/NAME/TIME, where TIME is in seconds since 1970, as TensorFlow Serving
// wants it. Its folder is whole or absent at any time, whatever ends the program.
#pragma once

#include <functional>
#include <map>
#include <optional>
#include <string>

#include "millrace/estimator/estimator.h"

namespace millrace {

// Used by one thread at a time.
class Exporter {
 public:
  virtual ~Exporter() = default;
  // Of its folder; two exporters of one EvalSpec must not have the same.
  virtual const std::string& name() const = 0;
  // Called after each evaluation; `export_path` is MODEL_DIR/export/NAME, and `is_the_final_export` says that it was
  // that of the last checkpoint. Returns the folder of the export; "" if there is none this time.
  virtual StatusOr<std::string> Export(Estimator& estimator, const std::string& export_path, const EvalResults& results,
                                       bool is_the_final_export) = 0;
};

// Exports once, when the training has ended.
class FinalExporter : public Exporter {
 public:
  FinalExporter(std::string name, ServingInputFn serving_input, ExportOptions options = {});
  const std::string& name() const override { return name_; }
  StatusOr<std::string> Export(Estimator& estimator, const std::string& export_path, const EvalResults& results,
                               bool is_the_final_export) override;

 private:
  const std::string name_;
  const ServingInputFn serving_input_;
  const ExportOptions options_;
};

struct LatestExporterOptions {
  // Older exports are removed; nullopt keeps all.
  std::optional<int> exports_to_keep = 5;
  ExportOptions how = {};
};
// Exports after each evaluation.
class LatestExporter : public Exporter {
 public:
  LatestExporter(std::string name, ServingInputFn serving_input, LatestExporterOptions options = {});
  const std::string& name() const override { return name_; }
  StatusOr<std::string> Export(Estimator& estimator, const std::string& export_path, const EvalResults& results,
                               bool is_the_final_export) override;

 private:
  const std::string name_;
  const ServingInputFn serving_input_;
  const LatestExporterOptions options_;
  std::string exported_;  // the checkpoint
};

// The metrics of an evaluation that are numbers, by name.
using EvalNumbers = std::map<std::string, double>;
// True if `current` is better than `best`.
using CompareEvaluations = std::function<bool(const EvalNumbers& best, const EvalNumbers& current)>;

struct BestExporterOptions {
  // By default: the smaller loss.
  CompareEvaluations compare = nullptr;
  std::optional<int> exports_to_keep = 5;
  ExportOptions how = {};
};
// Exports if the evaluation is better than all before. Those of earlier runs of the program are read from the event
// files of the evaluations; if there is no export yet, the first evaluation counts as the best whatever they say.
class BestExporter : public Exporter {
 public:
  BestExporter(std::string name, ServingInputFn serving_input, BestExporterOptions options = {});
  const std::string& name() const override { return name_; }
  StatusOr<std::string> Export(Estimator& estimator, const std::string& export_path, const EvalResults& results,
                               bool is_the_final_export) override;

 private:
  Status ReadBest(const std::string& export_path, const EvalResults& results);

  const std::string name_;
  const ServingInputFn serving_input_;
  const BestExporterOptions options_;
  bool has_read_ = false;
  std::optional<EvalNumbers> best_;
};

}  // namespace millrace
