#include "millrace/estimator/exporter.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "millrace/base/log.h"
#include "millrace/estimator/early_stopping.h"
#include "millrace/estimator/export_model.h"
#include "millrace/saved_model/builder.h"

namespace millrace {
namespace {

Status CheckKept(const std::string& name, const std::optional<int>& exports_to_keep) {
  if (exports_to_keep.value_or(1) > 0) return absl::OkStatus();
  return InvalidArgument("exporter ", name, ": exports_to_keep is ", *exports_to_keep, ", and must be positive");
}

StatusOr<std::string> ExportCheckpoint(Estimator& estimator, const std::string& export_path, const EvalResults& results,
                                       const ServingInputFn& serving_input, ExportOptions options) {
  if (options.checkpoint_path.empty()) options.checkpoint_path = results.checkpoint;
  // What a process left that was killed while it exported. Only one task evaluates.
  MR_RETURN_IF_ERROR(RemoveUnfinishedModels(export_path));
  return estimator.ExportSavedModel(export_path, serving_input, options);
}

Status RemoveOldExports(const std::string& export_path, const std::optional<int>& exports_to_keep) {
  if (!exports_to_keep) return absl::OkStatus();
  MR_ASSIGN_OR_RETURN(const std::vector<std::string> exports, estimator_internal::ExportsIn(export_path));
  for (size_t i = 0; i + *exports_to_keep < exports.size(); ++i) {
    if (const Status removed = RemoveModel(exports[i]); !removed.ok())
      MR_LOG(Warning, "an old export cannot be removed: ", removed.message());
  }
  return absl::OkStatus();
}

// As event files have them.
EvalNumbers NumbersOf(const EvalResults& results) {
  EvalNumbers numbers;
  for (const auto& [name, value] : results.values) {
    const double number = results.number(name);
    if (value.num_elements() == 1) numbers[name] = static_cast<float>(number);
  }
  return numbers;
}

bool SmallerLoss(const EvalNumbers& best, const EvalNumbers& current) {
  const auto old_loss = best.find("loss"), new_loss = current.find("loss");
  if (new_loss == current.end() || std::isnan(new_loss->second)) return false;
  return old_loss == best.end() || std::isnan(old_loss->second) || new_loss->second < old_loss->second;
}

}  // namespace

FinalExporter::FinalExporter(std::string name, ServingInputFn serving_input, ExportOptions options)
    : name_(std::move(name)), serving_input_(std::move(serving_input)), options_(std::move(options)) {}

StatusOr<std::string> FinalExporter::Export(Estimator& estimator, const std::string& export_path,
                                            const EvalResults& results, bool is_the_final_export) {
  if (!is_the_final_export) return std::string();
  return ExportCheckpoint(estimator, export_path, results, serving_input_, options_);
}

LatestExporter::LatestExporter(std::string name, ServingInputFn serving_input, LatestExporterOptions options)
    : name_(std::move(name)), serving_input_(std::move(serving_input)), options_(std::move(options)) {}

StatusOr<std::string> LatestExporter::Export(Estimator& estimator, const std::string& export_path,
                                             const EvalResults& results, bool is_the_final_export) {
  MR_RETURN_IF_ERROR(CheckKept(name_, options_.exports_to_keep));
  // Only when the training has ended is it known that a checkpoint was the last.
  if (is_the_final_export && exported_ == results.checkpoint) return std::string();
  MR_ASSIGN_OR_RETURN(std::string made,
                      ExportCheckpoint(estimator, export_path, results, serving_input_, options_.how));
  exported_ = results.checkpoint;
  MR_RETURN_IF_ERROR(RemoveOldExports(export_path, options_.exports_to_keep));
  return made;
}

BestExporter::BestExporter(std::string name, ServingInputFn serving_input, BestExporterOptions options)
    : name_(std::move(name)), serving_input_(std::move(serving_input)), options_([&] {
        if (options.compare == nullptr) options.compare = SmallerLoss;
        return std::move(options);
      }()) {}

Status BestExporter::ReadBest(const std::string& export_path, const EvalResults& results) {
  MR_ASSIGN_OR_RETURN(const std::vector<std::string> exports, estimator_internal::ExportsIn(export_path));
  if (exports.empty() || results.events_dir.empty()) return absl::OkStatus();
  MR_ASSIGN_OR_RETURN(const auto evaluations, ReadEvalMetrics(results.events_dir));
  const EvalNumbers current = NumbersOf(results);
  for (const auto& [step, numbers] : evaluations) {
    // The evaluation of this step is the one that is to be compared.
    if (step == results.global_step) continue;
    // A process that was killed may have written some of the numbers only.
    const auto is_there = [&numbers = numbers](const auto& one) { return numbers.contains(one.first); };
    if (!std::all_of(current.begin(), current.end(), is_there)) continue;
    if (!best_ || options_.compare(*best_, numbers)) best_ = numbers;
  }
  return absl::OkStatus();
}

StatusOr<std::string> BestExporter::Export(Estimator& estimator, const std::string& export_path,
                                           const EvalResults& results, bool is_the_final_export) {
  MR_RETURN_IF_ERROR(CheckKept(name_, options_.exports_to_keep));
  if (!std::exchange(has_read_, true)) MR_RETURN_IF_ERROR(ReadBest(export_path, results));
  const EvalNumbers numbers = NumbersOf(results);
  if (best_ && !options_.compare(*best_, numbers)) return std::string();
  MR_ASSIGN_OR_RETURN(std::string made,
                      ExportCheckpoint(estimator, export_path, results, serving_input_, options_.how));
  best_ = numbers;
  MR_RETURN_IF_ERROR(RemoveOldExports(export_path, options_.exports_to_keep));
  return made;
}

}  // namespace millrace
