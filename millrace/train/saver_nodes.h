// What a Saver adds to a graph. Internal to train/.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "millrace/api/variable.h"
#include "millrace/proto/meta_graph.pb.h"

namespace millrace::train_internal {

namespace pb = ::tensorflow;

// The CPU of the task that a variable asks for, where its files are read and written; "" when it asks for none.
std::string FileDevice(const Var& variable);

// A variable under the name that checkpoints have it by, whole or as a slice.
struct SavedVariable {
  std::string name;
  std::string slice;  // "" for a whole one
  Var variable;
};

// In the order in which they are written: by name, then by slice. INVALID_ARGUMENT when two would be saved as the same.
StatusOr<std::vector<SavedVariable>> SavedVariables(const std::vector<Var>& variables, const std::map<std::string, Var>& names);

struct SaverNodes {
  Output filename;     // fed with the prefix
  Output read;         // fetched: there when all variables have been read
  Output saved;        // fetched: the prefix, when it is saved
  Operation restore;   // run with the prefix fed
  std::string temporary = {};  // what follows a prefix in the name of the directory where shards are written first; "" when not sharded
};

// One SaveV2 and one RestoreV2 for each task when sharded, one for all at the first variable's task otherwise; each assignment is where its
// variable is.
SaverNodes AddSaverNodes(const Scope& scope, const std::string& name, const std::vector<SavedVariable>& variables, bool sharded);

// The graph with its collections, as TensorFlow's import_meta_graph takes it.
StatusOr<pb::MetaGraphDef> MakeMetaGraph(const Scope& scope, const pb::SaverDef& saver);

}  // namespace millrace::train_internal
