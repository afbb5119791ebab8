#include "millrace/estimator/export_model.h"

#include <algorithm>

#include "absl/strings/numbers.h"
#include "absl/strings/str_join.h"
#include "millrace/base/log.h"
#include "millrace/graph/graph.h"
#include "millrace/saved_model/builder.h"

namespace millrace::estimator_internal {
namespace {

Output Find(const OutputMap& outputs, const char* name) {
  const auto found = outputs.find(name);
  return found == outputs.end() ? Output() : found->second;
}

StatusOr<pb::SignatureDef> SignatureOf(const ExportOutput& output, const OutputMap& receivers) {
  if (output.outputs.empty()) return InvalidArgument("there are no outputs");
  for (const auto& [name, tensor] : output.outputs) {
    if (tensor.empty()) return InvalidArgument("the output ", name, " is empty");
  }
  if (output.method == ExportOutput::Method::kPredict) return PredictSignature(receivers, output.outputs);
  if (receivers.size() != 1 || receivers.begin()->second.dtype() != DType::kString) {
    return InvalidArgument("its input must be a single string tensor, serialized Examples");
  }
  const Output& examples = receivers.begin()->second;
  if (output.method == ExportOutput::Method::kClassify) {
    return ClassificationSignature(examples, Find(output.outputs, kClassifyClasses),
                                   Find(output.outputs, kClassifyScores));
  }
  if (output.outputs.size() != 1) return InvalidArgument("a regression has one output");
  return RegressionSignature(examples, output.outputs.begin()->second);
}

// The outputs by their names, with one that is the default.
StatusOr<std::map<std::string, ExportOutput>> OutputsOf(const EstimatorSpec& spec) {
  std::map<std::string, ExportOutput> outputs = spec.export_outputs;
  if (outputs.empty()) outputs[kDefaultSignature] = PredictOutput(spec.predictions);
  if (outputs.contains(kDefaultSignature)) return outputs;
  if (outputs.size() > 1) {
    std::vector<std::string> names;
    for (const auto& [name, output] : outputs) names.push_back(name);
    return InvalidArgument("of the export_outputs ", absl::StrJoin(names, ", "), " none is called '", kDefaultSignature,
                           "', which clients use if they name none");
  }
  outputs[kDefaultSignature] = outputs.begin()->second;
  return outputs;
}

// Files that tables are read from when the model is loaded.
std::vector<Output> AssetsOf(const Scope& scope) {
  std::vector<Output> assets;
  for (const Node* node : scope.graph()->nodes()) {
    if (!node->is_type("InitializeTableFromTextFileV2") && !node->is_type("InitializeTableFromTextFile")) continue;
    const Endpoint& file = node->input(1);
    const auto same = [&](const Output& asset) { return asset.endpoint() == file; };
    if (file.node->is_type("Const") && std::none_of(assets.begin(), assets.end(), same))
      assets.emplace_back(scope.WithoutOpName(), file);
  }
  return assets;
}

}  // namespace

StatusOr<Signatures> SignaturesOf(const EstimatorSpec& spec, const ServingInput& input) {
  MR_ASSIGN_OR_RETURN(const auto outputs, OutputsOf(spec));
  Signatures signatures;
  std::vector<std::string> left_out;
  const auto add = [&](const std::string& key, const ExportOutput& output, const OutputMap& receivers) {
    StatusOr<pb::SignatureDef> signature = SignatureOf(output, receivers);
    if (signature.ok()) {
      signatures[key] = *std::move(signature);
    } else {
      left_out.push_back(absl::StrCat("signature '", key, "': ", signature.status().message()));
    }
  };
  for (const auto& [key, output] : outputs) {
    add(key, output, input.receivers);
    for (const auto& [name, receivers] : input.alternatives) add(absl::StrCat(name, ":", key), output, receivers);
  }
  if (signatures.empty()) return InvalidArgument("nothing can be exported: ", absl::StrJoin(left_out, "; "));
  for (const std::string& why : left_out) MR_LOG(Info, "the export is without the ", why);
  if (!signatures.contains(kDefaultSignature)) {
    MR_LOG(Warning, "the export has no signature '", kDefaultSignature, "', so clients must name another");
  }
  return signatures;
}

StatusOr<std::vector<std::string>> ExportsIn(const std::string& base) {
  FileSystem* const files = FileSystem::Posix();
  std::vector<std::pair<int64_t, std::string>> found;
  if (absl::IsNotFound(files->Exists(base))) return std::vector<std::string>();
  MR_ASSIGN_OR_RETURN(const std::vector<std::string> names, files->List(base));
  for (const std::string& name : names) {
    int64_t time = 0;
    if (absl::SimpleAtoi(name, &time) && time >= 0 && absl::StrCat(time) == name) {
      found.emplace_back(time, JoinPath(base, name));
    }
  }
  std::sort(found.begin(), found.end());
  std::vector<std::string> exports;
  for (auto& [time, path] : found) exports.push_back(std::move(path));
  return exports;
}

StatusOr<std::string> NewExportPath(const std::string& base, absl::Time now) {
  MR_ASSIGN_OR_RETURN(const std::vector<std::string> there, ExportsIn(base));
  int64_t time = absl::ToUnixSeconds(now);
  int64_t last = 0;
  if (!there.empty() && absl::SimpleAtoi(there.back().substr(there.back().rfind('/') + 1), &last)) {
    time = std::max(time, last + 1);
  }
  return JoinPath(base, absl::StrCat(time));
}

StatusOr<std::string> ExportModel(const ModelGraphOptions& model, const std::string& base,
                                  const std::string& checkpoint, const ServingInputFn& serving,
                                  const ExportOptions& options) {
  ServingInput input;
  MR_ASSIGN_OR_RETURN(
      ModelGraph graph, BuildModel(model, [&](const Scope& scope, const InputContext&) -> StatusOr<EstimatorInput> {
        MR_ASSIGN_OR_RETURN(input, serving(scope));
        if (input.features.empty()) return InvalidArgument("the serving input function returned no features");
        if (input.receivers.empty()) {
          return InvalidArgument("the serving input function returned no receivers, which clients feed");
        }
        return EstimatorInput{.feature_tensors = input.features};
      }));
  MR_ASSIGN_OR_RETURN(const Signatures signatures, SignaturesOf(graph.spec, input));
  std::shared_ptr<Scaffold> scaffold = graph.spec.scaffold;
  if (scaffold == nullptr) scaffold = std::make_shared<Scaffold>();
  SessionOptions session_options = model.config.session_config();
  session_options.device_filters.clear();
  session_options.target = model.config.evaluation_target();
  const auto creator = CheckpointSessionCreator(std::move(session_options), scaffold, checkpoint);
  MR_RETURN_IF_ERROR(creator->Begin(graph.scope));
  MR_ASSIGN_OR_RETURN(const PreparedSession prepared, creator->CreateSession({}));

  MR_ASSIGN_OR_RETURN(std::string path, NewExportPath(base, options.wall_clock->Now()));
  AddMetaGraphOptions how;
  how.assets = AssetsOf(graph.scope);
  how.main_op = scaffold->local_init_op;
  how.saver = scaffold->saver.get();
  how.clear_devices = true;
  how.strip_default_attrs = options.strip_default_attrs;
  SavedModelBuilder builder(path);
  MR_RETURN_IF_ERROR(
      builder.AddMetaGraphAndVariables(graph.scope, prepared.session.get(), {kServeTag}, signatures, how));
  for (const auto& [name, source] : options.assets_extra) MR_RETURN_IF_ERROR(builder.AddExtraAsset(name, source));
  MR_RETURN_IF_ERROR(builder.Save());
  MR_LOG(Info, "exported ", checkpoint, " to ", path);
  return path;
}

}  // namespace millrace::estimator_internal
