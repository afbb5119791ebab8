// The files of a SavedModel: saved_model.pb (graphs with signatures), the folders `variables` (a checkpoint) and
// `assets`.
#pragma once

#include <functional>
#include <map>
#include <string>
#include <vector>

#include "millrace/base/file.h"
#include "millrace/base/status.h"
#include "millrace/proto/meta_graph.pb.h"
#include "millrace/session/session.h"

namespace millrace {

// A model is chosen by its set of tags: {"serve"}, {"serve", "gpu"}. Their order does not matter.
using TagSet = std::vector<std::string>;
std::string TagSetText(const TagSet& tags);  // "serve, gpu", in order

// Reads saved_model.pb, or saved_model.pbtxt if there is no such file. NOT_FOUND if there is neither; DATA_LOSS if the
// file is not a SavedModel; UNIMPLEMENTED for a later schema version.
StatusOr<pb::SavedModel> ReadSavedModel(const std::string& directory, FileSystem* files = FileSystem::Posix());

// True if the directory has a SavedModel.
bool MaybeSavedModel(const std::string& directory, FileSystem* files = FileSystem::Posix());

// The graph with exactly these tags. NOT_FOUND lists the sets of tags that there are.
StatusOr<pb::MetaGraphDef*> FindMetaGraph(pb::SavedModel* model, const TagSet& tags);

// The prefix of the model's checkpoint, and the path of one of its assets. INVALID_ARGUMENT for the name of an asset
// that leads out of the folder.
std::string SavedVariablesPrefix(const std::string& directory);
StatusOr<std::string> AssetPath(const std::string& directory, const std::string& filename);

// What a graph needs before it can answer.
struct SavedModelSetup {
  std::string directory;        // absolute, for servers with another working directory
  std::vector<Feed> assets;     // the tensors that are fed with paths of files
  std::string restore, init;    // ops; empty if there are none
  std::string filename_tensor;  // fed with the prefix of the checkpoint for `restore`
};

// Checks that the files are there: NOT_FOUND names a checkpoint or an asset that is missing, DATA_LOSS a checkpoint
// whose data files are too short.
StatusOr<SavedModelSetup> SetupOf(const pb::MetaGraphDef& meta, const std::string& directory,
                                  FileSystem* files = FileSystem::Posix());

// Restores the variables, by `restore_variables` if it is not null instead of the saver's op, and runs the
// initialization op.
Status SetUp(const SavedModelSetup& setup, Session* session,
             const std::function<Status(const std::string& checkpoint)>& restore_variables = nullptr);

}  // namespace millrace
