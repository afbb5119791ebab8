#include "millrace/saved_model/read_saved_model.h"

#include <algorithm>
#include <filesystem>
#include <limits>

#include "absl/strings/match.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "google/protobuf/io/tokenizer.h"
#include "google/protobuf/text_format.h"
#include "millrace/io/bundle.h"
#include "millrace/train/checkpoint/checkpoint_state.h"

namespace millrace {
namespace {

constexpr char kInitSignature[] = "__saved_model_init_op";

TagSet Sorted(TagSet tags) {
  std::sort(tags.begin(), tags.end());
  tags.erase(std::unique(tags.begin(), tags.end()), tags.end());
  return tags;
}

TagSet TagsOf(const pb::MetaGraphDef& meta) {
  return Sorted({meta.meta_info_def().tags().begin(), meta.meta_info_def().tags().end()});
}

// Keeps protobuf from printing its errors.
class Silent : public google::protobuf::io::ErrorCollector {
 public:
  void AddError(int line, int, const std::string& message) override {
    if (first.empty()) first = absl::StrCat("line ", line + 1, ": ", message);
  }
  std::string first;
};

Status ParseText(const std::string& path, const std::string& text, pb::SavedModel* model) {
  google::protobuf::TextFormat::Parser parser;
  Silent errors;
  parser.RecordErrorsTo(&errors);
  // Models of TensorFlow have fields that Millrace does not know.
  parser.AllowUnknownField(true);
  if (!parser.ParseFromString(text, model)) return DataLoss(path, " is not the text of a SavedModel: ", errors.first);
  return absl::OkStatus();
}

}  // namespace

std::string TagSetText(const TagSet& tags) { return absl::StrJoin(Sorted(tags), ", "); }

bool MaybeSavedModel(const std::string& directory, FileSystem* files) {
  return files->Exists(JoinPath(directory, "saved_model.pb")).ok() ||
         files->Exists(JoinPath(directory, "saved_model.pbtxt")).ok();
}

StatusOr<pb::SavedModel> ReadSavedModel(const std::string& directory, FileSystem* files) {
  std::string path = JoinPath(directory, "saved_model.pb");
  pb::SavedModel model;
  if (files->Exists(path).ok()) {
    MR_ASSIGN_OR_RETURN(const std::string bytes, ReadWholeFile(files, path));
    if (bytes.size() > std::numeric_limits<int>::max())
      return Unimplemented(path, " has ", bytes.size(), " bytes; a message of protobuf has at most 2 GB");
    if (!model.ParseFromArray(bytes.data(), static_cast<int>(bytes.size())))
      return DataLoss(path, " is not a SavedModel, or it is truncated or damaged (", bytes.size(), " bytes)");
  } else if (files->Exists(path + "txt").ok()) {
    path += "txt";
    MR_ASSIGN_OR_RETURN(const std::string text, ReadWholeFile(files, path));
    MR_RETURN_IF_ERROR(ParseText(path, text, &model));
  } else if (files->Exists(JoinPath(directory, "saved_model.cpb")).ok()) {
    return Unimplemented(directory,
                         " has a saved_model.cpb, TensorFlow's format in chunks; only saved_model.pb and "
                         "saved_model.pbtxt can be read");
  } else {
    const Status there = files->Exists(directory);
    return NotFound(directory, there.ok() ? " is not a SavedModel: it has neither saved_model.pb nor saved_model.pbtxt"
                                          : " does not exist");
  }
  if (model.saved_model_schema_version() > 1) {
    return Unimplemented(path, " has schema version ", model.saved_model_schema_version(), "; only version 1 is known");
  }
  if (model.meta_graphs().empty()) return DataLoss(path, " has no graph");
  return model;
}

StatusOr<pb::MetaGraphDef*> FindMetaGraph(pb::SavedModel* model, const TagSet& tags) {
  const TagSet wanted = Sorted(tags);
  std::vector<std::string> there;
  for (pb::MetaGraphDef& meta : *model->mutable_meta_graphs()) {
    const TagSet has = TagsOf(meta);
    if (has == wanted) return &meta;
    there.push_back(absl::StrCat("{", absl::StrJoin(has, ", "), "}"));
  }
  return NotFound("no graph has exactly the tags {", absl::StrJoin(wanted, ", "), "}; there are ",
                  absl::StrJoin(there, " and "));
}

std::string SavedVariablesPrefix(const std::string& directory) { return JoinPath(directory, "variables/variables"); }

StatusOr<std::string> AssetPath(const std::string& directory, const std::string& filename) {
  const std::vector<std::string> parts = absl::StrSplit(filename, '/');
  const auto leaves = [](const std::string& part) { return part.empty() || part == "." || part == ".."; };
  if (filename.find('\0') != std::string::npos || std::any_of(parts.begin(), parts.end(), leaves)) {
    return InvalidArgument("the asset '", filename, "' is not the name of a file in ", JoinPath(directory, "assets"));
  }
  return JoinPath(JoinPath(directory, "assets"), filename);
}

namespace {

// TensorFlow 1 lists assets in a collection, TensorFlow 2 in a field.
StatusOr<std::vector<pb::AssetFileDef>> AssetsOf(const pb::MetaGraphDef& meta) {
  std::vector<pb::AssetFileDef> assets(meta.asset_file_def().begin(), meta.asset_file_def().end());
  const auto found = meta.collection_def().find("saved_model_assets");
  if (!assets.empty() || found == meta.collection_def().end()) return assets;
  for (const auto& any : found->second.any_list().value()) {
    pb::AssetFileDef asset;
    if (!absl::EndsWith(any.type_url(), "/tensorflow.AssetFileDef") || !asset.ParseFromString(any.value()))
      return DataLoss("an entry of the collection saved_model_assets is not an AssetFileDef");
    assets.push_back(std::move(asset));
  }
  return assets;
}

StatusOr<std::string> InitOpOf(const pb::MetaGraphDef& meta) {
  const auto signature = meta.signature_def().find(kInitSignature);
  if (signature != meta.signature_def().end()) {
    const auto op = signature->second.outputs().find(kInitSignature);
    if (op != signature->second.outputs().end()) return op->second.name();
  }
  for (const char* key : {"saved_model_main_op", "legacy_init_op"}) {
    const auto found = meta.collection_def().find(key);
    if (found == meta.collection_def().end()) continue;
    if (found->second.node_list().value_size() != 1)
      return DataLoss("the collection ", key, " must have one op, but has ", found->second.node_list().value_size());
    return found->second.node_list().value(0);
  }
  return std::string();
}

bool HasVariables(const pb::GraphDef& graph) {
  return std::any_of(graph.node().begin(), graph.node().end(), [](const pb::NodeDef& node) {
    return node.op() == "VarHandleOp" || node.op() == "VariableV2" || node.op() == "Variable";
  });
}

}  // namespace

StatusOr<SavedModelSetup> SetupOf(const pb::MetaGraphDef& meta, const std::string& directory, FileSystem* files) {
  SavedModelSetup setup;
  std::error_code error;
  setup.directory = std::filesystem::absolute(directory, error).lexically_normal().string();
  if (error) setup.directory = directory;
  MR_ASSIGN_OR_RETURN(const std::vector<pb::AssetFileDef> assets, AssetsOf(meta));
  for (const pb::AssetFileDef& asset : assets) {
    MR_ASSIGN_OR_RETURN(std::string path, AssetPath(setup.directory, asset.filename()));
    MR_RETURN_IF_ERROR(WithPrefix("an asset of the model: ", files->Exists(path)));
    // TensorFlow may list one twice.
    const std::string& tensor = asset.tensor_info().name();
    std::erase_if(setup.assets, [&](const Feed& feed) { return feed.first == tensor; });
    setup.assets.emplace_back(tensor, Tensor::Scalar(std::move(path)));
  }
  MR_ASSIGN_OR_RETURN(setup.init, InitOpOf(meta));
  if (meta.saver_def().restore_op_name().empty()) return setup;
  const std::string prefix = SavedVariablesPrefix(setup.directory);
  if (absl::IsNotFound(files->Exists(BundleIndexPath(prefix))) && !HasVariables(meta.graph_def())) return setup;
  MR_RETURN_IF_ERROR(WithPrefix("the variables of the model: ", CheckCheckpoint(files, prefix)));
  setup.restore = meta.saver_def().restore_op_name();
  setup.filename_tensor = meta.saver_def().filename_tensor_name();
  return setup;
}

Status SetUp(const SavedModelSetup& setup, Session* session,
             const std::function<Status(const std::string& checkpoint)>& restore_variables) {
  if (!setup.restore.empty()) {
    const std::string checkpoint = SavedVariablesPrefix(setup.directory);
    Status restored;
    if (restore_variables != nullptr) {
      restored = restore_variables(checkpoint);
    } else {
      std::vector<Feed> feeds = setup.assets;
      feeds.emplace_back(setup.filename_tensor, Tensor::Scalar(checkpoint));
      restored = session->Run(feeds, {}, {setup.restore}).status();
    }
    MR_RETURN_IF_ERROR(WithPrefix(absl::StrCat("cannot restore the variables of ", setup.directory, ": "), restored));
  }
  if (setup.init.empty()) return absl::OkStatus();
  return WithPrefix(absl::StrCat("cannot run the initialization op of ", setup.directory, ": "),
                    session->Run(setup.assets, {}, {setup.init}).status());
}

}  // namespace millrace
