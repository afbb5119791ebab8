// Writes SavedModels, which TensorFlow (saved_model.load, saved_model_cli, TensorFlow Serving) and Millrace load.
//
//   SavedModelBuilder builder("export/1700000000");
//   builder.AddMetaGraphAndVariables(scope, &session, {"serve"},
//                                    {{"serving_default", PredictSignature({{"x", x}}, {{"y", y}})}});
//   builder.Save();
#pragma once

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "millrace/api/client_session.h"
#include "millrace/base/file.h"
#include "millrace/base/status.h"
#include "millrace/saved_model/read_saved_model.h"
#include "millrace/saved_model/signature.h"
#include "millrace/train/checkpoint/saver.h"

namespace millrace {

struct AddMetaGraphOptions {
  // Scalar strings, constants of the graph, that are paths of files. The files are copied into the model, and who loads
  // it feeds these tensors with the paths of the copies.
  std::vector<Output> assets = {};
  // Run when the model is loaded, after its variables are restored: initializes tables and local variables.
  Operation main_op = {};
  // Restores the variables; null: a new one for all variables of the graph. Must be of the scope's graph.
  Saver* saver = nullptr;
  // Ops and tensors by name, beside the graph's own collections: {"train_op", {"train"}}.
  std::map<std::string, std::vector<std::string>> collections = {};
  // Removes devices, so that the model runs anywhere.
  bool clear_devices = false;
  // Removes attrs that have their default values, so that older versions of TensorFlow can load the model.
  bool strip_default_attrs = false;
};

// A model is a set of graphs, chosen by their tags, that share one set of variables. It is written to a temporary
// folder beside its own, which Save renames: the model's folder is whole or absent at any time, whatever ends the
// program. Not thread-safe.
class SavedModelBuilder {
 public:
  // The folder must not exist, or be empty; an error is returned by the calls below. Its parents are created.
  explicit SavedModelBuilder(std::string directory, FileSystem* files = FileSystem::Posix());
  // Removes what was written if Save was not called or failed.
  ~SavedModelBuilder();
  SavedModelBuilder(const SavedModelBuilder&) = delete;

  // The first graph; the tasks of the session write the variables, so they must see the same files. INVALID_ARGUMENT
  // for a signature whose tensor is not in the graph, or whose type differs, and for an asset that is no constant
  // string.
  Status AddMetaGraphAndVariables(const Scope& scope, ClientSession* session, const TagSet& tags,
                                  const Signatures& signatures, const AddMetaGraphOptions& options = {});
  // A further graph, whose variables are among those saved, by name. FAILED_PRECONDITION if there is no first one.
  Status AddMetaGraph(const Scope& scope, const TagSet& tags, const Signatures& signatures,
                      const AddMetaGraphOptions& options = {});

  // Copies the file `source` to assets.extra/NAME of the model, for those who load it; the graph does not know it.
  Status AddExtraAsset(const std::string& name, const std::string& source);

  // Publishes the model. ALREADY_EXISTS if something was put there in the meantime. No call may follow.
  Status Save();

 private:
  Status Prepare();
  Status Add(const Scope& scope, Saver* saver, const TagSet& tags, const Signatures& signatures,
             const AddMetaGraphOptions& options);
  Status AddAssets(const AddMetaGraphOptions& options, pb::MetaGraphDef* meta);

  FileSystem* const files_;
  std::string directory_;
  std::string temporary_;  // empty until something is written, and after Save
  pb::SavedModel model_;
  std::map<std::string, std::string> assets_;  // from the name in the model to the file that was copied
  std::vector<std::unique_ptr<Saver>> savers_;
  Status status_;
};

// Removes a model. Whatever ends the program, its folder is whole or absent.
Status RemoveModel(const std::string& directory, FileSystem* files = FileSystem::Posix());

// Removes what programs that were killed while they wrote or removed models of the folder `parent` have left there. No
// other program may be doing either. OK if there is no such folder.
Status RemoveUnfinishedModels(const std::string& parent, FileSystem* files = FileSystem::Posix());

// A model of one graph with the tag "serve" and the signature "serving_default".
Status SimpleSave(const Scope& scope, ClientSession* session, const std::string& directory,
                  const SignatureTensors& inputs, const SignatureTensors& outputs,
                  const AddMetaGraphOptions& options = {});

}  // namespace millrace
