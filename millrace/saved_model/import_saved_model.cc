#include "millrace/saved_model/import_saved_model.h"

#include "millrace/saved_model/imported_variables.h"

namespace millrace {

StatusOr<ImportedSavedModel> ImportSavedModel(const Scope& scope, const std::string& directory, const TagSet& tags,
                                              const ImportMetaGraphOptions& options) {
  MR_ASSIGN_OR_RETURN(pb::SavedModel file, ReadSavedModel(directory));
  const std::string where = absl::StrCat(directory, ": ");
  const StatusOr<pb::MetaGraphDef*> found = FindMetaGraph(&file, tags);
  if (!found.ok()) return WithPrefix(where, found.status());
  StatusOr<SavedModelSetup> setup = SetupOf(**found, directory);
  if (!setup.ok()) return WithPrefix(where, setup.status());
  UseRestoredCopies(*found);
  std::vector<RestoredVariable> variables;
  const std::string checkpoint = SavedVariablesPrefix(setup->directory);
  if (!setup->restore.empty()) {
    MR_ASSIGN_OR_RETURN(variables, RestoredVariables(**found, checkpoint));
  }
  StatusOr<ImportedGraph> graph = ImportMetaGraph(scope, std::move(**found), options);
  if (!graph.ok()) return WithPrefix(where, graph.status());
  MR_RETURN_IF_ERROR(AddVariables(scope, variables, checkpoint));
  if (!scope.prefix().empty()) {
    const std::string prefix = scope.prefix() + "/";
    for (std::string* const name : {&setup->restore, &setup->init, &setup->filename_tensor}) {
      if (!name->empty()) name->insert(0, prefix);
    }
    for (Feed& asset : setup->assets) asset.first.insert(0, prefix);
  }
  return ImportedSavedModel(*std::move(graph), *std::move(setup));
}

StatusOr<const pb::SignatureDef*> ImportedSavedModel::FindSignature(const std::string& name) const {
  const auto& all = graph_.meta_graph().signature_def();
  const auto found = all.find(name);
  if (found != all.end()) return &found->second;
  return SignatureNotFound(name, {all.begin(), all.end()});
}

namespace {

StatusOr<SignatureTensors> TensorsOf(const ImportedGraph& graph,
                                     const google::protobuf::Map<std::string, pb::TensorInfo>& infos) {
  SignatureTensors tensors;
  for (const auto& [name, info] : infos) {
    if (info.encoding_case() != pb::TensorInfo::kName)
      return Unimplemented("'", name, "' is not a single tensor: ", TensorInfoText(info));
    MR_ASSIGN_OR_RETURN(tensors[name], graph.Tensor(info.name()));
  }
  return tensors;
}

}  // namespace

StatusOr<SignatureTensors> ImportedSavedModel::Inputs(const std::string& signature) const {
  MR_ASSIGN_OR_RETURN(const pb::SignatureDef* found, FindSignature(signature));
  return TensorsOf(graph_, found->inputs());
}

StatusOr<SignatureTensors> ImportedSavedModel::Outputs(const std::string& signature) const {
  MR_ASSIGN_OR_RETURN(const pb::SignatureDef* found, FindSignature(signature));
  return TensorsOf(graph_, found->outputs());
}

Status ImportedSavedModel::Restore(ClientSession* session) const {
  MR_RETURN_IF_ERROR(session->Prepare());
  return SetUp(setup_, &session->session());
}

}  // namespace millrace
