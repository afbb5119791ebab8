// Models that TensorFlow or Millrace has saved, for predictions.
//
//   auto model = LoadSavedModel({}, "export/1700000000").value();
//   auto outputs = model->Predict("serving_default", {{"x", batch}});
//   Use(outputs->at("y"));
#pragma once

#include <map>
#include <memory>
#include <string>

#include "millrace/base/status.h"
#include "millrace/saved_model/read_saved_model.h"
#include "millrace/saved_model/signature.h"
#include "millrace/session/session.h"

namespace millrace {

struct LoadSavedModelOptions {
  // In a session of this process, large variables are mappings of the model's files: nothing is copied, and processes
  // that load the same model share the memory. A write to one stays in this process. The files may be removed or
  // replaced while the model is used, but must not be overwritten in place; false reads them instead.
  bool map_variables = true;
};

// A graph with its variables restored, in a session of its own. Thread-safe.
class SavedModel {
 public:
  using NamedTensors = std::map<std::string, Tensor>;

  ~SavedModel();
  SavedModel(const SavedModel&) = delete;

  const std::string& directory() const;
  // Of predictions, without TensorFlow's internal ones.
  const Signatures& signatures() const;
  // NOT_FOUND lists the signatures that there are.
  StatusOr<const pb::SignatureDef*> FindSignature(const std::string& name) const;

  // All outputs of the signature. INVALID_ARGUMENT names an input that is missing (unless the model has a default for
  // it), unknown, or of another type or shape; UNIMPLEMENTED a sparse or composite one: feed its parts with session().
  // A signature is compiled when it is first used.
  StatusOr<NamedTensors> Predict(const std::string& signature, const NamedTensors& inputs);

  // For runs by the names of tensors and ops.
  Session& session();
  // Everything but the nodes of the graph, which the session has.
  const pb::MetaGraphDef& meta_graph() const;

 private:
  friend StatusOr<std::unique_ptr<SavedModel>> LoadSavedModel(const SessionOptions& options,
                                                              const std::string& directory, const TagSet& tags,
                                                              const LoadSavedModelOptions& load_options);
  struct State;
  explicit SavedModel(std::unique_ptr<State> state);
  std::unique_ptr<State> state_;
};

// Loads the graph with these tags, restores its variables and runs its initialization op. With a target, the tasks of
// that server read the variables and assets, so they must see the same files. A graph from others can read and write
// files as any program can: SessionOptions::file_roots confines it.
//
// Errors: those of ReadSavedModel, FindMetaGraph and SetupOf; NOT_FOUND for an op that Millrace does not have; what
// Session::Run returns for the ops that restore and initialize.
StatusOr<std::unique_ptr<SavedModel>> LoadSavedModel(const SessionOptions& options, const std::string& directory,
                                                     const TagSet& tags = {kServeTag},
                                                     const LoadSavedModelOptions& load_options = {});

}  // namespace millrace
