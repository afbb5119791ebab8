#include "millrace/saved_model/builder.h"

#include <algorithm>
#include <random>

#include "absl/strings/match.h"
#include "absl/strings/str_format.h"
#include "absl/strings/strip.h"
#include "millrace/base/log.h"
#include "millrace/graph/graph.h"
#include "millrace/saved_model/graph_attrs.h"
#include "millrace/saved_model/meta_graph.h"

namespace millrace {
namespace {

constexpr char kTemporary[] = ".temp-";
constexpr char kAssetType[] = "type.googleapis.com/tensorflow.AssetFileDef";

// Beside the model, so that a rename publishes it. The name is no number: TensorFlow Serving, which takes the folders
// that are numbers for versions of a model, ignores it.
std::string TemporaryBeside(const std::string& directory) {
  std::random_device entropy;
  const std::string name = directory.substr(directory.rfind('/') == std::string::npos ? 0 : directory.rfind('/') + 1);
  return JoinPath(DirectoryOf(directory), absl::StrFormat(".%s%s%08x%08x", name, kTemporary, entropy(), entropy()));
}

Status CheckAbsent(FileSystem* files, const std::string& directory) {
  const StatusOr<bool> is_directory = files->IsDirectory(directory);
  if (absl::IsNotFound(is_directory.status())) return absl::OkStatus();
  MR_RETURN_IF_ERROR(is_directory.status());
  if (*is_directory) {
    MR_ASSIGN_OR_RETURN(const std::vector<std::string> names, files->List(directory));
    if (names.empty()) return absl::OkStatus();
  }
  return AlreadyExists("cannot write a model to ", directory, ": it exists",
                       *is_directory ? " and is not empty" : " and is a file");
}

Status CheckTensor(const Graph& graph, const char* what, const std::string& name, const pb::TensorInfo& info) {
  std::vector<std::string> tensors;
  if (info.encoding_case() == pb::TensorInfo::kCooSparse) {
    tensors = {info.coo_sparse().values_tensor_name(), info.coo_sparse().indices_tensor_name(),
               info.coo_sparse().dense_shape_tensor_name()};
  } else {
    tensors = {info.name()};
  }
  for (const std::string& tensor : tensors) {
    const StatusOr<Endpoint> found = graph.FindEndpoint(tensor);
    if (!found.ok() || tensor.empty())
      return InvalidArgument(what, " '", name, "' is the tensor '", tensor, "', which is not in the graph");
    if (tensors.size() == 1 && BaseType(found->dtype()) != static_cast<DType>(info.dtype())) {
      return InvalidArgument(what, " '", name, "' is declared as ", static_cast<DType>(info.dtype()), ", but ", tensor,
                             " is ", BaseType(found->dtype()));
    }
  }
  return absl::OkStatus();
}

Status CheckSignatures(const Graph& graph, const Signatures& signatures) {
  for (const auto& [key, signature] : signatures) {
    const std::string where = absl::StrCat("signature '", key, "': ");
    if (key.empty()) return InvalidArgument("a signature has no name");
    for (const auto& [name, info] : signature.inputs())
      MR_RETURN_IF_ERROR(WithPrefix(where, CheckTensor(graph, "input", name, info)));
    for (const auto& [name, info] : signature.outputs())
      MR_RETURN_IF_ERROR(WithPrefix(where, CheckTensor(graph, "output", name, info)));
  }
  return absl::OkStatus();
}

// The path that a constant of the graph has.
StatusOr<std::string> PathOf(const Output& asset) {
  const Node* const node = asset.node();
  if (node == nullptr) return InvalidArgument("an asset is empty");
  if (node->is_type("Const")) {
    const StatusOr<Tensor> value = node->Attr<Tensor>("value");
    if (value.ok() && value->dtype() == DType::kString && value->num_elements() == 1)
      return value->scalar<std::string>();
  }
  return InvalidArgument("the asset ", asset.name(), " (op ", node->type(), ") is not a constant scalar string");
}

Status CopyFile(FileSystem* files, const std::string& from, const std::string& to) {
  MR_ASSIGN_OR_RETURN(const std::unique_ptr<SequentialFile> source, files->OpenSequential(from));
  MR_ASSIGN_OR_RETURN(const std::unique_ptr<WritableFile> target, files->OpenWritable(to));
  std::string piece(size_t{1} << 20, '\0');
  while (true) {
    MR_ASSIGN_OR_RETURN(const size_t size, source->Read(piece.size(), piece.data()));
    MR_RETURN_IF_ERROR(target->Append(absl::string_view(piece).substr(0, size)));
    if (size < piece.size()) break;
  }
  MR_RETURN_IF_ERROR(target->Sync());
  return target->Close();
}

}  // namespace

SavedModelBuilder::SavedModelBuilder(std::string directory, FileSystem* files)
    : files_(files), directory_(std::move(directory)) {
  while (directory_.size() > 1 && directory_.back() == '/') directory_.pop_back();
  model_.set_saved_model_schema_version(1);
  status_ =
      directory_.empty() ? InvalidArgument("the name of the model's folder is empty") : CheckAbsent(files_, directory_);
}

SavedModelBuilder::~SavedModelBuilder() {
  if (temporary_.empty()) return;
  if (const Status removed = files_->RemoveTree(temporary_); !removed.ok() && !absl::IsNotFound(removed))
    MR_LOG(Warning, "cannot remove the unfinished model ", temporary_, ": ", removed.message());
}

Status SavedModelBuilder::Prepare() {
  MR_RETURN_IF_ERROR(status_);
  if (!temporary_.empty()) return absl::OkStatus();
  temporary_ = TemporaryBeside(directory_);
  return files_->MakeDirectories(JoinPath(temporary_, "variables"));
}

Status SavedModelBuilder::AddMetaGraphAndVariables(const Scope& scope, ClientSession* session, const TagSet& tags,
                                                   const Signatures& signatures, const AddMetaGraphOptions& options) {
  if (model_.meta_graphs_size() > 0) {
    return FailedPrecondition("the model ", directory_,
                              " has its variables already; add further graphs with AddMetaGraph");
  }
  MR_RETURN_IF_ERROR(scope.status());
  MR_RETURN_IF_ERROR(CheckSignatures(*scope.graph(), signatures));
  MR_RETURN_IF_ERROR(Prepare());
  Saver* saver = options.saver;
  if (saver == nullptr && !GlobalVariables(scope).empty()) {
    savers_.push_back(std::make_unique<Saver>(scope.WithPrefix(""), SaverOptions{.sharded = true, .files = files_}));
    saver = savers_.back().get();
    MR_RETURN_IF_ERROR(scope.status());
  }
  if (saver != nullptr) {
    const SaveOptions only_values = {.write_meta_graph = false, .write_state = false};
    MR_RETURN_IF_ERROR(saver->Save(session, SavedVariablesPrefix(temporary_), only_values).status());
  }
  return Add(scope, saver, tags, signatures, options);
}

Status SavedModelBuilder::AddMetaGraph(const Scope& scope, const TagSet& tags, const Signatures& signatures,
                                       const AddMetaGraphOptions& options) {
  MR_RETURN_IF_ERROR(status_);
  if (model_.meta_graphs_size() == 0) {
    return FailedPrecondition("the model ", directory_,
                              " has no variables yet; add its first graph with AddMetaGraphAndVariables");
  }
  MR_RETURN_IF_ERROR(scope.status());
  MR_RETURN_IF_ERROR(CheckSignatures(*scope.graph(), signatures));
  Saver* saver = options.saver;
  if (saver == nullptr && !GlobalVariables(scope).empty()) {
    savers_.push_back(std::make_unique<Saver>(scope.WithPrefix(""), SaverOptions{.sharded = true, .files = files_}));
    saver = savers_.back().get();
    MR_RETURN_IF_ERROR(scope.status());
  }
  return Add(scope, saver, tags, signatures, options);
}

Status SavedModelBuilder::Add(const Scope& scope, Saver* saver, const TagSet& tags, const Signatures& signatures,
                              const AddMetaGraphOptions& options) {
  if (FindMetaGraph(&model_, tags).ok())
    return AlreadyExists("the model ", directory_, " has a graph with the tags {", TagSetText(tags), "} already");
  ExportMetaGraphOptions how;
  how.saver = saver;
  how.collections = options.collections;
  how.clear_devices = options.clear_devices;
  how.strip_default_attrs = options.strip_default_attrs;
  MR_ASSIGN_OR_RETURN(pb::MetaGraphDef meta, ExportMetaGraph(scope, how));
  for (const std::string& tag : tags) meta.mutable_meta_info_def()->add_tags(tag);
  for (const auto& [name, signature] : signatures) (*meta.mutable_signature_def())[name] = signature;
  if (!options.main_op.empty()) {
    (*meta.mutable_collection_def())["saved_model_main_op"].mutable_node_list()->add_value(options.main_op.name());
  }
  MR_RETURN_IF_ERROR(AddAssets(options, &meta));
  *model_.add_meta_graphs() = std::move(meta);
  return absl::OkStatus();
}

Status SavedModelBuilder::AddAssets(const AddMetaGraphOptions& options, pb::MetaGraphDef* meta) {
  for (const Output& asset : options.assets) {
    MR_ASSIGN_OR_RETURN(const std::string path, PathOf(asset));
    const std::string base = path.substr(path.rfind('/') == std::string::npos ? 0 : path.rfind('/') + 1);
    if (base.empty()) return InvalidArgument("the asset ", asset.name(), " is '", path, "', which names no file");
    // Two files of one name from different folders stay apart.
    std::string name = base;
    for (int n = 1; assets_.contains(name) && assets_[name] != path; ++n) name = absl::StrCat(base, "_", n);
    if (!assets_.contains(name)) {
      MR_RETURN_IF_ERROR(files_->MakeDirectories(JoinPath(temporary_, "assets")));
      MR_ASSIGN_OR_RETURN(const std::string copy, AssetPath(temporary_, name));
      MR_RETURN_IF_ERROR(WithPrefix(absl::StrCat("the asset ", asset.name(), ": "), CopyFile(files_, path, copy)));
      assets_[name] = path;
    }
    pb::AssetFileDef def;
    def.set_filename(name);
    *def.mutable_tensor_info() = TensorInfoOf(asset);
    // Loaders of TensorFlow 1 look at the collection, later ones at the field first.
    auto* const any = (*meta->mutable_collection_def())["saved_model_assets"].mutable_any_list()->add_value();
    any->set_type_url(kAssetType);
    any->set_value(def.SerializeAsString());
    *meta->add_asset_file_def() = std::move(def);
  }
  return absl::OkStatus();
}

Status SavedModelBuilder::AddExtraAsset(const std::string& name, const std::string& source) {
  MR_RETURN_IF_ERROR(status_);
  MR_RETURN_IF_ERROR(AssetPath(directory_, name).status());
  MR_RETURN_IF_ERROR(Prepare());
  const std::string copy = JoinPath(JoinPath(temporary_, "assets.extra"), name);
  MR_RETURN_IF_ERROR(files_->MakeDirectories(DirectoryOf(copy)));
  return WithPrefix(absl::StrCat("the extra asset ", name, ": "), CopyFile(files_, source, copy));
}

Status SavedModelBuilder::Save() {
  MR_RETURN_IF_ERROR(status_);
  if (model_.meta_graphs_size() == 0) return FailedPrecondition("the model ", directory_, " has no graph");
  if (model_.ByteSizeLong() >= (size_t{1} << 31))
    return InvalidArgument("the graphs of the model ", directory_, " have more than 2 GB; keep constants in variables");
  MR_RETURN_IF_ERROR(ReplaceFile(files_, JoinPath(temporary_, "saved_model.pb"), model_.SerializeAsString()));
  for (const char* folder : {"variables", "assets", "assets.extra", ""}) {
    const std::string path = JoinPath(temporary_, folder);
    if (files_->Exists(path).ok()) MR_RETURN_IF_ERROR(files_->SyncDirectory(path));
  }
  MR_RETURN_IF_ERROR(CheckAbsent(files_, directory_));
  MR_RETURN_IF_ERROR(files_->Rename(temporary_, directory_));
  temporary_.clear();
  status_ = FailedPrecondition("the model ", directory_, " is saved");
  return files_->SyncDirectory(DirectoryOf(directory_));
}

Status RemoveModel(const std::string& directory, FileSystem* files) {
  const std::string hidden = TemporaryBeside(directory);
  MR_RETURN_IF_ERROR(files->Rename(directory, hidden));
  return files->RemoveTree(hidden);
}

Status RemoveUnfinishedModels(const std::string& parent, FileSystem* files) {
  if (absl::IsNotFound(files->Exists(parent))) return absl::OkStatus();
  MR_ASSIGN_OR_RETURN(const std::vector<std::string> names, files->List(parent));
  for (const std::string& name : names) {
    if (!absl::StartsWith(name, ".") || !absl::StrContains(name, kTemporary)) continue;
    MR_LOG(Info, "removing an unfinished model: ", JoinPath(parent, name));
    MR_RETURN_IF_ERROR(files->RemoveTree(JoinPath(parent, name)));
  }
  return absl::OkStatus();
}

Status SimpleSave(const Scope& scope, ClientSession* session, const std::string& directory,
                  const SignatureTensors& inputs, const SignatureTensors& outputs, const AddMetaGraphOptions& options) {
  SavedModelBuilder builder(directory);
  MR_RETURN_IF_ERROR(builder.AddMetaGraphAndVariables(
      scope, session, {kServeTag}, {{kDefaultSignature, PredictSignature(inputs, outputs)}}, options));
  return builder.Save();
}

}  // namespace millrace
