// millrace saved_model: shows the signatures of a SavedModel, and runs one on values given.
#include "millrace/saved_model/saved_model.h"

#include <algorithm>
#include <iostream>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_split.h"
#include "millrace/io/npy.h"
#include "millrace/tools/command.h"
#include "millrace/tools/tensor_text.h"

namespace millrace {
namespace {

struct SavedModelFlags {
  std::string directory;
  std::string tags;
  std::string signature;
  std::vector<std::string> inputs;
  std::string outdir;
  std::string target;
  bool run = false;
  int64_t max_values = 1000;
};

using TensorInfos = google::protobuf::Map<std::string, pb::TensorInfo>;

void PrintTensors(const char* what, const TensorInfos& tensors, const pb::SignatureDef& signature) {
  size_t width = 0;
  for (const auto& [name, info] : tensors) width = std::max(width, name.size());
  for (const auto& [name, info] : std::map(tensors.begin(), tensors.end())) {
    std::cout << absl::StrFormat("    %-6s  %-*s  %s%s\n", what, static_cast<int>(width), name, TensorInfoText(info),
                                 what[0] == 'i' && signature.defaults().contains(name) ? "  has a default" : "");
  }
}

void PrintSignature(const std::string& name, const pb::SignatureDef& signature) {
  std::cout << "  " << name << (signature.method_name().empty() ? "" : "  ") << signature.method_name() << "\n";
  PrintTensors("input", signature.inputs(), signature);
  PrintTensors("output", signature.outputs(), signature);
}

std::string TagsText(const pb::MetaGraphDef& meta) {
  return TagSetText({meta.meta_info_def().tags().begin(), meta.meta_info_def().tags().end()});
}

StatusOr<pb::MetaGraphDef*> GraphFor(const SavedModelFlags& flags, pb::SavedModel* model) {
  if (!flags.tags.empty()) return FindMetaGraph(model, absl::StrSplit(flags.tags, ',', absl::SkipEmpty()));
  if (model->meta_graphs_size() == 1) return model->mutable_meta_graphs(0);
  const StatusOr<pb::MetaGraphDef*> serve = FindMetaGraph(model, {kServeTag});
  if (serve.ok()) return serve;
  return WithSuffix(serve.status(), "; choose one with --tag_set");
}

Status Show(const SavedModelFlags& flags, pb::SavedModel* model) {
  std::vector<const pb::MetaGraphDef*> shown;
  if (flags.tags.empty() && flags.signature.empty()) {
    for (const pb::MetaGraphDef& meta : model->meta_graphs()) shown.push_back(&meta);
  } else {
    MR_ASSIGN_OR_RETURN(const pb::MetaGraphDef* meta, GraphFor(flags, model));
    shown.push_back(meta);
  }
  for (const pb::MetaGraphDef* meta : shown) {
    const auto& all = meta->signature_def();
    if (!flags.signature.empty() && !all.contains(flags.signature))
      return SignatureNotFound(flags.signature, {all.begin(), all.end()});
    const pb::MetaGraphDef::MetaInfoDef& info = meta->meta_info_def();
    std::cout << "tags: " << TagsText(*meta) << "  (" << meta->graph_def().node_size() << " nodes, "
              << meta->graph_def().library().function_size() << " functions"
              << (info.tensorflow_version().empty() ? "" : ", TensorFlow ") << info.tensorflow_version() << ")\n";
    for (const auto& [name, signature] : Signatures(all.begin(), all.end())) {
      if (flags.signature.empty() ? !IsInternalSignature(name) : flags.signature == name)
        PrintSignature(name, signature);
    }
  }
  return absl::OkStatus();
}

// NAME=VALUE, where VALUE is JSON, or the path of a .npy file.
StatusOr<SavedModel::NamedTensors> InputsOf(const SavedModelFlags& flags, const pb::SignatureDef& signature) {
  SavedModel::NamedTensors inputs;
  for (const std::string& given : flags.inputs) {
    const size_t equals = given.find('=');
    if (equals == std::string::npos || equals == 0)
      return InvalidArgument("--inputs takes NAME=VALUE or NAME=FILE.npy, not '", given, "'");
    const std::string name = given.substr(0, equals), value = given.substr(equals + 1);
    const auto info = signature.inputs().find(name);
    if (info == signature.inputs().end()) {
      inputs[name] = Tensor::Scalar(value);  // Predict says which inputs there are.
      continue;
    }
    StatusOr<Tensor> tensor = InvalidArgument("");
    if (absl::EndsWith(value, ".npy")) {
      MR_ASSIGN_OR_RETURN(const std::string bytes, ReadWholeFile(FileSystem::Posix(), value));
      tensor = ParseNpy(bytes);
    } else {
      tensor = TensorFromText(value, BaseType(static_cast<DType>(info->second.dtype())));
    }
    if (!tensor.ok()) return WithPrefix(absl::StrCat("input '", name, "': "), tensor.status());
    if (!inputs.emplace(name, *std::move(tensor)).second) return InvalidArgument("input '", name, "' is given twice");
  }
  return inputs;
}

Status Run(const SavedModelFlags& flags, const pb::MetaGraphDef& meta) {
  SessionOptions options;
  options.target = flags.target;
  MR_ASSIGN_OR_RETURN(const std::unique_ptr<SavedModel> model,
                      LoadSavedModel(options, flags.directory,
                                     {meta.meta_info_def().tags().begin(), meta.meta_info_def().tags().end()}));
  const std::string name = flags.signature.empty() ? kDefaultSignature : flags.signature;
  MR_ASSIGN_OR_RETURN(const pb::SignatureDef* signature, model->FindSignature(name));
  MR_ASSIGN_OR_RETURN(const SavedModel::NamedTensors inputs, InputsOf(flags, *signature));
  MR_ASSIGN_OR_RETURN(const SavedModel::NamedTensors outputs, model->Predict(name, inputs));
  for (const auto& [name, tensor] : outputs) {
    std::cout << name << "  " << DTypeName(tensor.dtype()) << tensor.shape().ToString() << "\n";
    PrintValues(tensor, flags.max_values);
    if (flags.outdir.empty()) continue;
    MR_ASSIGN_OR_RETURN(const std::string bytes, FormatNpy(tensor));
    MR_RETURN_IF_ERROR(FileSystem::Posix()->MakeDirectories(flags.outdir));
    MR_RETURN_IF_ERROR(ReplaceFile(FileSystem::Posix(), JoinPath(flags.outdir, name + ".npy"), bytes));
  }
  return absl::OkStatus();
}

int ShowOrRun(const SavedModelFlags& flags) {
  StatusOr<pb::SavedModel> model = ReadSavedModel(flags.directory);
  if (!model.ok()) return Fail("saved_model", model.status(), 1);
  Status status;
  if (flags.run || !flags.inputs.empty()) {
    const StatusOr<pb::MetaGraphDef*> meta = GraphFor(flags, &*model);
    status = meta.ok() ? Run(flags, **meta) : meta.status();
  } else {
    status = Show(flags, &*model);
  }
  return status.ok() ? 0 : Fail("saved_model", status, 1);
}

}  // namespace

std::function<int()> AddSavedModel(CLI::App& app, const std::vector<std::string>& program, CLI::App** command) {
  CLI::App* model = app.add_subcommand(
      "saved_model", "Shows the signatures of a SavedModel, Millrace's or TensorFlow's, or runs one on values given");
  auto flags = std::make_shared<SavedModelFlags>();
  model->add_option("directory", flags->directory, "The folder that has saved_model.pb")->required();
  model->add_option("--tag_set", flags->tags,
                    "The tags of the graph, separated by commas (default: the only one, or serve)");
  model->add_option("--signature_def", flags->signature,
                    "The signature to show or run (default for runs: serving_default)");
  model->add_option(
      "--inputs", flags->inputs,
      "Runs the signature on NAME=VALUE, where VALUE is a value or nested lists of values as in JSON, or the "
      "path of a .npy file; repeat it for each input");
  model->add_flag("--run", flags->run, "Runs a signature that needs no inputs");
  model->add_option("--outdir", flags->outdir, "Also writes each output to this folder, as NAME.npy");
  model->add_option("--target", flags->target, "Runs on this server (grpc://host:port), which must see the same files");
  model->add_option("--max_values", flags->max_values, "The maximum number of values to print of each output")
      ->capture_default_str();
  model->footer(
      "Examples:\n"
      "  millrace saved_model export/1700000000\n"
      "  millrace saved_model export/1700000000 --inputs 'x=[[1, 2], [3, 4]]'\n"
      "  millrace saved_model export/1700000000 --signature_def classify --inputs images=batch.npy");
  *command = model;
  return [flags] { return ShowOrRun(*flags); };
}

}  // namespace millrace
