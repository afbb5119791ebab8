// A SavedModel as part of a program's own graph: to train it further, or to build on it.
//
//   auto model = ImportSavedModel(root, "export/1700000000", {"train"}).value();
//   Output y = model.Outputs("serving_default").value().at("y");
//   ...                                                             // a loss, an optimizer
//   session.Run(GlobalVariablesInitializer(root));
//   model.Restore(&session);
#pragma once

#include <string>

#include "millrace/api/client_session.h"
#include "millrace/base/status.h"
#include "millrace/saved_model/meta_graph.h"
#include "millrace/saved_model/read_saved_model.h"
#include "millrace/saved_model/signature.h"

namespace millrace {

class ImportedSavedModel {
 public:
  // Its nodes, collections and saver.
  const ImportedGraph& graph() const { return graph_; }

  // The tensors of a signature. NOT_FOUND lists the signatures that there are; UNIMPLEMENTED for one with sparse or
  // composite tensors.
  StatusOr<SignatureTensors> Inputs(const std::string& signature) const;
  StatusOr<SignatureTensors> Outputs(const std::string& signature) const;

  // Restores the model's variables and runs its initialization op. Other variables of the graph are not changed.
  Status Restore(ClientSession* session) const;

 private:
  friend StatusOr<ImportedSavedModel> ImportSavedModel(const Scope& scope, const std::string& directory,
                                                       const TagSet& tags, const ImportMetaGraphOptions& options);
  ImportedSavedModel(ImportedGraph graph, SavedModelSetup setup) : graph_(std::move(graph)), setup_(std::move(setup)) {}
  StatusOr<const pb::SignatureDef*> FindSignature(const std::string& name) const;

  ImportedGraph graph_;
  SavedModelSetup setup_;  // with names in the scope
};

// ImportMetaGraph of the graph with these tags. Variables of TensorFlow 2 models, which have no collections, become
// variables of the graph too; their initializers read the model's checkpoint. Errors: those of ReadSavedModel,
// FindMetaGraph, SetupOf and ImportMetaGraph.
StatusOr<ImportedSavedModel> ImportSavedModel(const Scope& scope, const std::string& directory,
                                              const TagSet& tags = {kServeTag},
                                              const ImportMetaGraphOptions& options = {});

}  // namespace millrace
