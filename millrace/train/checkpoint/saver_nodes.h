// The nodes that a Saver adds to a graph. Internal to train/.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "millrace/api/variable.h"

namespace millrace::train_internal {

// The CPU device of the task that a variable is placed on, where its files are read and written; "" if it is not placed
// on a task.
std::string FileDevice(const Var& variable);

// A variable, or a slice of one, with its name in the checkpoint.
struct SavedVariable {
  std::string name;
  std::string slice;  // "" for a whole variable
  Var variable;
};

// In the order in which they are written: by name, then by slice. INVALID_ARGUMENT if two would be saved under one
// name.
StatusOr<std::vector<SavedVariable>> SavedVariables(const std::vector<Var>& variables,
                                                    const std::map<std::string, Var>& names);

struct SaverNodes {
  Output filename;    // fed with the prefix
  Output read;        // fetched; available when all variables have been read
  Output saved;       // fetched; the prefix, available when the checkpoint is written
  Operation restore;  // run with the prefix fed
  // Appended to a prefix to name the temporary directory of the shards; "" if not sharded.
  std::string temporary = {};
};

// If sharded, adds one SaveV2 and one RestoreV2 for each task, otherwise one of each at the task of the first variable.
// Each assignment is colocated with its variable.
SaverNodes AddSaverNodes(const Scope& scope, const std::string& name, const std::vector<SavedVariable>& variables,
                         bool sharded);

}  // namespace millrace::train_internal
